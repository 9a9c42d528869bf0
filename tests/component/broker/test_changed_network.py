"""The company's network changes while the broker works: its authority, and the credentials of its proxy."""

import asyncio
from pathlib import Path

import pytest
from tests.component.broker.conftest import World, running
from tests.component.broker.files_client import FakeSandbox, files_grant
from tests.component.broker.servers import serving, toolbox
from tests.component.broker.test_company_network import HOST, MCP, Company, name_bundle
from tests.component.broker.test_records import EXECUTION, build_client
from tests.support.api_server import FakeApiServer
from tests.support.certificates import certificates_for
from tests.support.forward_proxy import PROGRAM, running_proxy
from tests.support.mounts import write_version
from tests.support.postgres import Postgres, find_programs
from tests.support.s3_server import running_s3
from tests.support.until import until

from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_common.broker.records import RecordsError
from mcp_exec_common.process.mounts import MountedFolder


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MountedFolder, "CHECK_SECONDS", 0.01)


@pytest.fixture
def former(tmp_path: Path) -> Company:
    return found_company(tmp_path / "former")


@pytest.fixture
def company(tmp_path: Path) -> Company:
    return found_company(tmp_path / "present")


def found_company(folder: Path) -> Company:
    folder.mkdir()
    return Company(folder, *certificates_for(HOST, MCP))


def mount_bundle(folder: Path, text: str) -> Path:
    """Let the mounted bundle have this text, and return its path."""
    (made := folder / "bundle").mkdir(exist_ok=True)
    write_version(made, {"ca.crt": text.encode()})
    return made / "ca.crt"


async def use_bundle(world: World, folder: Path, text: str) -> None:
    """Change the mounted bundle, and wait until the broker uses it."""
    network = world.broker.network
    context = network.tls
    mount_bundle(folder, text)
    await until(lambda: network.tls is not context)


async def test_a_changed_bundle_is_used_for_new_connections_and_open_ones_go_on(
    api: FakeApiServer, tmp_path: Path, former: Company, company: Company
) -> None:
    async with (
        running(api, tmp_path, ca_bundle=mount_bundle(tmp_path, former.authority)) as world,
        serving(toolbox()) as box,
        former.tls(box.url) as old_url,
        company.tls(box.url) as new_url,
    ):
        world.add("old", url=old_url)
        world.add("new", url=new_url)
        await world.listed("old")
        await until(lambda: world.status("new").get("reason") == "TLSFailed")
        call = asyncio.create_task(world.call("old.hang"))
        await box.entered.wait()
        await use_bundle(world, tmp_path, company.authority)
        world.add("later", url=old_url)
        world.add("new", url=new_url)  # changed, so that it is tried at once
        await world.listed("new")
        assert (await world.call("new.add", a=1, b=2))["value"] == 3
        await until(lambda: world.status("later").get("reason") == "TLSFailed")
        box.release.set()
        assert (await call)["value"] == "released"


async def test_a_server_with_a_bundle_of_its_own_is_verified_by_the_changed_one_of_the_installation(
    api: FakeApiServer, tmp_path: Path, former: Company, company: Company
) -> None:
    async with (
        running(api, tmp_path, ca_bundle=mount_bundle(tmp_path, former.authority)) as world,
        serving(toolbox()) as box,
        company.tls(box.url) as url,
    ):
        tls = name_bundle(world, "own", **{"ca.crt": found_company(tmp_path / "another").authority})
        world.add("box", url=url, tls=tls)
        await until(lambda: world.status("box").get("reason") == "TLSFailed")
        await use_bundle(world, tmp_path, company.authority)
        world.add("box", url=url, tls=tls)  # changed, so that it is tried at once
        await world.listed("box")


async def test_a_broken_bundle_is_logged_and_the_last_one_stays_in_use(
    api: FakeApiServer, tmp_path: Path, company: Company, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = mount_bundle(tmp_path, company.authority)
    async with (
        running(api, tmp_path, ca_bundle=bundle) as world,
        serving(toolbox()) as box,
        company.tls(box.url) as url,
    ):
        mount_bundle(tmp_path, "no PEM")
        said = f"{bundle.parent} can't be read, so its last content stays in use: ca.crt has no certificate in PEM"
        await until(lambda: any(said in each.getMessage() for each in caplog.records))
        world.add("box", url=url)
        await world.listed("box")


async def test_a_database_is_verified_by_the_changed_bundle(
    api: FakeApiServer, tmp_path: Path, former: Company, company: Company
) -> None:
    if find_programs() is None:
        pytest.skip("needs PostgreSQL of Debian: install the package postgresql")
    async with Postgres.running(certificate=company.certificate) as server:
        (url := tmp_path / "url").write_text(server.url.replace("127.0.0.1", HOST) + "?ssl=verify-full")
        bundle = mount_bundle(tmp_path, former.authority)
        async with running(api, tmp_path, records_database_file=url, ca_bundle=bundle) as world:
            with pytest.raises(RecordsError):
                await build_client(world).add({"executions": [EXECUTION]})
            await use_bundle(world, tmp_path, company.authority)
            assert (await build_client(world).add({"executions": [EXECUTION]})).stored == 1


async def test_a_bucket_is_verified_by_the_changed_bundle(
    api: FakeApiServer, tmp_path: Path, former: Company, company: Company
) -> None:
    with running_s3() as s3:
        async with company.tls(s3.url) as url:
            bundle = mount_bundle(tmp_path, former.authority)
            settings = s3.settings(tmp_path) | {"files_endpoint": url.rstrip("/"), "ca_bundle": bundle}
            async with running(api, tmp_path, **settings) as world:
                storage = world.broker.features["files"].store.storage
                with pytest.raises(FilesRefused):
                    await storage.read("a")
                await use_bundle(world, tmp_path, company.authority)
                sandbox = FakeSandbox(world, files_grant())
                assert (await sandbox.save({"a.txt": b"one"}))["version"] == 1


async def test_changed_credentials_of_the_proxy_are_used_for_the_next_connection(
    api: FakeApiServer, tmp_path: Path, company: Company
) -> None:
    if not PROGRAM.exists():
        pytest.skip("needs Squid of Debian: install the package squid")

    def mount_account(url: str) -> Path:
        (made := tmp_path / "proxy").mkdir(exist_ok=True)
        write_version(made, {name: url.encode() for name in ("http", "https")})
        return made

    async with running_proxy({MCP: "127.0.0.1"}) as proxy:
        bundle = mount_bundle(tmp_path, company.authority)
        folder = mount_account(proxy.url_with_credentials.replace("%401", "%402"))
        async with (
            running(api, tmp_path, proxy_folder=folder, ca_bundle=bundle) as world,
            serving(toolbox(), host="0.0.0.0") as box,
            company.tls(box.url, MCP) as url,
        ):
            world.add("box", url=url)
            await until(lambda: world.status("box").get("reason") == "ProxyFailed")
            mount_account(proxy.url_with_credentials)
            await until(lambda: proxy.url_with_credentials in world.broker.network.proxies.urls.values())
            world.add("box", url=url)  # changed, so that it is tried at once
            await world.listed("box")
            assert (await world.call("box.add", a=1, b=2))["value"] == 3
