"""Libraries of the pools' images, and which other pools of a namespace have what a pool lacks. No I/O."""

from dataclasses import dataclass, field

from pydantic import ValidationError

from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.protocol import MAX_HINTED_POOLS, MAX_HINTS, LibraryHints, SandboxLibraries


@dataclass(kw_only=True, eq=False)
class NamespaceLibraries:
    """Libraries of all pools of one namespace."""

    version: int = 0
    """Number of changes."""
    _pools: dict[str, SandboxLibraries] = field(default_factory=dict)
    _index: tuple[int, LibraryHints] = (-1, {})
    """The pools by the names that code imports, and the version that this is of."""

    def set(self, pool: str, libraries: SandboxLibraries | None) -> None:
        """Set the libraries of a pool. None: they are not known, or the pool is gone."""
        if self._pools.get(pool) == libraries:
            return
        self.version += 1
        if libraries is None:
            del self._pools[pool]
        else:
            self._pools[pool] = libraries

    def find_missing(self, pool: str) -> LibraryHints:
        """Return what other pools have and this one lacks. Of too much, the largest libraries."""
        if self._index[0] != self.version:
            self._index = self.version, self._build_index()
        own = self._pools.get(pool)
        present = set() if own is None else {name for library in own.libraries for name in library.imports}
        missing = [(name, pools) for name, pools in self._index[1].items() if name not in present]
        return dict(missing[:MAX_HINTS])

    def _build_index(self) -> LibraryHints:
        ranks: dict[str, int] = {}
        index: LibraryHints = {}
        for pool, libraries in sorted(self._pools.items()):
            for rank, library in enumerate(libraries.libraries):
                for name in library.imports:
                    ranks[name] = min(rank, ranks.get(name, rank))
                    pools = index.setdefault(name, [])
                    if len(pools) < MAX_HINTED_POOLS and [pool] != [each[0] for each in pools[-1:]]:
                        pools.append([pool, library.version])
        return {name: index[name] for name in sorted(index, key=lambda name: (ranks[name], name))}


@dataclass(kw_only=True, eq=False)
class PoolLibraries:
    """Libraries of one pool."""

    pool: str
    namespace: NamespaceLibraries = field(default_factory=NamespaceLibraries)
    current: SandboxLibraries | None = None
    """What code can import in each of the pool's pods; None if no pod was asked yet."""
    _template: str = ""
    """Hash of the template of the pod that was asked last."""
    _missing: tuple[int, LibraryHints] = (-1, {})

    def restore(self, status: Object) -> None:
        """Take over what the previous leader read."""
        fields = {"python": status.get("python"), "libraries": status.get("libraries") or []}
        try:
            self._set(SandboxLibraries.model_validate(fields))
        except ValidationError:
            self._set(None)

    def knows(self, template: str) -> bool:
        """Return whether a pod of this template was asked last."""
        return bool(template) and template == self._template

    def set(self, libraries: SandboxLibraries, *, template: str) -> None:
        """Set what pods of a template have."""
        self._template = template
        self._set(libraries)

    def clear(self) -> None:
        """Forget all, because the pool was deleted."""
        self._template = ""
        self._set(None)

    def find_missing(self, template: str) -> LibraryHints:
        """Return the libraries of other pools that the pods of this template lack.

        Nothing if no pod of it was asked: the supervisor may be of a release that refuses such hints.
        """
        if not self.knows(template):
            return {}
        if self._missing[0] != self.namespace.version:
            self._missing = self.namespace.version, self.namespace.find_missing(self.pool)
        return self._missing[1]

    def _set(self, libraries: SandboxLibraries | None) -> None:
        self.current = libraries
        self.namespace.set(self.pool, libraries)
