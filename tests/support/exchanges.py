"""Recorded HTTP exchanges of the protocol of sandboxes: recorded, answered, sent again and compared."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from mcp_exec_common.peers import PROOF_PATH, compute_proof

Object = dict[str, Any]
_KEPT = ("content-type", "if-none-match", "mcp-exec-execution", "mcp-exec-protocol", "etag")
_VOLATILE = frozenset(
    {"at", "ms", "runMs", "cleanMs", "cpuSeconds", "peakMemoryBytes", "memoryBytes", "message", "traceback", "id"}
    | {"argumentBytes", "bytes", "expires", "python", "libraries", "seconds", "line", "protocols", "modified"}
)
"""Fields whose values differ between two runs. Their types may not."""


@dataclass
class Names:
    """Texts of one run, such as URLs and tokens, and what stands for them in recorded exchanges."""

    texts: dict[str, str] = field(default_factory=dict)

    def hide(self, data: bytes) -> bytes:
        """Replace the texts of this run."""
        for name, text in self.texts.items():
            data = data.replace(text.encode(), name.encode())
        return data

    def show(self, data: bytes) -> bytes:
        """Put the texts of this run in."""
        for name, text in self.texts.items():
            data = data.replace(name.encode(), text.encode())
        return data


def _store(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _load(stored: Any) -> bytes:
    return stored.encode() if isinstance(stored, str) else base64.b64decode(stored["base64"])


@asynccontextmanager
async def _serving(handler: Any) -> AsyncIterator[str]:
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def recording(target: str, peer: str, exchanges: list[Object], names: Names) -> AsyncIterator[str]:
    """Pass requests on to a server, and record them with their answers. `peer` names the server in the record."""

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        kept = {name.lower(): value for name, value in request.headers.items() if name.lower() in _KEPT}
        exchange: Object = {"peer": peer, "method": request.method, "path": request.path_qs, "headers": kept}
        if request.path != PROOF_PATH:
            for other in under_way:
                other["stays"] = exchange["meanwhile"] = True
            exchanges.append(exchange)
            under_way.append(exchange)
        sent = {
            name: value for name, value in request.headers.items() if name.lower() not in ("host", "content-length")
        }
        async with session.request(request.method, target + request.path_qs, data=body, headers=sent) as found:
            response = web.StreamResponse(status=found.status)
            answer_headers = {name.lower(): value for name, value in found.headers.items() if name.lower() in _KEPT}
            response.headers.update(answer_headers)
            if request.path == PROOF_PATH:
                response.content_length = found.content_length
            await response.prepare(request)
            answer = bytearray()
            async for data in found.content.iter_any():
                answer += data
                await response.write(data)
        hidden = {name: names.hide(value.encode()).decode() for name, value in answer_headers.items()}
        exchange |= {"body": _store(names.hide(body)), "status": found.status, "answerHeaders": hidden}
        exchange["answer"] = _store(names.hide(bytes(answer)))
        if exchange in under_way:
            under_way.remove(exchange)
        return response

    under_way: list[Object] = []
    async with aiohttp.ClientSession(auto_decompress=False) as session, _serving(handle) as url:
        yield url


@dataclass
class Replay:
    """Answers requests as a recorded peer did, once each, and keeps what was asked otherwise than in the record."""

    exchanges: list[Object]
    names: Names
    proof_key: str = ""
    differences: list[str] = field(default_factory=list)
    url: str = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Replay"]:
        """Serve at a port of its own."""
        left = list(self.exchanges)

        async def handle(request: web.Request) -> web.StreamResponse:
            if request.path == PROOF_PATH:
                proof = compute_proof(key=self.proof_key, nonce=request.query["nonce"], address="127.0.0.1")
                return web.json_response({"proof": proof, "address": "127.0.0.1"})
            body = self.names.hide(await request.read())
            asked = request.method, request.path_qs
            found = next((each for each in left if (each["method"], each["path"]) == asked), None)
            if found is None:
                self.differences.append(f"{asked} is not in the record, or more often than there")
                return web.Response(status=404)
            left.remove(found)
            self.differences += [f"{asked}: {each}" for each in compare(_load(found["body"]), body)]
            answer = self.names.show(_load(found["answer"]))
            return web.Response(status=found["status"], body=answer, headers=found["answerHeaders"])

        async with _serving(handle) as self.url:
            yield self
        self.differences += [f"{each['method']} {each['path']} was not asked" for each in left]


async def send_again(
    exchanges: list[Object], *, urls: dict[str, str], find_token: Callable[[Object], str], names: Names
) -> list[str]:
    """Send recorded requests in their order, and return how the answers differ from the recorded ones.

    A stream stays open while the next requests are sent, like that of its recorded sender.
    """
    differences: list[str] = []
    async with aiohttp.ClientSession(auto_decompress=False) as session, asyncio.TaskGroup() as group:
        open_streams: list[asyncio.Task[None]] = []
        for exchange in exchanges:
            begun = asyncio.Event()
            if open_streams and "meanwhile" not in exchange:
                await asyncio.wait(open_streams)

            async def send(exchange: Object = exchange, begun: asyncio.Event = begun) -> None:
                url = urls[exchange["peer"]] + exchange["path"]
                headers = {name: names.show(value.encode()).decode() for name, value in exchange["headers"].items()}
                body = names.show(_load(exchange["body"]))
                headers["authorization"] = f"Bearer {find_token(exchange)}"
                async with session.request(exchange["method"], url, data=body, headers=headers) as response:
                    answer = bytearray()
                    async for data in response.content.iter_any():
                        answer += data
                        if "stays" in exchange and b'"stdout"' in answer:
                            begun.set()
                begun.set()
                about = f"{exchange['method']} {exchange['path']}"
                if response.status != exchange["status"]:
                    differences.append(f"{about}: {response.status} {bytes(answer[:300])!r}")
                    return
                recorded = _load(exchange["answer"])
                differences.extend(f"{about}: {each}" for each in compare(recorded, names.hide(bytes(answer))))
                names.texts |= dict(_find_ids(recorded, bytes(answer)))

            open_streams.append(group.create_task(send()))
            await begun.wait()
    return differences


def _find_ids(recorded: bytes, answer: bytes) -> Iterator[tuple[str, str]]:
    """Yield the recorded id of a workspace and that of this run, which later requests name."""
    one, other = _parse(recorded), _parse(answer)
    if isinstance(one, dict) and isinstance(other, dict) and isinstance(one.get("id"), str) and len(one["id"]) > 8:
        yield one["id"], other["id"]


def _parse(data: bytes) -> Any:
    try:
        lines = [json.loads(line) for line in data.splitlines()]
    except ValueError:
        return data
    return lines[0] if len(lines) == 1 else lines


def compare(recorded: bytes, now: bytes) -> list[str]:
    """Return how a message differs from the recorded one, as far as its reader of that release would notice."""
    return list(_compare(_parse(recorded), _parse(now), ""))


def _compare(recorded: Any, now: Any, path: str) -> Iterator[str]:
    volatile = path.rpartition(".")[2] in _VOLATILE
    if isinstance(recorded, dict) and isinstance(now, dict):
        for name in sorted(recorded.keys() - now.keys()):
            yield f"{path}.{name} is missing"
        for name in sorted(recorded.keys() & now.keys()):
            yield from _compare(recorded[name], now[name], f"{path}.{name}")
    elif isinstance(recorded, list) and isinstance(now, list):
        if [_kind(each) for each in recorded] != [_kind(each) for each in now] and not volatile:
            yield f"{path}: {[_kind(each) for each in now]} instead of {[_kind(each) for each in recorded]}"
            return
        for number, (one, other) in enumerate(zip(recorded, now, strict=False)):
            yield from _compare(one, other, f"{path}[{number}]")
    elif isinstance(recorded, bytes) or isinstance(now, bytes):
        if type(recorded) is not type(now):
            yield f"{path}: a body of another kind"
    elif recorded != now and not (volatile and _is_number(recorded) == _is_number(now)):
        yield f"{path}: {str(now)[:200]!r} instead of {str(recorded)[:200]!r}"


def _kind(value: Any) -> str:
    return str(value.get("type", "")) if isinstance(value, dict) else type(value).__name__


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
