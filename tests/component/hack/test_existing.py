"""hack/providers/existing.sh: what a cluster that somebody else made needs, and the images on its nodes."""

from pathlib import Path

import pytest
from tests.component.hack.shims import Machine, refusal

EXISTING = {"CLUSTER": "existing", "KUBECONFIG": "/named", "IMAGE_REPOSITORY": "registry.example/team"}
LOADED = {"CLUSTER": "existing", "KUBECONFIG": "/named", "IMAGES_LOADED": "yes"}


@pytest.fixture
def cluster(machine: Machine) -> Machine:
    """Machine with a cluster of two nodes. Files of the folder are what a check finds, and what pods run."""
    (machine.checkout / "hack/images").write_text("#!/bin/bash\nprintf 'gateway 01\\nbroker 02\\n'\n")
    (machine.folder / "found").write_text(
        "a gateway 01 sha256:aa\na broker 02 sha256:bb\nb gateway 01 sha256:aa\nb broker 02 sha256:bb\n"
    )
    (machine.folder / "running").touch()
    machine.stand_in(
        "kubectl",
        f'case "$*" in *"config view --minify"*) echo "for $KUBECONFIG";; *"config view"*) echo https://192.0.2.1;; '
        f'*readyz*) [ ! -e $HOME/unready ];; *"can-i create"*) [ ! -e $HOME/refused ];; '
        '*"get nodes"*) echo a b;; '
        f'*"get pods --namespace default"*) cat {machine.folder}/found;; *create*) cat >> {machine.folder}/pods;; '
        f'*"get pods --all-namespaces"*) cat {machine.folder}/running;; esac',
    )
    return machine


def test_all_that_an_existing_cluster_needs_is_said_at_once(machine: Machine) -> None:
    said = refusal(machine.run("cluster", "up", CLUSTER="existing"))
    assert "needs KUBECONFIG=FILE and its images" in said
    assert "`make push IMAGE_REPOSITORY=REPOSITORY`" in said
    assert "IMAGES_LOADED=yes" in said


def test_it_is_used_by_the_kubeconfig_that_is_named(cluster: Machine) -> None:
    done = cluster.run("cluster", "up", **EXISTING)
    assert done.returncode == 0, done.stderr
    assert "needs a network plugin that enforces NetworkPolicies" in done.stderr
    assert (cluster.checkout / ".cache/kubeconfig").read_text() == "for /named\n"
    assert cluster.run("cluster", "kubeconfig").stdout.strip() == str(cluster.checkout / ".cache/kubeconfig")


def test_after_up_its_kubeconfig_need_not_be_named_again(cluster: Machine) -> None:
    cluster.run("cluster", "up", **EXISTING)
    assert cluster.run("cluster", "kind-of", IMAGE_REPOSITORY="registry.example/team").stdout == "existing\n"
    assert "needs its images" in refusal(cluster.run("cluster", "kind-of"))


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("unready", "the API server at https://192.0.2.1 is not ready or not reachable: check KUBECONFIG, and"),
        ("refused", "may not create customresourcedefinitions, namespaces, clusterroles, clusterrolebindings: use a"),
    ],
)  # fmt: skip
def test_a_cluster_that_cannot_take_the_release_is_refused_before_anything_changes(
    cluster: Machine, file: str, said: str
) -> None:
    (cluster.folder / "home" / file).touch()
    assert said in refusal(cluster.run("cluster", "up", **EXISTING, HTTPS_PROXY="http://proxy:1"))
    assert not (cluster.checkout / ".cache/cluster").exists()


def test_down_uninstalls_the_release_and_no_more(cluster: Machine) -> None:
    cluster.stand_in("helm", "echo v3.6.2")
    cluster.run("cluster", "up", **EXISTING)
    assert cluster.run("cluster", "down").returncode == 0
    assert any("uninstall mcp-exec --namespace mcp-exec-system" in call for call in cluster.calls("helm"))
    assert not any("delete" in call for call in cluster.calls("kubectl"))


def test_a_release_that_was_there_before_is_named_and_stays(cluster: Machine) -> None:
    cluster.stand_in("helm", "echo v3.6.2")
    path = cluster.folder / "bin/kubectl"
    path.write_text(path.read_text().replace('case "$*" in', 'case "$*" in *"get secrets"*) echo secret/x;;'))
    assert "a release mcp-exec that this checkout did not install" in cluster.run("cluster", "up", **EXISTING).stderr
    done = cluster.run("cluster", "down")
    assert (done.returncode, cluster.calls("helm")) == (0, [])
    assert "stays, because it was there before: `helm uninstall" in done.stderr
    assert not list((cluster.checkout / ".cache").glob("cluster*"))


def test_images_of_a_registry_must_be_pushed_from_these_sources(cluster: Machine) -> None:
    said = refusal(cluster.run("cluster", "load", **EXISTING))
    assert "run `make push IMAGE_REPOSITORY=registry.example/team`" in said
    assert not any("create" in call for call in cluster.calls("kubectl"))


def test_images_that_were_loaded_are_checked_on_each_node_by_a_pod(cluster: Machine) -> None:
    done = cluster.run("cluster", "load", "gateway", "broker", **LOADED)
    assert done.returncode == 0, done.stderr
    pods = (cluster.folder / "pods").read_text()
    assert [line.split()[1] for line in pods.splitlines() if "nodeName" in line] == ["a", "b"]
    assert pods.count("image: localhost/mcp-exec-gateway:dev") == 2
    assert "mcp-exec-image-check" in [call for call in cluster.calls("kubectl") if "delete pods" in call][-1]


@pytest.mark.parametrize("found", ["00", "ErrImageNeverPull", "unknown"])
def test_an_image_that_a_node_lacks_or_has_from_older_sources_is_named(cluster: Machine, found: str) -> None:
    path: Path = cluster.folder / "found"
    path.write_text(path.read_text().replace("b broker 02", f"b broker {found}"))
    done = cluster.run("cluster", "load", "gateway", "broker", **LOADED)
    assert "(broker on b): run `make images`, load .cache/images/*.tar into all nodes" in done.stderr.splitlines()[-1]


def test_pods_that_run_an_older_image_of_the_same_tag_are_restarted(cluster: Machine) -> None:
    (cluster.folder / "running").write_text(
        "localhost/mcp-exec-gateway:dev docker.io/library/import@sha256:00\nlocalhost/mcp-exec-broker:dev sha256:bb\n"
    )
    done = cluster.run("cluster", "load", "gateway", "broker", **LOADED)
    assert done.returncode == 0, done.stderr
    restarted = [call for call in cluster.calls("kubectl") if "rollout restart" in call]
    assert ["component=gateway" in call for call in restarted] == [True]
