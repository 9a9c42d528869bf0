"""hack/providers/kind.sh and hack/kind/up: where kind runs, clusters that exist already, and images of nodes."""

import re
import shutil
from typing import Any

import pytest
import yaml
from tests.component.hack.shims import ROOT, UBUNTU, Machine, Nodes, docker_archive, oci_archive, refusal

SOCKET = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get ..."


def test_kind_gets_the_configured_nodes_and_a_kubeconfig_of_its_own(docker: Nodes) -> None:
    assert docker.run("cluster", "up").returncode == 0
    created = next(call for call in docker.calls("kind") if call.startswith("create cluster"))
    assert f"--config {docker.checkout}/hack/kind/kind.yaml" in created
    assert f"--kubeconfig {docker.checkout}/.cache/kubeconfig" in created
    assert any("annotate namespace kube-system" in call for call in docker.calls("kubectl"))


def test_the_pinned_node_image_is_pulled(docker: Nodes) -> None:
    assert docker.run("cluster", "up").returncode == 0
    (pulled,) = [call for call in docker.calls("docker") if call.startswith("pull")]
    assert re.fullmatch(r"pull --quiet kindest/node:v1\.[0-9.]+@sha256:[0-9a-f]{64}", pulled)
    assert any(f"--image {pulled.split()[-1]}" in call for call in docker.calls("kind"))


def test_without_a_registry_the_node_image_comes_from_packages_where_that_can_be(docker: Nodes) -> None:
    (docker.folder / "offline").touch()
    done = docker.run("cluster", "up")
    assert done.returncode == 0, done.stderr
    assert "(Error: no such host): building a node image from Debian's packages" in done.stderr
    assert any("--image packaged:1" in call for call in docker.calls("kind"))


def test_without_a_registry_elsewhere_one_sentence_says_what_to_do(docker: Nodes) -> None:
    (docker.folder / "offline").touch()
    docker.release(UBUNTU)
    said = docker.run("cluster", "up").stderr.splitlines()
    assert (
        "(Error: no such host): let it reach the registry, by its proxy if there is one, or set KIND_NODE_IMAGE"
        in said[-1]
    )
    assert [line for line in said[:-1] if not line.startswith("==> ")] == []


@pytest.mark.parametrize(("cgroup", "version"), [(2, "v1.37."), (1, "v1.34.")])
def test_an_engine_gets_the_newest_kubernetes_that_its_cgroups_can_run(
    docker: Nodes, cgroup: int, version: str
) -> None:
    docker.engine(cgroup=cgroup)
    assert docker.run("cluster", "up", CLUSTER="kind").returncode == 0
    assert any(f"--image kindest/node:{version}" in call for call in docker.calls("kind"))


@pytest.mark.parametrize(
    ("network", "command", "installed"),
    [
        ("calico:v3.33.0", "kubectl", "/projectcalico/calico/v3.33.0/manifests/calico.yaml"),
        ("cilium:1.20.3", "helm", "install cilium cilium --repo https://helm.cilium.io --version 1.20.3 "),
    ],
)
def test_another_network_plugin_is_installed_before_the_nodes_are_ready(
    docker: Nodes, network: str, command: str, installed: str
) -> None:
    docker.stand_in("helm", '[ "$1" != version ] || echo v3.19.0')
    shutil.copy(ROOT / "hack/kind/kind.yaml", docker.checkout / "hack/kind/kind.yaml")
    assert docker.run("cluster", "up", KIND_CNI=network).returncode == 0
    (created,) = [call for call in docker.calls("kind") if call.startswith("create cluster")]
    config = docker.checkout / ".cache/kind.yaml"
    assert f"--config {config} " in created
    assert created.endswith("--wait 0s"), "without the plugin, the nodes do not become ready"
    own = yaml.safe_load((docker.checkout / "hack/kind/kind.yaml").read_text())
    assert yaml.safe_load(config.read_text()) == own | {"networking": {"disableDefaultCNI": True}}
    assert [installed in call for call in docker.calls(command)].count(True) == 1
    assert any("wait --for=condition=Ready nodes" in call for call in docker.calls("kubectl"))


