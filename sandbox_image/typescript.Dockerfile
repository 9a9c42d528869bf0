# The sandbox for TypeScript: Deno, the supervisor, an interpreter for it, and what code calls tools with.
# Built by `LANGUAGE=typescript make images`, with docker or buildah, without a network.
# The digest of locks/images.txt, or Debian's packages. There is no default, so that no build uses a floating tag.
ARG BASE
FROM ${BASE}
# No installer in the image; no program that changes its user.
RUN rm -rf /usr/local/lib/python3.*/site-packages/* && find / -xdev -perm /6000 -type f -exec chmod a-s {} + \
 && { command -v python || ln -s "$(command -v python3)" /usr/local/bin/python; }
COPY build/deps/sandbox-typescript /opt/mcp-exec
COPY tools/mcp_exec_tools /opt/mcp-exec/mcp_exec_tools
COPY sandbox_image/mcp_exec_sandbox /opt/mcp-exec/mcp_exec_sandbox
COPY sandbox_image/typescript_runner /opt/mcp-exec/typescript_runner
# The root file system is read-only at run time: bytecode is made here, and the runner's JavaScript.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/mcp-exec \
 && PYTHONPATH=/opt/mcp-exec python3 -P -m mcp_exec_sandbox.bundle_builder \
 && cd /opt/mcp-exec/typescript_runner \
 && DENO_DIR=/opt/mcp-exec/deno-cache ../bin/deno cache --quiet --no-config --no-remote --no-npm --import-map=imports.json main.ts
COPY hack/sbom.py /usr/share/mcp-exec/sbom.py
RUN python3 /usr/share/mcp-exec/sbom.py /usr/share/mcp-exec/sbom.cdx.json
ARG SOURCES=unknown
LABEL dev.mcp-exec.sources=${SOURCES}
RUN echo "${SOURCES}" > /usr/share/mcp-exec/sources
# No line of /etc/passwd names the user, whose id differs from pod to pod: the environment does.
ENV PYTHONPATH=/opt/mcp-exec PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/workspace LANG=C.UTF-8 USER=agent
WORKDIR /workspace
USER 65532:65532
# By its path, because `-m` imports modules from their files first.
ENTRYPOINT ["python3", "-P", "/opt/mcp-exec/mcp_exec_sandbox/__main__.py"]
