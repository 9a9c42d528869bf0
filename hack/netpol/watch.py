"""Local copy of all objects of one kind, from a list and a watch."""

import json
import ssl
import sys
import threading
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

RETRY_SECONDS = 0.5
WATCH_SECONDS = 300  # the server ends a watch after this time, so a dead connection is detected


class Expired(Exception):
    """A watch that cannot continue from its resource version (410 or another ERROR event)."""


class Watcher:
    """Copy of all objects under one URL."""

    def __init__(self, *, url: str, tls: ssl.SSLContext, changed: threading.Event, token: Path | None = None) -> None:
        self.listed = threading.Event()
        self._url = url
        self._token = token
        # The API server is near: a proxy for the way out of the network does not reach it.
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
        self._opener = urllib.request.build_opener(*handlers)
        self._changed = changed
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}

    def objects(self) -> list[dict[str, Any]]:
        """Return a snapshot in a fixed order."""
        with self._lock:
            return [self._objects[key] for key in sorted(self._objects)]

    def follow(self) -> None:
        """List and watch forever. List again after a lost connection or an expired version."""
        while True:
            try:
                version = self._list()
                while True:
                    version = self._watch(version)
            except Expired as expired:
                print(f"{self._url}: {expired}; listing again", file=sys.stderr, flush=True)
            except (OSError, HTTPException, ValueError) as error:
                print(f"{self._url}: {error}", file=sys.stderr, flush=True)
                threading.Event().wait(RETRY_SECONDS)

    def url(self, query: str = "") -> str:
        """Return the URL with an additional query."""
        separator = "&" if "?" in self._url else "?"
        return self._url + separator + query if query else self._url

    def _get(self, query: str = "") -> Any:
        # The kubelet replaces a token before it expires.
        headers = {"Authorization": f"Bearer {self._token.read_text()}"} if self._token else {}
        request = urllib.request.Request(self.url(query), headers=headers)
        return self._opener.open(request, timeout=WATCH_SECONDS + 30)

    def _list(self) -> str:
        with self._get() as answer:
            listing = json.load(answer)
        with self._lock:
            self._objects = {_key(item): item for item in listing["items"]}
        self.listed.set()
        self._changed.set()
        return str(listing["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        """Follow one watch to its end and return the version to continue from."""
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
        with self._get(query) as stream:
            for line in stream:
                event = json.loads(line)
                version = self.apply(event)
        return version

    def apply(self, event: dict[str, Any]) -> str:
        """Apply one watch event and return its version."""
        item = event["object"]
        if event["type"] == "ERROR":
            raise Expired(item.get("message", "the watch failed"))
        if event["type"] != "BOOKMARK":
            with self._lock:
                if event["type"] == "DELETED":
                    self._objects.pop(_key(item), None)
                else:
                    self._objects[_key(item)] = item
            self._changed.set()
        return str(item["metadata"]["resourceVersion"])


def _key(item: dict[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