@pytest.mark.parametrize("network", ["weave:1.0", "calico", "calico:3.33.0", "cilium:"])
def test_a_network_plugin_that_is_not_known_is_refused_before_a_cluster_is_created(docker: Nodes, network: str) -> None:
    done = docker.run("cluster", "up", KIND_CNI=network)
    assert done.returncode == 1
    assert f"KIND_CNI={network} is unknown: use calico:VERSION" in done.stderr
    assert not any(call.startswith("create cluster") for call in docker.calls("kind"))


def test_a_cluster_with_another_network_plugin_has_another_configuration(docker: Nodes) -> None:
    docker.stand_in("helm", '[ "$1" != version ] || echo v3.19.0')
    assert docker.run("cluster", "up", KIND_CNI="cilium:1.20.3").returncode == 0
    assert "has another configuration" in docker.run("cluster", "up").stderr


def devcluster(machine: Machine) -> None:
    """Replace the checkout's devcluster by one that can run on Debian as root and is up at once."""
    script = machine.checkout / "hack/devcluster/devcluster"
    script.write_text(f"#!/bin/bash\n[ -e {machine.folder}/debian ] || exit 1\necho {machine.folder}/os-release\n")
    (machine.folder / "debian").touch()


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (
            "echo 'Cannot connect to the Docker daemon. Is the docker daemon running?' >&2; exit 1",
            "does not run: start it",
        ),
        (f"echo '{SOCKET}' >&2; exit 1", "no rights to the Docker engine's socket: add your user to the group docker"),
        ("echo '|0||||||Error response: disk full.'", "returns an error (Error response: disk full): restart it"),
        ("exit 124", "does not answer within 20 seconds: restart it"),
    ],
    ids=["client-alone", "no-rights", "broken", "hanging"],
)
def test_a_docker_without_a_usable_engine_is_passed_over_with_the_reason(
    docker: Nodes, printed: str, said: str
) -> None:
    docker.stand_in("docker", f'[ "$1" != info ] || {{ {printed}; }}')
    devcluster(docker)
    done = docker.run("cluster", "up")
    assert (done.returncode, done.stderr.splitlines()[0].split(", because")[0]) == (0, "==> No kind cluster")
    assert said in done.stderr
    (docker.checkout / ".cache/cluster").unlink(missing_ok=True)
    (docker.folder / "debian").unlink()
    assert said in refusal(docker.run("cluster", "up"))


def test_an_alias_of_podman_is_passed_over_unless_kind_is_asked_for(docker: Nodes) -> None:
    docker.stand_in("docker", "echo podman version 4.3.1")
    assert docker.run("cluster", "kind-of").stdout == "devcluster\n"
    assert docker.run("cluster", "kind-of", CLUSTER="kind").stdout == "kind\n"


def test_a_hanging_engine_is_left_after_a_time(docker: Nodes) -> None:
    (docker.folder / "bin/timeout").unlink()
    docker.stand_in("timeout", 'shift 3; [ "$1 $2" != "docker info" ] || exit 124; exec "$@"')
    docker.stand_in("docker", '[ "$1" != info ] || exec sleep 600')
    assert "does not answer within 20 seconds" in refusal(docker.run("cluster", "up", CLUSTER="kind"))


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"memory": 2 << 30}, "has 2048 MiB of memory and the cluster needs 4 GiB: give it more"),
        ({"cgroup": 1, "security": "[name=seccomp name=rootless]"}, "needs cgroup v2 with rootless Docker"),
        ({"machine": "riscv64"}, "the Docker engine's machine is riscv64"),
        ({"system": "windows"}, "switch it to Linux containers"),
    ],
)  # fmt: skip
def test_an_engine_that_cannot_run_the_nodes_is_passed_over_or_refused(
    docker: Nodes, engine: dict[str, Any], said: str
) -> None:
    docker.engine(**engine)
    assert docker.run("cluster", "kind-of").stdout == "devcluster\n"
    docker.release(UBUNTU)
    assert said in refusal(docker.run("cluster", "up"))
    assert said in refusal(docker.run("cluster", "up", CLUSTER="kind"))


