"""The server, once for the whole run, with the CRDs of this checkout."""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.newest.server import define, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    binary = os.environ.get("APIEXTENSIONS_APISERVER")
    if not binary:
        pytest.exit("APIEXTENSIONS_APISERVER must name the server's executable; `make newest` does that", returncode=2)
    with serving(Path(binary), tmp_path_factory.mktemp("server")) as client:
        define(client)
        yield client
