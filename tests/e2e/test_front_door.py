"""nginx in front of the gateway of a real cluster, with the configuration of docs/platform/expose.md."""

import ssl
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.support import ROOT, Gateway
from tests.e2e.test_gateway import read_events, text_of
from tests.support.certificates import certificates_for
from tests.support.front_doors import running_door
from tests.support.pace import paced

CODE = """
import threading
print("begun", flush=True)
threading.Event().wait(15)
print("done")
"""


@pytest.fixture
def door(url: str, gateway: Gateway, tmp_path: Path) -> Iterator[Gateway]:
    """The gateway behind nginx."""
    command = [ROOT / "hack/tools", "nginx"]
    programs = subprocess.run(command, capture_output=True, text=True, timeout=paced(600), check=False)
    if programs.returncode:
        pytest.skip(programs.stderr.splitlines()[-1])
    authority, certificate = certificates_for("127.0.0.1")
    address = url.removeprefix("http://")
    with (
        running_door(
            "nginx", tmp_path / "nginx", gateways=[address], certificate=certificate, programs=programs.stdout.strip()
        ) as made,
        httpx.Client(
            base_url=made.url, headers={"Authorization": gateway.client.headers["Authorization"]}, timeout=paced(120),
            verify=ssl.create_default_context(cadata=authority), trust_env=False, http2=True,
        ) as client,
    ):  # fmt: skip
        yield Gateway(client=client)


def test_runs_streams_and_files_pass_nginx_with_tls(door: Gateway) -> None:
    assert door.run("1 + 1")["output"]["result"] == 2
    link = door.client.post("/v1/executions", params={"wait": "0"}, json={"code": CODE}).headers["location"]
    with door.client.stream("GET", f"{link}/events") as response:
        assert response.http_version == "HTTP/2"
        events = read_events(response.iter_lines())
        assert next(event for event in events if "begun" in text_of([event]))
        assert door.client.get(link).json()["phase"] == "Running"
        rest = list(events)
    assert (text_of(rest), rest[-1][2]["phase"]) == ("done\n", "Succeeded")
    workspace = f"/v1/workspaces/front-{uuid.uuid4().hex[:8]}"
    content = bytes(range(256)) * 3 * 4096
    assert door.client.put(f"{workspace}/files/large.bin", content=content).status_code == 200
    assert door.client.get(f"{workspace}/files/large.bin").content == content
    assert door.client.delete(workspace).status_code == 204