def test_an_engine_of_another_machine_gets_nodes_of_its_own_architecture(docker: Nodes) -> None:
    docker.engine(machine="aarch64")
    (docker.checkout / "hack/kind/up").write_text(f"#!/bin/bash\nenv > {docker.folder}/up\n")
    (docker.checkout / "hack/kind/up").chmod(0o755)
    assert docker.run("cluster", "up", DOCKER_DEFAULT_PLATFORM="linux/amd64").returncode == 0
    assert "DOCKER_DEFAULT_PLATFORM" not in (docker.folder / "up").read_text()


def test_a_disk_that_is_nearly_full_is_warned_of(docker: Nodes) -> None:
    docker.stand_in("df", "printf 'Filesystem 1024-blocks Used Available\\n/dev/x 9 9 1048576 99%% /\\n'")
    done = docker.run("cluster", "up")
    assert done.returncode == 0
    assert "==> Warning: /nowhere has 1024 MiB left and the cluster may need 10 GiB" in done.stderr


def test_kind_is_fetched_before_it_is_chosen(docker: Nodes) -> None:
    kind = docker.folder / "bin/kind"
    kind.rename(docker.folder / "kind")
    tools = docker.checkout / "hack/tools"
    tools.write_text(f'#!/bin/bash\n[ "$1" = kind ] && cp {docker.folder}/kind {kind}\n')
    assert docker.run("cluster", "kind-of").stdout == "kind\n"


def test_a_machine_with_docker_and_go_that_cannot_get_kind_goes_on_by_devcluster(docker: Nodes) -> None:
    (docker.folder / "bin/kind").unlink()
    docker.stand_in("go")
    devcluster(docker)
    tools = docker.checkout / "hack/tools"
    tools.write_text('#!/bin/bash\necho "hack/tools: kind.sigs.k8s.io is not reachable: install kind." >&2\nexit 1\n')
    assert docker.run("cluster", "kind-of").stdout == "devcluster\n"
    assert (
        "No kind cluster, because kind.sigs.k8s.io is not reachable: install kind\n"
        in docker.run("cluster", "up").stderr
    )
    assert docker.calls("go") == []


def test_a_running_cluster_of_these_scripts_is_used_and_not_made_again(docker: Nodes) -> None:
    docker.cluster(mark="0123456789abcdef")
    done = docker.run("cluster", "up")
    assert done.returncode == 0
    assert not any(call.startswith("create") for call in docker.calls("kind"))
    assert "has another configuration than hack/kind/kind.yaml" in done.stderr


def test_a_cluster_of_that_name_that_these_scripts_did_not_make_is_refused(docker: Nodes) -> None:
    docker.cluster()
    said = refusal(docker.run("cluster", "up"))
    assert "a kind cluster mcp-exec that these scripts did not make" in said
    assert "`kind delete cluster --name mcp-exec`, or set KIND_CLUSTER_NAME" in said
    docker.cluster("other", mark="0123456789abcdef")
    assert docker.run("cluster", "up", KIND_CLUSTER_NAME="other").returncode == 0


def test_a_stopped_cluster_of_somebody_else_is_refused(docker: Nodes) -> None:
    docker.cluster(mark="0123456789abcdef", running=False)
    assert "whose nodes do not run: remove it" in refusal(docker.run("cluster", "up"))
    assert not any(call.startswith("start") for call in docker.calls("docker"))


def test_a_cluster_whose_api_server_does_not_answer_is_refused(docker: Nodes) -> None:
    docker.cluster(mark="0123456789abcdef")
    docker.stand_in("kubectl", "exit 1")
    assert "is not ready: remove it" in refusal(docker.run("cluster", "up"))


def test_stopped_nodes_of_this_checkouts_cluster_are_started(docker: Nodes) -> None:
    assert docker.run("cluster", "up").returncode == 0
    (docker.folder / "running").unlink()
    assert docker.run("cluster", "up").returncode == 0
    assert "start worker" in docker.calls("docker")


