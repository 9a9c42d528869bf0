"""What lasts, through the gateway: a figure for an MCP client, a session by its argument, files by the command line."""

import asyncio
import base64
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_gateway.features.files.artifacts import ArtifactAddress, LinkSigner
from tests.e2e.support import NAMESPACE, RELEASE, SYSTEM, Cluster

pytestmark = pytest.mark.timeout(300)
FIGURE = """
import pathlib, struct, zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

size = 32
rows = b"".join(b"\\0" + bytes((255 * (x > 32 - y) for x in range(size))) for y in range(size))
header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
show(png, "triangle.png", title="A triangle", media_type="image/png")
pathlib.Path("artifacts").mkdir(exist_ok=True)
pathlib.Path("artifacts/page.html").write_text("<script>alert(document.domain)</script>")
len(png)
"""


@pytest.fixture
def release_key(installed: Cluster) -> bytes:
    secret = installed.get("Secret", f"{RELEASE}-sandbox-key", namespace=SYSTEM)
    return base64.b64decode(secret["data"]["key"]).strip()


def test_a_figure_is_shown_to_an_mcp_client_and_its_link_expires(
    installed: Cluster, url: str, api_key: str, pool: str, release_key: bytes
) -> None:
    async def use() -> tuple[Any, Any, Any]:
        headers = {"Authorization": f"Bearer {api_key}"}
        async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(60), trust_env=False) as http:
            transport = streamable_http_client(f"{url}/mcp?pool={pool}", http_client=http)
            async with Client(transport) as client:
                session = f"figures-{pool}"
                first = await client.call_tool("run_code", {"code": FIGURE, "session": session})
                second = await client.call_tool("run_code", {"code": "len(png)", "session": session})
                written = {"workspace": f"notes-{pool}", "path": "a/b.txt"}
                await client.call_tool("write_file", {**written, "content": "from the model"})
                return first, second, await client.call_tool("read_file", written)

    figure, later, read = asyncio.run(use())
    assert not figure.is_error, figure.content
    assert later.structured_content["result"] == figure.structured_content["result"], later.structured_content
    assert read.content[0].text == "from the model"
    (image,) = [each for each in figure.content if each.type == "image"]
    content = base64.b64decode(image.data)
    assert (image.mime_type, len(content)) == ("image/png", figure.structured_content["result"])
    links = {each.name.rpartition("/")[2]: each for each in figure.content if each.type == "resource_link"}
    assert links.keys() == {"triangle.png", "page.html"}
    shown = httpx.get(str(links["triangle.png"].uri), trust_env=False)
    assert (shown.status_code, shown.content, shown.headers["Content-Type"]) == (200, content, "image/png")
    page = httpx.get(str(links["page.html"].uri), trust_env=False)
    assert page.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    name = figure.structured_content["execution"]
    uid = installed.get("CodeExecution", name)["metadata"]["uid"]
    artifact = figure.structured_content["artifacts"][0]["id"]
    address = ArtifactAddress(namespace=NAMESPACE, execution=name, uid=uid, id=artifact)
    for seconds, status in ((60, 200), (-1, 410)):
        path, _ = LinkSigner(keys=SandboxKeys(release_key)).build_path(address, seconds=seconds)
        assert httpx.get(url + path, trust_env=False).status_code == status
    sessions = httpx.get(f"{url}/v1/sessions", headers={"Authorization": f"Bearer {api_key}"}, trust_env=False).json()
    assert f"figures-{pool}" in [each["name"] for each in sessions["items"]]
    ended = httpx.delete(
        f"{url}/v1/sessions/figures-{pool}", headers={"Authorization": f"Bearer {api_key}"}, trust_env=False
    )
    assert ended.status_code == 204
