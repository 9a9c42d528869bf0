"""A cluster that kopf can find its way around."""

from aiohttp import web

from tests.support.world import World


class Discovered(World):
    """A cluster with the discovery API that kopf uses."""

    installed = True

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        verbs = ["get", "list", "watch", "patch", "create", "delete"]
        ours = [
            {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs}
            for name, kind in (
                ("codeexecutions", "CodeExecution"),
                ("sandboxpools", "SandboxPool"),
                ("sandboxsessions", "SandboxSession"),
            )
        ]
        core = [
            {"name": "namespaces", "singularName": "", "namespaced": False, "kind": "Namespace", "verbs": verbs},
            {"name": "nodes", "singularName": "", "namespaced": False, "kind": "Node", "verbs": verbs},
            {"name": "pods", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": verbs},
        ]
        version = {"groupVersion": "mcp-exec.dev/v1beta1", "version": "v1beta1"}
        group = {"name": "mcp-exec.dev", "versions": [version], "preferredVersion": version}
        answers = {
            "/api": {"versions": ["v1"]},
            "/apis": {"groups": [group]},
            "/api/v1": {"groupVersion": "v1", "resources": core},
            "/apis/mcp-exec.dev/v1beta1": {"groupVersion": "mcp-exec.dev/v1beta1", "resources": ours},
        }
        if request.path in answers and self.installed:
            return web.json_response(answers[request.path])
        return await super()._handle(request)