def test_down_removes_the_kind_cluster_that_up_made_by_the_name_that_it_had(docker: Nodes) -> None:
    docker.run("cluster", "up", KIND_CLUSTER_NAME="other")
    (docker.checkout / ".cache/kubeconfig").write_text("kind: Config\ncurrent-context: kind-other\n")
    said = refusal(docker.run("cluster", "up", KIND_CLUSTER_NAME="third"))
    assert "has the kind cluster other: run `make down` first" in said
    assert docker.run("cluster", "down").returncode == 0
    assert any(call.startswith("delete cluster") and "--name other" in call for call in docker.calls("kind"))


def test_down_after_an_interrupted_start_removes_no_cluster_of_another_name(docker: Nodes) -> None:
    (docker.checkout / "hack/kind/up").write_text("#!/bin/bash\nexit 130\n")
    assert docker.run("cluster", "up", KIND_CLUSTER_NAME="other").returncode == 130
    docker.cluster("mcp-exec", mark="0123456789abcdef")
    assert docker.run("cluster", "down").returncode == 0
    (deleted,) = [call for call in docker.calls("kind") if call.startswith("delete")]
    assert "--name other " in deleted


def test_a_cluster_whose_creation_was_interrupted_is_not_used(docker: Nodes) -> None:
    assert docker.run("cluster", "up").returncode == 0
    (docker.folder / "mark").write_text("")
    said = refusal(docker.run("cluster", "up"))
    assert "the kind cluster mcp-exec is incomplete, because its creation was interrupted: run `make down`" in said


def test_a_cluster_that_kind_cannot_delete_is_named_with_the_reason(docker: Nodes) -> None:
    assert docker.run("cluster", "up").returncode == 0
    docker.stand_in("kind", "echo 'ERROR: no such container' >&2; exit 1")
    assert "kind can't delete the cluster mcp-exec: ERROR: no such container." in refusal(docker.run("cluster", "down"))
    assert (docker.checkout / ".cache/cluster").exists()


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("ERROR: failed to init node with kubeadm", "kind can't create the cluster: see its message above"),
        ("docker: unable to apply caps: operation not permitted", "see docs/start/kind.md"),
    ],
)
def test_what_kind_prints_precedes_the_sentence_that_says_what_to_do(docker: Nodes, printed: str, said: str) -> None:
    (docker.folder / "log").write_text(f"{printed}\n")
    done = docker.run("cluster", "up")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2] == printed
    assert said in done.stderr.splitlines()[-1]


def test_two_checkouts_do_not_create_a_cluster_of_one_name_at_once(docker: Nodes) -> None:
    docker.stand_in("flock", "exit 1")
    assert "kind-mcp-exec.lock for 40 minutes" in docker.run("cluster", "up").stderr
    assert not any(call.startswith("create") for call in docker.calls("kind"))


@pytest.fixture
def old_kind(docker: Nodes) -> Nodes:
    """Machine with an older kind than the locked one, which hack/tools fetches into the folder of the tools."""
    (docker.folder / "version").write_text("kind v0.27.0 go1.24.1 linux/amd64\n")
    lock = docker.checkout / "locks/tools.txt"
    lock.write_text("kind v0.33.0 linux amd64 00\n")
    stub = docker.checkout / "hack/tools"
    stub.write_text(
        '#!/bin/bash\n. "$(dirname "$0")/lib.sh"\nif [ -e $HOME/offline ]; then exit 1; fi\nmkdir -p $tools\n'
        f'sed "s/echo .kind/&-fetched/" {docker.folder}/bin/kind > $tools/kind\nchmod 755 $tools/kind\n'
    )
    return docker


def test_an_older_kind_on_the_path_is_replaced_by_the_locked_one(old_kind: Nodes) -> None:
    done = old_kind.run("cluster", "up")
    assert done.returncode == 0, done.stderr
    assert f"Fetching kind v0.33, because {old_kind.folder}/bin/kind is v0.27" in done.stderr
    assert any(call.startswith("create cluster") for call in old_kind.calls("kind-fetched"))
    assert not any(call.startswith("create cluster") for call in old_kind.calls("kind"))


def test_an_older_kind_is_tried_if_no_other_can_be_had(old_kind: Nodes) -> None:
    (old_kind.folder / "home/offline").touch()
    done = old_kind.run("cluster", "up")
    assert done.returncode == 0, done.stderr
    assert "It can't be fetched, so kind v0.27 is tried" in done.stderr
    assert any(call.startswith("create cluster") for call in old_kind.calls("kind"))


