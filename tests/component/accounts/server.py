"""Requests to a real API server, as any user."""

from dataclasses import dataclass
from typing import Any, Final

import httpx
from tests.support.until import eventually

Object = dict[str, Any]

_PATCHES: Final = {True: "application/strategic-merge-patch+json", False: "application/merge-patch+json"}
"""By whether the objects are pods, whose containers are merged by their names."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A client of the administrator, who may impersonate everybody."""

    client: httpx.Client

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        user: str = "",
        content_type: str = "",
        **query: str,
    ) -> httpx.Response:
        """Send a request as a user, by default as the administrator."""
        headers = {"Impersonate-User": user} if user else {}
        if method == "PATCH":
            headers["Content-Type"] = content_type or _PATCHES["/pods/" in path]
        return self.client.request(method, path, json=body, headers=headers, params=query or None)

    def send(
        self, method: str, path: str, body: Object | None = None, *, user: str = "", content_type: str = ""
    ) -> Object:
        """Send a request that must be accepted, and return the answer's body.

        The API server lists a new kind before it accepts objects of it, and answers 503 in between.
        """

        def ask() -> httpx.Response | None:
            answer = self.request(method, path, body, user=user, content_type=content_type)
            return None if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else answer

        answer = eventually(ask, what=f"{method} {path} is served")
        assert answer is not None
        assert answer.is_success, f"{method} {path}: {answer.text}"
        found: Object = answer.json()
        return found

    def create(self, item: Object, *, user: str = "") -> Object:
        """Create an object and return it."""
        return self.send("POST", self._find_path(item), item, user=user)

    def apply(self, item: Object) -> None:
        """Apply an object as the administrator."""
        path = f"{self._find_path(item)}/{item['metadata']['name']}?fieldManager=helm&force=true"
        self.send("PATCH", path, item, content_type="application/apply-patch+yaml")

    def list_kinds(self, version: str) -> dict[str, Object]:
        """Return the resources of a version by kind; none if it is not served."""
        answer = self.request("GET", f"{'/api' if version == 'v1' else '/apis'}/{version}")
        resources = answer.json()["resources"] if answer.is_success else []
        return {each["kind"]: each for each in resources if "/" not in each["name"]}

    def _find_path(self, item: Object) -> str:
        version = item["apiVersion"]
        kind = self.list_kinds(version)[item["kind"]]
        inside = f"/namespaces/{item['metadata']['namespace']}" if kind["namespaced"] else ""
        return f"{'/api' if version == 'v1' else '/apis'}/{version}{inside}/{kind['name']}"
