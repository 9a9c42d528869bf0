"""Connections of the broker in a company's network: servers with certificates of the company's own authority."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.component.broker.conftest import running
from tests.component.broker.files_client import FakeSandbox, files_grant
from tests.component.broker.test_records import EXECUTION, build_client
from tests.support.api_server import FakeApiServer
from tests.support.certificates import certificates_for, server_tls
from tests.support.postgres import Postgres, find_programs
from tests.support.relay import relaying
from tests.support.s3_server import running_s3
from yarl import URL

from mcp_exec_common.broker.records import RecordsError

HOST = "localhost"


@dataclass(frozen=True)
class Company:
    """An authority of a company, and the certificate of its servers."""

    folder: Path
    authority: str
    certificate: str

    @property
    def bundle(self) -> Path:
        return self.folder / "ca.crt"

    @asynccontextmanager
    async def tls(self, url: str) -> AsyncIterator[str]:
        """Serve a URL of this machine with TLS, and yield its other URL."""

        async def pass_on(data: bytes, is_answer: bool) -> bool:
            return True

        plain = URL(url)
        assert plain.port is not None
        async with relaying(plain.port, pass_on, tls=server_tls(self.certificate, self.folder)) as port:
            yield str(plain.with_scheme("https").with_host(HOST).with_port(port))


@pytest.fixture
def company(tmp_path: Path) -> Company:
    made = Company(tmp_path, *certificates_for(HOST))
    made.bundle.write_text(made.authority)
    return made


@pytest.mark.parametrize("trusted", [True, False], ids=["with the bundle", "without it"])
async def test_a_database_that_has_to_prove_itself_does_so_by_the_bundle(
    api: FakeApiServer, tmp_path: Path, company: Company, trusted: bool
) -> None:
    if find_programs() is None:
        pytest.skip("needs PostgreSQL of Debian: install the package postgresql")
    async with Postgres.running(certificate=company.certificate) as server:
        (url := tmp_path / "url").write_text(server.url.replace("127.0.0.1", HOST) + "?ssl=verify-full")
        bundle = {"ca_bundle": company.bundle} if trusted else {}
        async with running(api, tmp_path, records_database_file=url, **bundle) as world:
            if trusted:
                assert (await build_client(world).add({"executions": [EXECUTION]})).stored == 1
            else:
                with pytest.raises(RecordsError):
                    await build_client(world).add({"executions": [EXECUTION]})


async def test_a_bucket_proves_itself_by_the_bundle(api: FakeApiServer, tmp_path: Path, company: Company) -> None:
    with running_s3() as s3:
        async with company.tls(s3.url) as url:
            settings = s3.settings(tmp_path) | {"files_endpoint": url.rstrip("/"), "ca_bundle": company.bundle}
            async with running(api, tmp_path, **settings) as world:
                sandbox = FakeSandbox(world, files_grant())
                assert (await sandbox.save({"a.txt": b"one"}))["version"] == 1
                assert (await sandbox.fetch())[1] == {"a.txt": b"one"}
