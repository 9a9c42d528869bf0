"""The gateway, as a caller with an API key sees it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp

_SECONDS: Final = 10.0
_MARGIN_SECONDS: Final = 10.0
"""How much longer than its `wait` a request may take."""


@dataclass(frozen=True)
class Answer:
    """What the gateway said."""

    status: int
    data: dict[str, Any]
    """A JSON object's members; those of a list are under `items`."""

    @property
    def said(self) -> str:
        """What went wrong, by its own words."""
        return f"{self.status}: {self.data.get('detail') or self.data or 'no JSON'}"

    @property
    def items(self) -> list[dict[str, Any]]:
        """The objects of a list."""
        return [each for each in self.data.get("items") or [] if isinstance(each, dict)]


class Unreachable(Exception):
    """Nobody answered."""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Asks one gateway."""

    url: str
    namespace: str | None
    """None is the key's own."""
    session: aiohttp.ClientSession

    @classmethod
    @asynccontextmanager
    async def connect(cls, *, url: str, key: str | None, namespace: str | None = None) -> AsyncIterator[Self]:
        """A client of the gateway at `url`, open while the context stands."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with aiohttp.ClientSession(headers=headers) as session:
            yield cls(url=url.rstrip("/"), namespace=namespace, session=session)

    async def ask(self, method: str, path: str, *, body: object = None, **query: str) -> Answer:
        """What it answers, whatever the status. Raises Unreachable."""
        if self.namespace and path.startswith("/v1/"):
            query["namespace"] = self.namespace
        limit = aiohttp.ClientTimeout(total=float(query.get("wait", _SECONDS)) + _MARGIN_SECONDS)
        try:
            async with self.session.request(
                method, self.url + path, params=query, json=body, timeout=limit, allow_redirects=False
            ) as response:
                return Answer(response.status, await _members(response))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unreachable(f"{method} {self.url}{path}: {error or 'no answer in time'}") from error


async def _members(response: aiohttp.ClientResponse) -> dict[str, Any]:
    try:
        data = await response.json(content_type=None)
    except ValueError:
        return {}
    if isinstance(data, list):
        return {"items": data}
    return data if isinstance(data, dict) else {}
