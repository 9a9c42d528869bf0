"""hack/cluster: the choice of the cluster, and the commands that it runs."""

import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from tests.component.hack.shims import Machine, refusal

UBUNTU = 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n'


@pytest.fixture
def docker(machine: Machine) -> Machine:
    """Machine with a running Docker engine and kind, without a cluster."""
    machine.stand_in("docker")
    machine.stand_in("kind", f'[ "$1 $2" != "get clusters" ] || cat {machine.folder}/clusters')
    (machine.folder / "clusters").touch()
    return machine


def archive(machine: Machine, name: str) -> Path:
    path = machine.checkout / ".cache/images" / f"{name}.tar"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("an archive")
    return path


def test_kind_is_chosen_where_docker_runs(docker: Machine) -> None:
    assert docker.run("cluster", "kind-of").stdout == "kind\n"


def test_a_docker_client_without_its_engine_does_not_count(docker: Machine) -> None:
    docker.stand_in("docker", "exit 1")
    assert docker.run("cluster", "kind-of").stdout == "devcluster\n"


def test_docker_without_kind_does_not_count_if_kind_cannot_be_had(machine: Machine) -> None:
    machine.stand_in("docker")
    machine.stand_in("go")
    assert machine.run("cluster", "kind-of").stdout == "devcluster\n"


def test_devcluster_is_chosen_for_root_on_debian(machine: Machine) -> None:
    assert machine.run("cluster", "kind-of").stdout == "devcluster\n"


def test_a_machine_with_neither_is_told_in_one_sentence_what_to_install(machine: Machine) -> None:
    machine.release(UBUNTU)
    said = refusal(machine.run("cluster", "kind-of"))
    assert "install Docker and kind" in said
    assert "Debian 12" in said
    assert "CLUSTER=existing KUBECONFIG=FILE" in said


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("kind", "needs a running Docker engine"),
        ("existing", "needs KUBECONFIG=FILE"),
        ("minikube", "CLUSTER must be kind, devcluster or existing, not minikube"),
    ],
)
def test_a_choice_that_cannot_be_honoured_is_refused(machine: Machine, chosen: str, said: str) -> None:
    assert said in refusal(machine.run("cluster", "up", CLUSTER=chosen))


def test_a_chosen_devcluster_says_why_it_cannot_run_here(machine: Machine) -> None:
    machine.release(UBUNTU)
    assert "needs Debian 12" in refusal(machine.run("cluster", "kind-of", CLUSTER="devcluster"))


def test_kind_gets_the_configured_nodes_and_a_kubeconfig_of_its_own(docker: Machine) -> None:
    assert docker.run("cluster", "up").returncode == 0
    created = next(call for call in docker.calls("kind") if call.startswith("create cluster"))
    assert f"--config {docker.checkout}/hack/kind/kind.yaml" in created
    assert f"--kubeconfig {docker.checkout}/.cache/kubeconfig" in created


def test_a_kind_cluster_that_is_there_is_not_made_again(docker: Machine) -> None:
    (docker.folder / "clusters").write_text("mcp-exec\n")
    assert docker.run("cluster", "up").returncode == 0
    assert [call.split()[0] for call in docker.calls("kind")] == ["get", "export"]


def test_archives_are_loaded_into_kind_and_what_runs_with_older_ones_is_restarted(docker: Machine) -> None:
    docker.stand_in("kubectl")
    path = archive(docker, "gateway")
    assert docker.run("cluster", "load", "gateway").returncode == 0
    assert f"load image-archive {path} --name mcp-exec" in docker.calls("kind")
    assert any("rollout restart" in call and "component=gateway" in call for call in docker.calls("kubectl"))


def test_a_new_sandbox_image_replaces_warm_pods_alone(docker: Machine) -> None:
    docker.stand_in("kubectl")
    archive(docker, "sandbox")
    assert docker.run("cluster", "load", "sandbox").returncode == 0
    assert any("delete pods" in call and "state=warm" in call for call in docker.calls("kubectl"))


def test_an_image_that_was_not_built_is_named(docker: Machine) -> None:
    assert "run `make images` first" in refusal(docker.run("cluster", "load", "gateway"))


def test_down_removes_the_kind_cluster_that_up_made(docker: Machine) -> None:
    docker.run("cluster", "up")
    assert docker.run("cluster", "down").returncode == 0
    assert any(call.startswith("delete cluster") and "--name mcp-exec" in call for call in docker.calls("kind"))


def test_down_leaves_a_kind_cluster_alone_that_was_there_before(docker: Machine) -> None:
    (docker.folder / "clusters").write_text("mcp-exec\n")
    docker.run("cluster", "up")
    assert docker.run("cluster", "down").returncode == 0
    assert not any(call.startswith("delete") for call in docker.calls("kind"))


def test_an_existing_cluster_is_used_by_the_kubeconfig_that_is_named(machine: Machine) -> None:
    machine.stand_in("kubectl", "echo $KUBECONFIG")
    assert machine.run("cluster", "up", CLUSTER="existing", KUBECONFIG="/named").returncode == 0
    assert (machine.checkout / ".cache/kubeconfig").read_text() == "/named\n"
    assert machine.run("cluster", "kubeconfig").stdout.strip() == str(machine.checkout / ".cache/kubeconfig")


def test_down_on_an_existing_cluster_uninstalls_the_release_and_no_more(machine: Machine) -> None:
    machine.stand_in("kubectl")
    machine.stand_in("helm", "echo v3.6.2")
    machine.run("cluster", "up", CLUSTER="existing", KUBECONFIG="/named")
    assert machine.run("cluster", "down").returncode == 0
    assert any("uninstall mcp-exec --namespace mcp-exec-system" in call for call in machine.calls("helm"))
    assert not any("delete" in call for call in machine.calls("kubectl"))


