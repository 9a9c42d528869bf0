"""Small Kubernetes client for the hot path: aiohttp, plain dicts, bounded retries.

The official client costs about half a millisecond more per call, most of it for building model objects.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final, Self

import aiohttp

from mcp_exec_api.constants import GROUP, VERSION
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.errors import AnswerTooLarge, ApiError, ApiUnreachable
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.pages import MAX_ANSWER_BYTES, ObjectReader, PageSize, TablePage, TableRow, name_cells
from mcp_exec_common.kube.parsing import parse
from mcp_exec_common.util.backoff import delays

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_RETRY_DELAYS: Final = tuple(delays(first=0.05, last=2.0, factor=3.0, attempts=6))
_MAX_RETRY_AFTER_SECONDS: Final = 5.0
_SILENCE_SECONDS: Final = 90.0
"""Longest time without data on a watch. After it the connection may be dead, so the watch is opened again."""
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_RETRYABLE: Final = frozenset({429, 500, 503, 504})
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
_METADATA: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
"""What a deletion asks for, as nobody reads the answer: a deleted pod has 8 kB otherwise."""
_FIRST_ROWS: Final = 100
_TABLE_SECONDS: Final = 2.0
"""Time until a page of a table is returned although it could have more rows."""
_YIELD_BYTES: Final = 256 * 1024
"""Characters of a page that are parsed before other tasks run: about a millisecond."""


def resource_path(
    resource: str, *, namespace: str | None = None, name: str | None = None, group: str | None = None
) -> str:
    """Return the path of a resource such as `pods`; `group` is an API group such as `networking.k8s.io/v1`.

    Raises ApiError (404) for a name that no object can have: names come from fields that tenants write, and one with
    `/` would lead to another object, `..` to another namespace.
    """
    for given in (namespace, name):
        if given is not None and not _OBJECT_NAME.fullmatch(given):
            raise ApiError(code=404, reason="NotFound", message=f"{resource}: {given[:80]!r} is no name of an object")
    root = f"/apis/{group}" if group else "/api/v1"
    parts = [root, *(["namespaces", namespace] if namespace else []), resource, *([name] if name else [])]
    return "/".join(parts)


def custom_resource_path(resource: str, *, namespace: str | None = None, name: str | None = None) -> str:
    """Return the path of one of mcp-exec's own resources."""
    return resource_path(resource, namespace=namespace, name=name, group=f"{GROUP}/{VERSION}")


