"""The namespaces that a process serves now. They may change while it runs: it has them as a mounted folder."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mcp_exec_common.util.signals import Signal

ENTRY: Final = "namespaces"
"""Entry of the folder, in the form of the variable of that name."""


class ServedNamespaces:
    """The namespaces in use, in the order of their arrival. Who checks a namespace holds this object."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)
        self.changed: Signal[[]] = Signal()
        """Sent when a namespace has come or gone."""

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str) -> None:
        """Serve a namespace from now on."""
        self._names[name] = None
        self.changed.emit()

    def remove(self, name: str) -> None:
        """Serve a namespace no longer."""
        self._names.pop(name, None)
        self.changed.emit()


def split_names(text: str) -> list[str]:
    """Return the names in a comma-separated or JSON list."""
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",")]
    names = json.loads(text)
    return [str(name) for name in names] if isinstance(names, list) else []


def check_namespaces(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names. Raises ValueError if there is none, or one is empty or listed twice."""
    if not names or not all(names) or len(set(names)) != len(names):
        raise ValueError("namespaces must not be empty and not be listed twice")
    return names


def read_namespaces(entries: Mapping[str, bytes], *, release_namespace: str) -> tuple[str, ...]:
    """Return the namespaces in the entries of a folder. Raises ValueError."""
    names = check_namespaces(tuple(split_names(entries.get(ENTRY, b"").decode())))
    if release_namespace in names:
        raise ValueError(f"{release_namespace} is the release's own namespace and must not be served")
    return names
