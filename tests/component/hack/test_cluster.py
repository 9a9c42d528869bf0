"""hack/cluster: the choice of the cluster, and the commands that it runs."""

import pytest
from tests.component.hack.shims import UBUNTU, Machine, Nodes, refusal


def test_kind_is_chosen_where_docker_runs(docker: Nodes) -> None:
    assert docker.run("cluster", "kind-of").stdout == "kind\n"


def test_a_cluster_that_up_made_is_kept_until_down(docker: Nodes) -> None:
    assert docker.run("cluster", "up").returncode == 0
    docker.engine(memory=1 << 30)
    assert docker.run("cluster", "kind-of").stdout == "kind\n"
    assert docker.run("cluster", "down").returncode == 0
    assert docker.run("cluster", "kind-of").stdout == "devcluster\n"


def test_another_choice_does_not_forget_a_cluster_that_up_made(docker: Nodes) -> None:
    assert docker.run("cluster", "up").returncode == 0
    docker.stand_in("kubectl")
    said = refusal(docker.run("cluster", "up", CLUSTER="existing", KUBECONFIG="/named", IMAGES_LOADED="yes"))
    assert "has a cluster of kind: run `make down` first, or unset CLUSTER" in said


def test_a_release_on_an_existing_cluster_is_not_left_without_a_word(docker: Nodes) -> None:
    named = {"CLUSTER": "existing", "KUBECONFIG": "/named", "IMAGES_LOADED": "yes"}
    assert docker.run("cluster", "up", **named).returncode == 0
    done = docker.run("cluster", "up", CLUSTER="kind")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        0, "==> The release mcp-exec on the existing cluster stays, and `make down` will not remove it",
    )  # fmt: skip


def test_devcluster_is_chosen_for_root_on_debian(machine: Machine) -> None:
    assert machine.run("cluster", "kind-of").stdout == "devcluster\n"


def test_a_machine_with_neither_is_told_in_one_sentence_what_to_install(machine: Machine) -> None:
    machine.release(UBUNTU)
    said = refusal(machine.run("cluster", "kind-of"))
    assert "there is no Docker: install it" in said
    assert "devcluster needs Debian 12" in said
    assert "CLUSTER=existing KUBECONFIG=FILE" in said


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("kind", "CLUSTER=kind can't be used: there is no Docker"),
        ("existing", "needs KUBECONFIG=FILE"),
        ("minikube", "CLUSTER must be kind, devcluster or existing, not minikube"),
    ],
)
def test_a_choice_that_cannot_be_honoured_is_refused(machine: Machine, chosen: str, said: str) -> None:
    assert said in refusal(machine.run("cluster", "up", CLUSTER=chosen))


def test_a_chosen_devcluster_says_why_it_cannot_run_here(machine: Machine) -> None:
    machine.release(UBUNTU)
    assert "needs Debian 12" in refusal(machine.run("cluster", "kind-of", CLUSTER="devcluster"))


def test_without_a_cluster_there_is_no_kubeconfig_and_nothing_to_remove(machine: Machine) -> None:
    assert "run `make up`" in refusal(machine.run("cluster", "kubeconfig"))
    assert machine.run("cluster", "down").returncode == 0


@pytest.mark.parametrize("arguments", [(), ("restart",), ("up", "now")])
def test_unknown_commands_and_arguments_are_refused(machine: Machine, arguments: tuple[str, ...]) -> None:
    assert machine.run("cluster", *arguments).returncode in (1, 2)