def test_an_existing_cluster_needs_a_registry_for_the_images(machine: Machine) -> None:
    said = refusal(machine.run("cluster", "load", CLUSTER="existing", KUBECONFIG="/named"))
    assert "IMAGE_REPOSITORY=REPOSITORY" in said


def test_a_registry_that_is_named_needs_no_loading(machine: Machine) -> None:
    done = machine.run("cluster", "load", CLUSTER="existing", KUBECONFIG="/named", IMAGE_REPOSITORY="images.example/x")
    assert done.returncode == 0


def test_without_a_cluster_there_is_no_kubeconfig_and_nothing_to_remove(machine: Machine) -> None:
    assert "run `make up`" in refusal(machine.run("cluster", "kubeconfig"))
    assert machine.run("cluster", "down").returncode == 0


@pytest.mark.parametrize("arguments", [(), ("restart",), ("up", "now")])
def test_unknown_commands_and_arguments_are_refused(machine: Machine, arguments: tuple[str, ...]) -> None:
    assert machine.run("cluster", *arguments).returncode in (1, 2)


def docker_archive(machine: Machine, name: str, identity: str) -> Path:
    """Write an archive as `docker save` does: its manifest names the image's configuration by its ID."""
    path = archive(machine, name)
    content = f'[{{"Config":"{identity}.json","RepoTags":["localhost/mcp-exec-{name}:dev"],"Layers":[]}}]'.encode()
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("manifest.json")
        member.size = len(content)
        tar.addfile(member, BytesIO(content))
    return path


def oci_archive(machine: Machine, name: str, digest: str) -> Path:
    """Write an archive as `buildah push` does: its index names the manifest by its digest."""
    path = archive(machine, name)
    reference = f'{{"org.opencontainers.image.ref.name":"localhost/mcp-exec-{name}:dev"}}'
    content = f'{{"schemaVersion":2,"manifests":[{{"digest":"{digest}","annotations":{reference}}}]}}'.encode()
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("index.json")
        member.size = len(content)
        tar.addfile(member, BytesIO(content))
    return path


@pytest.fixture
def nodes(docker: Machine) -> Machine:
    """Machine with a kind cluster of two nodes. A node has the images whose lines are in the file `node-images`."""
    (docker.folder / "node-images").touch()
    docker.stand_in("kubectl")
    docker.stand_in("docker", f'case "$1 $2" in "exec worker"*) cat {docker.folder}/node-images;; esac')
    docker.stand_in(
        "kind", 'case "$1 $2" in "get nodes") echo worker;; "load docker-image") cat $HOME/kind-log >&2;; esac'
    )
    return docker


def test_images_of_the_docker_engine_are_loaded_in_one_call_and_what_was_missing_is_restarted(nodes: Machine) -> None:
    for name in ("gateway", "broker"):
        docker_archive(nodes, name, "1" * 64)
    missing = (
        'Image: "localhost/mcp-exec-broker:dev" with ID "sha256:11" not yet present on node "worker", loading...\n'
    )
    (nodes.folder / "home/kind-log").write_text(missing)
    assert nodes.run("cluster", "load", "gateway", "broker").stderr == "==> Loaded broker\n"
    images = "localhost/mcp-exec-gateway:dev localhost/mcp-exec-broker:dev"
    assert [call for call in nodes.calls("kind") if "load" in call] == [f"load docker-image {images} --name mcp-exec"]
    assert ["component=broker" in call for call in nodes.calls("kubectl") if "restart" in call] == [True]


def test_an_image_that_the_docker_engine_lost_or_has_from_elsewhere_comes_from_the_archive(nodes: Machine) -> None:
    path = docker_archive(nodes, "gateway", "1" * 64)
    (nodes.folder / "home/kind-log").touch()
    assert nodes.run("cluster", "load", "gateway").returncode == 0
    assert f"load --quiet --input {path}" in nodes.calls("docker")


def test_an_archive_of_buildah_is_loaded_only_where_a_node_lacks_its_content(nodes: Machine) -> None:
    path = oci_archive(nodes, "gateway", "sha256:22")
    assert nodes.run("cluster", "load", "gateway").stderr == "==> Loaded gateway\n"
    assert f"load image-archive {path} --name mcp-exec" in nodes.calls("kind")
    (nodes.folder / "node-images").write_text("localhost/mcp-exec-gateway:dev type sha256:22 100 MiB\n")
    assert nodes.run("cluster", "load", "gateway").stderr == ""
    assert len([call for call in nodes.calls("kind") if "image-archive" in call]) == 1


def test_a_script_of_the_projects_nodes_creates_the_kind_cluster(docker: Machine) -> None:
    script = docker.checkout / "hack/kind/up"
    script.write_text(f'#!/bin/sh\necho "$@" > {docker.folder}/up\n')
    script.chmod(0o755)
    assert docker.run("cluster", "up", KIND_CLUSTER_NAME="other").returncode == 0
    assert (docker.folder / "up").read_text() == f"other {docker.checkout}/.cache/kubeconfig\n"


def test_down_removes_the_kind_cluster_of_the_name_that_it_was_made_with(docker: Machine) -> None:
    docker.run("cluster", "up", KIND_CLUSTER_NAME="other")
    (docker.checkout / ".cache/kubeconfig").write_text("kind: Config\ncurrent-context: kind-other\n")
    assert docker.run("cluster", "down").returncode == 0
    assert any(call.startswith("delete cluster") and "--name other" in call for call in docker.calls("kind"))
