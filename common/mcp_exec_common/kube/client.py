"""A small client of the Kubernetes API for the hot path: one aiohttp session, plain dicts, bounded retries.

The official client costs about half a millisecond more a call than this, most of it in building model objects.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import aiohttp

from mcp_exec_api.constants import GROUP, VERSION
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.errors import ApiError, ApiUnreachable
from mcp_exec_common.kube.objects import Object

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_BACKOFFS: Final = (0.05, 0.2, 0.5, 1.0, 2.0)
_SILENCE_SECONDS: Final = 90.0
"""How long a watch may be without a word: beyond that nobody knows whether its connection still stands."""
_BUSY: Final = frozenset({429, 500, 503, 504})


def resource_path(
    resource: str, *, namespace: str | None = None, name: str | None = None, group: str | None = None
) -> str:
    """The path of a resource: `pods`, or with a group such as `networking.k8s.io/v1` one of that group."""
    root = f"/apis/{group}" if group else "/api/v1"
    parts = [root, *(["namespaces", namespace] if namespace else []), resource, *([name] if name else [])]
    return "/".join(parts)


def custom_resource_path(resource: str, *, namespace: str | None = None, name: str | None = None) -> str:
    """The path of one of mcp-exec's own resources."""
    return resource_path(resource, namespace=namespace, name=name, group=f"{GROUP}/{VERSION}")


@dataclass(frozen=True, kw_only=True)
class KubeClient:
    """The API server, over one pooled session. Every call is bounded in time and in retries.

    A request is tried again where the server said that it is busy, or where no connection came up; and, unless it is
    a creation, where the answer was lost: a merge patch and a deletion do the same when they are done twice.
    """

    session: aiohttp.ClientSession
    credentials: KubeCredentials
    timeout_seconds: float = 10.0
    backoffs: Sequence[float] = field(default=_BACKOFFS)

    @classmethod
    @asynccontextmanager
    async def connect(cls, *, kubeconfig: Path | None = None, connections: int = 64) -> AsyncIterator[Self]:
        """A client by the kubeconfig file, or by the pod's service account where none is given."""
        credentials = await KubeCredentials.load(kubeconfig)
        connector = aiohttp.TCPConnector(limit=connections, ssl=credentials.tls(), keepalive_timeout=60)
        async with aiohttp.ClientSession(connector=connector, base_url=credentials.server) as session:
            yield cls(session=session, credentials=credentials)

    async def get(self, path: str, **params: str) -> Object:
        """The object at a path."""
        return await self._request("GET", path, params=params)

    async def list(
        self, path: str, *, selector: str = "", fields: str = "", chunk: int = 500
    ) -> tuple[list[Object], str]:
        """All items at a path, chunk by chunk, and the resource version to watch them from.

        `selector` is a label selector, `fields` a field selector.
        """
        items: list[Object] = []
        params = {"limit": str(chunk), **_selectors(selector, fields)}
        while True:
            page = await self._request("GET", path, params=params)
            items.extend(page.get("items") or [])
            token = page["metadata"].get("continue")
            if not token:
                return items, page["metadata"]["resourceVersion"]
            params["continue"] = token

    async def create(self, path: str, body: Object) -> Object:
        """Creates an object and returns it as stored."""
        return await self._request("POST", path, body=body, repeatable=False)

    async def patch(self, path: str, body: object, *, content_type: str = MERGE_PATCH) -> Object:
        """Patches an object, by a merge patch unless told otherwise, and returns it as stored."""
        return await self._request("PATCH", path, body=body, content_type=content_type)

    async def replace(self, path: str, body: Object) -> Object:
        """Replaces an object, or by the path of its status that alone, and returns it as stored.

        `body` names the resource version that it was made for; where that is not the newest, ApiError 409 is raised.
        """
        return await self._request("PUT", path, body=body)

    async def delete(self, path: str, *, grace_seconds: int | None = None, uid: str | None = None) -> None:
        """Deletes an object, if `uid` is given only that very one; that it is gone already is no error."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._request("DELETE", path, body=options)
        except ApiError as error:
            if error.code != 404 and not (error.code == 409 and uid is not None):
                raise

    async def watch(
        self, path: str, *, resource_version: str, selector: str = "", fields: str = "", timeout_seconds: int = 300
    ) -> AsyncGenerator[Object, None]:
        """Events (`type`, `object`) since a resource version, until the server ends the watch or is silent for long.

        Raises ApiError with code 410 where the version is too old: then a new list is needed.
        """
        params = {
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_seconds),
            **_selectors(selector, fields),
        }
        timeout = aiohttp.ClientTimeout(total=timeout_seconds + 30, sock_connect=5, sock_read=_SILENCE_SECONDS)
        async with self.session.get(path, params=params, headers=await self._headers(), timeout=timeout) as response:
            if response.status != 200:
                raise await _refusal(response)
            buffer = bytearray()
            async for chunk in _until_silent(response):
                buffer += chunk
                *lines, rest = buffer.split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _of_status(event["object"])
                    yield event

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
        headers = await self._headers()
        data = None
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = content_type
        timeout = aiohttp.ClientTimeout(total=self.timeout_seconds, sock_connect=3)
        for attempt in range(len(self.backoffs) + 1):
            last = attempt == len(self.backoffs)
            try:
                async with self.session.request(
                    method, path, params=params, data=data, headers=headers, timeout=timeout
                ) as response:
                    if response.status < 300:
                        return json.loads(await response.read())  # type: ignore[no-any-return]
                    error = await _refusal(response)
                    if last or response.status not in _BUSY:
                        raise error
                    delay = _retry_after(response, self.backoffs[attempt])
            except (aiohttp.ClientError, TimeoutError) as error:
                lost = not isinstance(error, aiohttp.ClientConnectorError)
                if last or (lost and not repeatable):
                    raise ApiUnreachable(f"{method} {path}: {type(error).__name__} {error}") from error
                delay = self.backoffs[attempt]
            await asyncio.sleep(delay)
        raise AssertionError("unreachable: the last attempt returns or raises")


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {name: given for name, given in (("labelSelector", labels), ("fieldSelector", fields)) if given}


async def _until_silent(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except aiohttp.SocketTimeoutError:
        return


async def _refusal(response: aiohttp.ClientResponse) -> ApiError:
    text = await response.text(errors="replace")
    try:
        status = json.loads(text)
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


def _of_status(status: Object) -> ApiError:
    return ApiError(code=status.get("code", 500), reason=status.get("reason", ""), message=status.get("message", ""))


def _retry_after(response: aiohttp.ClientResponse, default: float) -> float:
    given = response.headers.get("Retry-After", "")
    return min(float(given), 5.0) if given.isdigit() else default
