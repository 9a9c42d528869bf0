"""hack/push: what it pushes, its builder, and how it notices that sources changed since."""

import pytest
from tests.component.hack.shims import Machine, docker_archive, oci_archive, refusal

IMAGES = ("sandbox", "operator", "gateway", "broker", "servers", "sandbox-typescript")
REPOSITORY = "registry.example/team"
DIGEST = f"sha256:{'a' * 64}"


def built(machine: Machine, builder: str) -> None:
    """Let hack/images find everything built, by this builder, from the sources in the file `sources`."""
    for name in IMAGES:
        path = (docker_archive if builder == "docker" else oci_archive)(machine, name, "1" * 64)
        path.with_name(f"{name}.tar.made-from").write_text(f"localhost/mcp-exec-{name}:dev {builder} 0123\n")


@pytest.fixture
def built_by_docker(machine: Machine) -> Machine:
    """Machine with images that docker built."""
    (machine.folder / "sources").write_text("sandbox 01\n")
    (machine.checkout / "hack/images").write_text(f'#!/bin/bash\n[ "$1" != sources ] || cat {machine.folder}/sources\n')
    refused = '[ ! -e $HOME/refused ] || { echo "denied: no." >&2; exit 1; }'
    machine.stand_in("docker", f'[ "$1" = push ] || exit 0; {refused}; echo "v1: digest: {DIGEST} size: 1"')
    written = f'while [ "$1" != --digestfile ]; do shift || exit 0; done; echo {DIGEST} > "$2"'
    machine.stand_in("buildah", f"echo image-id; {written}")
    built(machine, "docker")
    return machine


def push(machine: Machine, *arguments: str, repository: str = REPOSITORY, **environment: str) -> str:
    done = machine.run("push", *arguments, IMAGE_REPOSITORY=repository, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_docker_pushes_what_it_built_under_a_tag_of_the_sources(built_by_docker: Machine) -> None:
    tag = push(built_by_docker, "tag")
    assert push(built_by_docker) == f"export IMAGE_REPOSITORY={REPOSITORY}"
    assert [call for call in built_by_docker.calls("docker") if call.startswith("push")] == [
        f"push {REPOSITORY}/mcp-exec-{name}:{tag}" for name in IMAGES
    ]
    push(built_by_docker, "check")


@pytest.mark.parametrize("builder", ["docker", "buildah"])
def test_what_was_pushed_is_listed_by_its_digest(built_by_docker: Machine, builder: str) -> None:
    built(built_by_docker, builder)
    push(built_by_docker, TAG="v1")
    pushed = (built_by_docker.checkout / ".cache/pushed-images").read_text()
    assert pushed.splitlines() == [f"{REPOSITORY}/mcp-exec-{name}:v1@{DIGEST}" for name in IMAGES]


def test_a_key_signs_each_image_by_its_digest_and_failed_signatures_fail(built_by_docker: Machine) -> None:
    machine = built_by_docker
    machine.stand_in("cosign")
    machine.stand_in("signer", "[ ! -e $HOME/unsigned ]")
    (machine.folder / "venv/bin").mkdir(parents=True)
    (machine.folder / "venv/bin/python").symlink_to(machine.folder / "bin/signer")
    options = {"IMAGE_REPOSITORY": REPOSITORY, "TAG": "v1", "COSIGN_KEY": "k", "VENV": str(machine.folder / "venv")}
    assert machine.run("push", **options).returncode == 0
    assert [call.split()[2] for call in machine.calls("signer")] == [
        f"{REPOSITORY}/mcp-exec-{name}@{DIGEST}" for name in IMAGES
    ]
    (machine.folder / "home/unsigned").touch()
    assert "mcp-exec-sandbox:v1 is pushed, but not signed" in machine.run("push", **options).stderr


def test_changed_sources_have_another_tag_and_must_be_pushed(built_by_docker: Machine) -> None:
    tag = push(built_by_docker, "tag")
    push(built_by_docker)
    (built_by_docker.folder / "sources").write_text("sandbox 02\n")
    assert push(built_by_docker, "tag") != tag
    said = refusal(built_by_docker.run("push", "check", IMAGE_REPOSITORY=REPOSITORY))
    assert f"run `make push IMAGE_REPOSITORY={REPOSITORY}` again, or set TAG to use older images" in said
    push(built_by_docker)
    push(built_by_docker, "check")


def test_a_tag_that_was_pushed_from_other_sources_is_refused(built_by_docker: Machine) -> None:
    push(built_by_docker, TAG="v1")
    push(built_by_docker, "check", TAG="v1")
    (built_by_docker.folder / "sources").write_text("sandbox 02\n")
    said = refusal(built_by_docker.run("push", "check", IMAGE_REPOSITORY=REPOSITORY, TAG="v1"))
    assert f"run `make push IMAGE_REPOSITORY={REPOSITORY} TAG=v1` again" in said


def test_images_that_others_pushed_need_their_tag(built_by_docker: Machine) -> None:
    said = refusal(built_by_docker.run("push", "check", IMAGE_REPOSITORY=REPOSITORY))
    assert "this checkout pushed no images to registry.example/team" in said
    done = built_by_docker.run("push", "check", IMAGE_REPOSITORY=REPOSITORY, TAG="v1")
    assert (done.returncode, "may be of other sources" in done.stderr) == (0, True)


@pytest.mark.parametrize(
    ("repository", "options"),
    [(REPOSITORY, "/digest image-id"), ("127.0.0.1:5000/team", "/digest --tls-verify=false image-id")],
)
def test_buildah_pushes_what_it_built(built_by_docker: Machine, repository: str, options: str) -> None:
    built(built_by_docker, "buildah")
    push(built_by_docker, repository=repository, TAG="v1")
    calls = built_by_docker.calls("buildah")
    assert any(f"{options} docker://{repository}/mcp-exec-gateway:v1" in call for call in calls)
    assert not any(call.startswith("push") for call in built_by_docker.calls("docker"))


def test_a_registry_that_refuses_is_named_with_its_reason_and_nothing_counts_as_pushed(
    built_by_docker: Machine,
) -> None:
    (built_by_docker.folder / "home/refused").touch()
    done = built_by_docker.run("push", IMAGE_REPOSITORY=REPOSITORY)
    assert "(denied: no): check the name, and the rights that `docker login registry.example` gave." in done.stderr
    assert "pushed no images" in refusal(built_by_docker.run("push", "check", IMAGE_REPOSITORY=REPOSITORY))


@pytest.mark.parametrize("repository", ["", "https://registry.example/team", "Registry/team", "team/"])
def test_a_repository_that_is_none_is_refused(machine: Machine, repository: str) -> None:
    assert "IMAGE_REPOSITORY" in refusal(machine.run("push", IMAGE_REPOSITORY=repository))