def test_a_newer_kind_on_the_path_is_used(old_kind: Nodes) -> None:
    (old_kind.folder / "version").write_text("kind v0.100.0 go1.30 linux/amd64\n")
    assert "Fetching" not in old_kind.run("cluster", "up").stderr


def test_down_leaves_a_kind_cluster_alone_that_was_there_before(docker: Nodes) -> None:
    docker.cluster(mark="0123456789abcdef")
    docker.run("cluster", "up")
    assert docker.run("cluster", "down").returncode == 0
    assert not any(call.startswith("delete") for call in docker.calls("kind"))


def test_down_keeps_the_record_of_its_cluster_while_docker_does_not_run(docker: Nodes) -> None:
    assert docker.run("cluster", "up").returncode == 0
    docker.engine(errors="Cannot connect to the Docker daemon")
    assert "does not run: start it" in refusal(docker.run("cluster", "down"))
    assert (docker.checkout / ".cache/cluster").read_text() == "kind\n"


def test_a_new_sandbox_image_replaces_warm_pods_alone(docker: Nodes) -> None:
    docker_archive(docker, "sandbox", "1" * 64)
    assert docker.run("cluster", "load", "sandbox").returncode == 0
    assert any("delete pods" in call and "state=warm" in call for call in docker.calls("kubectl"))


def test_an_image_that_was_not_built_is_named(docker: Nodes) -> None:
    assert "run `make images` first" in refusal(docker.run("cluster", "load", "gateway"))


def in_node(machine: Nodes, **images: str) -> None:
    """Let the node have these images, by their IDs."""
    lines = [f'worker localhost/mcp-exec-{name}:dev "id":"sha256:{identity}\n' for name, identity in images.items()]
    (machine.folder / "node-images").write_text("".join(lines))


def test_images_of_the_docker_engine_that_a_node_lacks_are_loaded_in_one_call_and_restarted(docker: Nodes) -> None:
    for name in ("gateway", "broker", "operator"):
        docker_archive(docker, name, "1" * 64)
    in_node(docker, gateway="1" * 64, broker="2" * 64)
    done = docker.run("cluster", "load", "gateway", "broker", "operator")
    assert done.stderr == "==> Loaded broker\n==> Loaded operator\n"
    images = "localhost/mcp-exec-broker:dev localhost/mcp-exec-operator:dev"
    assert [call for call in docker.calls("kind") if "load" in call] == [f"load docker-image {images} --name mcp-exec"]
    restarts = [call.split("=")[-1] for call in docker.calls("kubectl") if "restart" in call]
    assert restarts == ["broker", "operator"]


def test_an_image_that_the_docker_engine_lost_or_has_from_elsewhere_comes_from_the_archive(docker: Nodes) -> None:
    path = docker_archive(docker, "gateway", "1" * 64)
    assert docker.run("cluster", "load", "gateway").returncode == 0
    assert f"load --quiet --input {path}" in docker.calls("docker")


def test_an_archive_of_buildah_is_loaded_only_where_a_node_lacks_its_content(docker: Nodes) -> None:
    path = oci_archive(docker, "gateway", "2" * 64)
    assert docker.run("cluster", "load", "gateway").stderr == "==> Loaded gateway\n"
    assert f"load image-archive {path} --name mcp-exec" in docker.calls("kind")
    in_node(docker, gateway="2" * 64)
    assert docker.run("cluster", "load", "gateway").stderr == ""
    assert len([call for call in docker.calls("kind") if "image-archive" in call]) == 1


def test_a_node_that_does_not_run_makes_loading_fail_with_kinds_reason(docker: Nodes) -> None:
    oci_archive(docker, "gateway", "2" * 64)
    docker.stand_in(
        "kind", 'case $1 in get) echo worker;; load) echo "ERROR: container worker is not running" >&2; exit 1;; esac'
    )
    assert (
        "into the nodes of mcp-exec: ERROR: container worker is not running"
        in docker.run("cluster", "load", "gateway").stderr
    )
