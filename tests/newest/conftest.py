"""The server, once for the whole run, with the CRDs of this checkout."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mcp_exec_api.crd import definitions
from tests.newest.server import eventually, serving

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    binary = os.environ.get("APIEXTENSIONS_APISERVER")
    if not binary:
        pytest.exit("APIEXTENSIONS_APISERVER must name the server's executable; `make newest` does that", returncode=2)
    with serving(Path(binary), tmp_path_factory.mktemp("server")) as client:
        for crd in definitions().values():
            answer = client.post(DEFINITIONS, json=crd)
            assert answer.status_code == httpx.codes.CREATED, answer.text
        eventually(lambda: _conditions(client) >= {"Established"}, what="the CRDs are established")
        yield client


def _conditions(client: httpx.Client) -> set[str]:
    """The conditions that are true of each CRD."""
    items: list[dict[str, Any]] = client.get(DEFINITIONS).json()["items"]
    conditions = [item["status"].get("conditions") or [] for item in items]
    found = [{each["type"] for each in of_one if each["status"] == "True"} for of_one in conditions]
    return set.intersection(*found)
