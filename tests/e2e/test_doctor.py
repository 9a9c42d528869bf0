"""`mcp-exec doctor` of a release whose operator, broker or both are scaled to 0, with and without the gateway."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.support import NAMESPACE, SYSTEM, Cluster
from tests.support.pace import paced
from tests.support.until import eventually

pytestmark = pytest.mark.timeout(600)
SECONDS = paced(120)


def doctor(cluster: Cluster, *arguments: str) -> tuple[int, list[str]]:
    """Return the exit code of the command, and its lines."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mcp_exec_client", "doctor", "--kubeconfig", str(cluster.kubeconfig),
         "-n", NAMESPACE, *arguments],
        env={**os.environ, "KUBECONFIG": "/nonexistent"}, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


@contextmanager
def scaled_down(cluster: Cluster, *components: str) -> Iterator[None]:
    """Scale Deployments to 0, and afterwards to what they had."""
    names = [f"mcp-exec-{component}" for component in components]
    before = {name: cluster.get("Deployment", name, namespace=SYSTEM)["spec"]["replicas"] for name in names}

    def scale(name: str, replicas: int) -> None:
        cluster.merge("Deployment", name, {"spec": {"replicas": replicas}}, namespace=SYSTEM)

    try:
        for name in names:
            scale(name, 0)
        for component in components:
            selector = f"app.kubernetes.io/component={component}"
            eventually(
                lambda selector=selector: not cluster.names("Pod", namespace=SYSTEM, labels=selector),  # type: ignore[misc]
                seconds=120,
                what=f"no pod has {selector}",
            )
        yield
    finally:
        for name, replicas in before.items():
            scale(name, replicas)
        for name in names:
            cluster.rolled_out(name, namespace=SYSTEM, seconds=180)


@pytest.mark.parametrize("with_gateway", [False, True], ids=["kubeconfig", "kubeconfig and gateway"])
@pytest.mark.parametrize("stopped", [("operator",), ("broker",), ("operator", "broker")], ids="+".join)
def test_what_does_not_run_is_named_with_its_cause(
    installed: Cluster, url: str, api_key: str, stopped: tuple[str, ...], with_gateway: bool, tmp_path: Path
) -> None:
    access = ("--gateway", url, "--api-key", api_key) if with_gateway else ()
    bundle = tmp_path / "bundle.tar.gz"
    with scaled_down(installed, *stopped):
        code, lines = doctor(installed, *access, "--bundle", str(bundle))
    assert code == 1, lines
    found = [line.split(maxsplit=1)[1] for line in lines if line.startswith("problem") and " pods: " in line]
    assert [line.partition(" pods: ")[0] for line in found] == list(stopped)
    assert all("is scaled to 0 replicas -> kubectl scale deployment" in line for line in found)
    if with_gateway:
        assert any(line.startswith("skipped  trial run") for line in lines) == ("operator" in stopped)
    assert bundle.stat().st_size > 0
    code, lines = doctor(installed, *access)
    assert code == 0, lines
