"""hack/own-image: builds the image of one's own server, and loads it into the cluster's nodes."""

import pytest
from tests.component.hack.shims import Machine, docker_archive, refusal


@pytest.fixture
def checkout(machine: Machine) -> Machine:
    """Machine with a folder to build, and a cluster whose kind is in the file `kind`."""
    (machine.checkout / "hack/cluster").write_text(f"#!/bin/bash\ncat {machine.folder}/kind\n")
    (machine.folder / "kind").write_text("kind\n")
    (machine.folder / "own").mkdir()
    (machine.folder / "own/Dockerfile").write_text("ARG BASE\nFROM $BASE\n")
    docker_archive(machine, "servers", "1" * 64)
    for name in ("docker", "kind"):
        machine.stand_in(name)
    return machine


def test_docker_builds_on_the_servers_image_and_kind_loads_the_archive(checkout: Machine) -> None:
    own = str(checkout.folder / "own")
    done = checkout.run("own-image", own, "dice", KIND_CLUSTER_NAME="other")
    assert done.returncode == 0, done.stderr
    archive = checkout.checkout / ".cache/images/own-dice.tar"
    assert checkout.calls("docker")[-2:] == [
        f"build --quiet --build-arg BASE=localhost/mcp-exec-servers:dev --tag localhost/dice:dev {own}",
        f"save --output {archive} localhost/dice:dev",
    ]
    assert checkout.calls("kind") == [f"load image-archive {archive} --name other"]


def test_an_image_for_a_pool_has_its_requirements_as_wheels_and_is_built_on_the_sandboxes_image(
    checkout: Machine,
) -> None:
    docker_archive(checkout, "sandbox", "2" * 64)
    own = checkout.folder / "own"
    (own / "requirements.txt").write_text("tabulate==0.9.0\n")
    checkout.stand_in("python")
    (checkout.folder / "venv").symlink_to(checkout.folder)
    done = checkout.run("own-image", str(own), "tables", "sandbox", VENV=str(checkout.folder / "venv"))
    assert done.returncode == 0, done.stderr
    (pip,) = checkout.calls("python")
    assert "--only-binary=:all:" in pip
    assert pip.endswith(f"--target {own}/packages --requirement {own}/requirements.txt")
    assert f"--build-arg BASE=localhost/mcp-exec-sandbox:dev --tag localhost/tables:dev {own}" in "".join(
        checkout.calls("docker")
    )
    assert "use servers, sandbox or data" in refusal(checkout.run("own-image", str(own), "tables", "gateway"))


@pytest.mark.parametrize(
    ("kind", "folder", "name", "words"),
    [
        ("kind", "own", "No Name", "is not a name: use lower-case letters, digits and '-'"),
        ("kind", "elsewhere", "dice", "there is no"),
        ("existing", "own", "dice", "push yours to a registry that they reach"),
    ],
)
def test_what_is_missing_is_said(checkout: Machine, kind: str, folder: str, name: str, words: str) -> None:
    (checkout.folder / "kind").write_text(f"{kind}\n")
    assert words in refusal(checkout.run("own-image", str(checkout.folder / folder), name))
