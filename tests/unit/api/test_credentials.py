"""Credentials of a process at the API server."""

from pathlib import Path

import pytest

from mcp_exec_common.kube.credentials import CredentialsError, KubeCredentials

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: b, user: {token: secret}}]
contexts: [{name: c, context: {cluster: a, user: b}}]
current-context: c
"""


async def test_a_pod_sends_its_service_accounts_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = KubeCredentials.from_service_account(folder=tmp_path, environment=environment)
    assert found.server == "https://[fd00::1]:443"
    assert found.ca_file == str(tmp_path / "ca.crt")
    assert await found.authorization() == "Bearer abc"


def test_outside_of_a_pod_a_kubeconfig_is_required(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="kubeconfig"):
        KubeCredentials.from_service_account(folder=tmp_path, environment={})


async def test_a_kubeconfigs_current_context_is_used(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    found = await KubeCredentials.load(path)
    assert (found.server, found.verify) == ("https://127.0.0.1:6443", False)
    assert await found.authorization() == "Bearer secret"
    assert not found.build_tls_context().check_hostname


async def test_an_invalid_kubeconfig_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("kind: Config\n")
    with pytest.raises(CredentialsError, match=str(path)):
        await KubeCredentials.load(path)


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("https://10.96.0.1", "10.96.0.1:443"),
        ("https://[fd00::1]:6443", "[fd00::1]:6443"),
        ("https://127.0.0.1:6443", ""),
        ("", ""),
    ],
)
def test_the_servers_address_is_known_if_it_means_the_same_machine_everywhere(server: str, address: str) -> None:
    assert KubeCredentials(server=server).address() == address