@dataclass(frozen=True, kw_only=True)
class KubeClient:
    """Client of the API server. Every call is bounded in time and in retries.

    Watches have connections of their own: each lasts for minutes, and however many are open, no request waits for one.
    Whoever opens watches bounds their number.

    A request is sent again if the server was busy (429, 500, 503, 504) or no connection came up. Requests other than
    creations are also sent again if the response was lost: merge patches and deletions are idempotent.
    """

    session: aiohttp.ClientSession
    credentials: KubeCredentials
    watch_session: aiohttp.ClientSession | None = None
    """Session of the watches; None means `session`."""
    timeout_seconds: float = 10.0
    retry_delays: Sequence[float] = field(default=_RETRY_DELAYS)
    """Seconds before each further attempt; an empty sequence turns retries off."""

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, *, kubeconfig: Path | None = None, context: str | None = None, connections: int = 64
    ) -> AsyncIterator[Self]:
        """Connect with a kubeconfig file, or if there is none, with the pod's service account.

        `context` is a context of that file; None means its current one.

        At most `connections` requests, not counting watches, are sent at once; more wait.
        """
        credentials = await KubeCredentials.load(kubeconfig, context=context)
        tls = credentials.build_tls_context()
        # uncompressed: an answer's size is known while it is read, and the API server saves the time
        headers = [("Accept-Encoding", "identity"), *credentials.impersonation]

        def open_session(limit: int) -> aiohttp.ClientSession:
            connector = aiohttp.TCPConnector(limit=limit, ssl=tls, keepalive_timeout=60)
            return aiohttp.ClientSession(connector=connector, base_url=credentials.server, headers=headers)

        async with open_session(connections) as session, open_session(0) as watch_session:
            yield cls(session=session, credentials=credentials, watch_session=watch_session)

    async def get(self, path: str, **params: str) -> Object:
        """Return the object at a path."""
        return await self._request("GET", path, params=params)

    async def find(self, path: str) -> Object | None:
        """Return the object at a path, or None if it does not exist."""
        try:
            return await self._request("GET", path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def read_text(self, path: str, **params: str) -> str:
        """Return what is no object at a path, such as the log of a container."""
        return (await self._exchange("GET", path, params=params)).decode(errors="replace")

    async def list(
        self,
        path: str,
        *,
        selector: str = "",
        fields: str = "",
        chunk: int = 500,
        transform: Callable[[Object], Object] = lambda item: item,
    ) -> tuple[list[Object], str]:
        """Return all items at a path and the resource version to watch them from.

        `transform` reduces each item to what is needed before the next one is parsed.
        """
        items: list[Object] = []
        version = await self.scan(
            path, lambda item: items.append(transform(item)), selector=selector, fields=fields, chunk=chunk
        )
        return items, version

    async def scan(
        self, path: str, take: Callable[[Object], None], *, selector: str = "", fields: str = "", chunk: int = 500
    ) -> str:
        """Pass each item at a path to `take`, and return the resource version to watch them from.

        Only one item is parsed at a time, so that large items take no memory unless `take` keeps them. A page has at
        most `chunk` items. `selector` is a label selector, `fields` a field selector.
        """
        return await self._scan(
            path,
            lambda item, _: take(item),
            params=_selectors(selector, fields),
            chunk=chunk,
            accept="application/json",
        )

    async def scan_table(self, path: str, take: Callable[[TableRow], None], *, chunk: int = 100) -> str:
        """Pass metadata and printer columns of each item at a path to `take`, and return the resource version.

        The rest of the items, such as code and output, is not transferred.
        """
        return await self._scan(
            path,
            lambda row, page: take(name_cells(page["columnDefinitions"], row)),
            params={"includeObject": "Metadata"},
            chunk=chunk,
            accept=_TABLE,
        )

    async def get_table(self, path: str, *, limit: int, token: str | None = None, selector: str = "") -> TablePage:
        """Return metadata and printer columns of at most `limit` items at a path, fewer if they are large."""
        rows: list[TableRow] = []
        pages, began = PageSize(maximum=limit, objects=_FIRST_ROWS), monotonic()
        while True:
            count = min(pages.objects, limit - len(rows))
            params = {"limit": str(count), "includeObject": "Metadata", **_selectors(selector, "")}
            try:
                page = await self._read_page(
                    path,
                    lambda row, page: rows.append(name_cells(page["columnDefinitions"], row)),
                    params=params | ({"continue": token} if token else {}),
                    accept=_TABLE,
                    pages=pages,
                )
            except AnswerTooLarge:
                if not pages.shrink():
                    raise
                continue
            token = page["metadata"].get("continue") or None
            if token is None or len(rows) >= limit or monotonic() - began > _TABLE_SECONDS:
                return TablePage(rows=rows, token=token)

    async def _scan(
        self,
        path: str,
        take: Callable[[Object, Object], None],
        *,
        params: dict[str, str],
        chunk: int,
        accept: str,
    ) -> str:
        pages = PageSize(maximum=chunk)
        while True:
            try:
                page = await self._read_page(
                    path, take, params={**params, "limit": str(pages.objects)}, accept=accept, pages=pages
                )
            except AnswerTooLarge:
                if not pages.shrink():
                    raise
                continue
            if not (token := page["metadata"].get("continue")):
                return str(page["metadata"]["resourceVersion"])
            params = {**params, "continue": token}

    async def _read_page(
        self,
        path: str,
        take: Callable[[Object, Object], None],
        *,
        params: Mapping[str, str],
        accept: str,
        pages: PageSize | None = None,
    ) -> Object:
        """Pass each object of a page to `take`, with the part of the page before the objects. Return that part."""
        began = monotonic()
        body = await self._exchange("GET", path, params=params, accept=accept)
        if pages is not None:
            pages.adapt(size=len(body), seconds=monotonic() - began)
        text = body.decode()
        del body
        reader = ObjectReader(text)
        pause_at = _YIELD_BYTES
        for item in reader:
            take(item, reader.rest)
            del item
            if reader.position >= pause_at:
                pause_at = reader.position + _YIELD_BYTES
                await asyncio.sleep(0)
        return reader.rest

    async def create(self, path: str, body: Object) -> Object:
        """Create an object and return it as stored."""
        return await self._request("POST", path, body=body, repeatable=False)

    async def patch(self, path: str, body: object, *, content_type: str = MERGE_PATCH) -> Object:
        """Patch an object, by default with a merge patch, and return it as stored."""
        return await self._request("PATCH", path, body=body, content_type=content_type)

    async def replace(self, path: str, body: Object) -> Object:
        """Replace an object, or only its status if the path is that of the status, and return it as stored.

        `body` contains the resource version it was derived from. If that is not the newest, ApiError 409 is raised.
        """
        return await self._request("PUT", path, body=body)

    async def delete(
        self, path: str, *, grace_seconds: int | None = None, uid: str | None = None, propagation: str = "Background"
    ) -> None:
        """Delete an object, if `uid` is given only the one with this uid. A missing object is not an error.

        With the propagation Foreground, Kubernetes deletes the object after its blocking dependents.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._exchange("DELETE", path, body=options, accept=_METADATA)
        except ApiError as error:
            if error.code != 404 and not (error.code == 409 and uid is not None):
                raise

    async def watch(
        self, path: str, *, resource_version: str = "", selector: str = "", fields: str = "", timeout_seconds: int = 300
    ) -> AsyncGenerator[Object, None]:
        """Yield events (`type`, `object`) since a resource version until the server ends the watch or falls silent.

        Without a version, they begin with the present objects as added.
        Raises ApiError with code 410 if the version is too old. The caller then has to list again.
        """
        params = {
            "watch": "1",
            **({"resourceVersion": resource_version} if resource_version else {}),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_seconds),
            **_selectors(selector, fields),
        }
        timeout = aiohttp.ClientTimeout(total=timeout_seconds + 30, sock_connect=5, sock_read=_SILENCE_SECONDS)
        session = self.watch_session or self.session
        async with session.get(path, params=params, headers=await self._headers(), timeout=timeout) as response:
            if response.status != 200:
                raise await _read_error(response)
            buffer = bytearray()
            async for chunk in _read_until_silent(response):
                first, *others = chunk.split(b"\n")  # not the whole buffer, which would take quadratic time
                buffer += first
                for part in others:
                    event = parse(bytes(buffer))
                    buffer = bytearray(part)
                    if event["type"] == "ERROR":
                        raise _to_error(event["object"])
                    yield event
                    del event
                if len(buffer) > MAX_ANSWER_BYTES:
                    raise AnswerTooLarge(f"{path}: an event has more than {MAX_ANSWER_BYTES} bytes")

    async def _headers(self) -> dict[str, str]:
        authorization = await self.credentials.authorization()
        return {"Authorization": authorization} if authorization else {}

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        repeatable: bool = True,
    ) -> Object:
        answer = await self._exchange(
            method, path, params=params, body=body, content_type=content_type, repeatable=repeatable
        )
        return parse(answer)  # type: ignore[no-any-return]

    async def _exchange(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        repeatable: bool = True,
        accept: str = "",
    ) -> bytes:
        """Send a request, again if that may help, and return the body of its answer. Raises ApiError."""
        headers = await self._headers()
        data = None
        if accept:
            headers["Accept"] = accept
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = content_type
        timeout = aiohttp.ClientTimeout(total=self.timeout_seconds, sock_connect=3)
        for delay in (*self.retry_delays, None):
            try:
                async with self.session.request(
                    method, path, params=params, data=data, headers=headers, timeout=timeout
                ) as response:
                    if response.status < 300:
                        return await _read_bounded(response)
                    error = await _read_error(response)  # before each retry, too: an unread body ends the connection
                    if delay is None or response.status not in _RETRYABLE:
                        raise error
                    delay = _parse_retry_after(response, delay)
            except (aiohttp.ClientError, TimeoutError) as failure:
                may_be_done = not isinstance(failure, aiohttp.ClientConnectorError)
                if delay is None or (may_be_done and not repeatable):
                    raise ApiUnreachable(f"{method} {path}: {type(failure).__name__} {failure}") from failure
            await asyncio.sleep(delay)
        raise AssertionError("unreachable: the last attempt returns or raises")


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {name: value for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}


async def _read_until_silent(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except aiohttp.SocketTimeoutError:
        return


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            response.close()
            raise AnswerTooLarge(f"{response.url.path}: the answer has more than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


async def _read_error(response: aiohttp.ClientResponse) -> ApiError:
    body = await _read_bounded(response)
    text = body.decode(errors="replace")
    try:
        status = parse(body)
    except ValueError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    return ApiError(
        code=response.status,
        reason=status.get("reason") or response.reason or "",
        message=status.get("message") or text[:500],
        details=status.get("details"),
    )


def _to_error(status: Object) -> ApiError:
    return ApiError(code=status.get("code", 500), reason=status.get("reason", ""), message=status.get("message", ""))


def _parse_retry_after(response: aiohttp.ClientResponse, default: float) -> float:
    header = response.headers.get("Retry-After", "")
    return min(float(header), _MAX_RETRY_AFTER_SECONDS) if header.isdigit() else default
