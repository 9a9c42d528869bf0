"""hack/images with Docker: one build for each content, with dependencies that were fetched before."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.component.hack.shims import ROOT, Machine, refusal


@pytest.fixture
def docker(machine: Machine) -> Machine:
    """Machine with Docker and a virtual environment. Its `docker save` writes a file."""
    machine.stand_in("docker", '[ "$1" != save ] || echo archive > "$3"')
    machine.stand_in("npm", "mkdir -p node_modules")
    machine.stand_in("python", "while [ $# -gt 1 ]; do [ $1 = --target ] && mkdir -p $2; shift; done")
    venv = machine.checkout / ".venv/bin"
    venv.mkdir(parents=True)
    shutil.copy(machine.folder / "bin/python", venv / "python")
    for name in (
        "crds/mcp_exec_api",
        "common",
        "operator",
        "gateway",
        "broker",
        "sandbox_image",
        "servers_image",
        "locks",
    ):
        shutil.copytree(ROOT / name, machine.checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".dockerignore", machine.checkout)
    return machine


def builds(machine: Machine) -> list[str]:
    return [call for call in machine.calls("docker") if call.startswith("build")]


def test_every_image_is_built_from_its_dockerfile_and_saved(docker: Machine) -> None:
    assert docker.run("images").returncode == 0
    assert [call.split("--tag ")[1].split()[0] for call in builds(docker)] == [
        f"localhost/mcp-exec-{name}:dev" for name in ("sandbox", "operator", "gateway", "broker", "servers")
    ]
    assert {path.name for path in (docker.checkout / ".cache/images").glob("*.tar")} == {
        "sandbox.tar", "operator.tar", "gateway.tar", "broker.tar", "servers.tar",
    }  # fmt: skip


def test_dependencies_come_from_the_lock_file_with_hashes_for_the_images_interpreter(docker: Machine) -> None:
    docker.run("images", "operator")
    (call,) = docker.calls("python")
    assert "--require-hashes" in call
    assert "--only-binary=:all:" in call
    assert "--python-version 3.11" in call
    assert call.endswith("locks/operator.txt")


def test_the_base_image_is_the_locked_digest(docker: Machine) -> None:
    docker.run("images")
    for call in builds(docker):
        assert re.search(r"--build-arg BASE=docker\.io/library/python:3\.11-slim-bookworm@sha256:[0-9a-f]{64} ", call)


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
    assert len(docker.calls("python")) == 5


def test_a_changed_source_rebuilds_the_images_that_hold_it_and_fetches_nothing(docker: Machine) -> None:
    docker.run("images")
    services = ["operator", "gateway", "broker"]
    for name, images in (
        ("crds/mcp_exec_api/meta.py", services),
        ("common/mcp_exec_tools/names.py", ["sandbox", *services]),
    ):
        before = len(builds(docker))
        module = docker.checkout / name
        module.write_text(module.read_text() + "\n# changed\n")
        docker.run("images")
        files = [call.split("--file ")[1].split()[0] for call in builds(docker)[before:]]
        assert [file.split("/")[-2].removesuffix("_image") for file in files] == images
    assert len(docker.calls("python")) == 5


def test_the_servers_image_gets_what_npm_has_by_its_lock_and_no_script_of_it_runs(docker: Machine) -> None:
    for _ in range(2):
        docker.run("images", "servers")
        (docker.checkout / ".cache/images/servers.tar").unlink()
    (call,) = docker.calls("npm")
    assert call.startswith("ci --omit=dev --ignore-scripts")


def test_another_tag_is_another_image(docker: Machine) -> None:
    docker.run("images", "gateway")
    docker.run("images", "gateway", TAG="v2")
    assert "localhost/mcp-exec-gateway:v2" in builds(docker)[1]


@pytest.mark.parametrize("step", ["build", "save"])
def test_a_failed_build_leaves_the_older_archive_and_is_done_again(docker: Machine, step: str) -> None:
    docker.run("images", "gateway")
    script = (docker.folder / "bin/docker").read_text().splitlines()[-1]
    docker.stand_in("docker", f'[ "$1" != {step} ]')
    assert docker.run("images", "gateway", TAG="v2").returncode != 0
    assert (docker.checkout / ".cache/images/gateway.tar").read_text() == "archive\n"
    docker.stand_in("docker", script)
    docker.run("images", "gateway", TAG="v2")
    assert len(builds(docker)) == 3


def test_an_unknown_image_is_refused(docker: Machine) -> None:
    assert "there is no image broom" in refusal(docker.run("images", "broom"))


def test_without_docker_and_without_debian_one_sentence_says_what_is_needed(docker: Machine) -> None:
    docker.stand_in("docker", "exit 1")
    assert "needs a running docker engine, or root on Debian" in refusal(docker.run("images"))
