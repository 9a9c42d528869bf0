"""Checks that take minutes and are no part of `make test`: each whole run of CI runs one of them, in turns.

`.ci/parts.txt` in git has a line for each part that has ended green: name, commit and date.
"""

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

ROOT: Final = Path(__file__).parents[2]
GREEN: Final = ROOT / ".ci" / "parts.txt"
LIMIT_MINUTES: Final = 15.0
"""The longest that a part may take on a machine of factor 1."""
OLD_COMMITS: Final = 200
"""Commits since a part was green after which a run warns of it."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A target of the Makefile, or several, with their variables."""

    command: tuple[str, ...]
    minutes: float
    """About how long it takes on a machine of factor 1, with warm caches."""
    environment: Mapping[str, str] = field(default_factory=dict)
    cluster: bool = True
    """Whether it makes a cluster, which is removed at its end."""
    newest: bool = True
    """Whether its cluster is of KUBERNETES_BINARIES, if those are there."""


def _long(names: str, minutes: float) -> Part:
    return Part(command=("make", "long"), environment={"ONLY": names}, minutes=minutes)


PARTS: Final[Mapping[str, Part]] = {
    "bench-smoke": Part(command=("make", "bench-smoke"), minutes=10),
    "boards": Part(command=("make", "boards"), minutes=6),
    "browser": Part(command=("make", "browser"), minutes=3, cluster=False),
    "chaos": Part(command=("make", "chaos"), environment={"MCP_EXEC_CHAOS_SECONDS": "360"}, minutes=12),
    "clients": Part(command=("make", "clients"), minutes=8, cluster=False),
    "cpython": Part(command=("make", "cpython"), minutes=14, cluster=False),
    "data-image": Part(command=("make", "data-image"), minutes=5, cluster=False),
    "demo": Part(command=("hack/ci/demo-from-nothing",), minutes=14, newest=False),
    "frameworks": Part(command=("make", "frameworks"), minutes=8),
    "fuzz-component": Part(
        command=("make", "fuzz", "TESTS=tests/component"), environment={"MCP_EXEC_FUZZ_FACTOR": "10"}, minutes=10,
        cluster=False,
    ),
    "fuzz-unit": Part(
        command=("make", "fuzz", "TESTS=tests/unit"), environment={"MCP_EXEC_FUZZ_FACTOR": "20"}, minutes=10,
        cluster=False,
    ),
    "installs": Part(command=("make", "installs"), minutes=5, cluster=False),
    "kills": Part(command=("make", "kills"), environment={"MCP_EXEC_KILLED_EXECUTIONS": "100"}, minutes=12),
    "long-keys": _long("key_rotation", 8),
    "long-namespaces": _long("neighbours,divided_installation,uninstall", 6),
    "long-operator": _long("failover", 8),
    "long-release": _long("release", 8),
    "pace": Part(command=("make", "pace"), minutes=14, cluster=False),
    "upgrade": Part(command=("make", "upgrade"), minutes=10),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Green:
    """The last time that a part ended green."""

    part: str
    commit: str
    at: str
    """The time in UTC, by ISO 8601."""

    @classmethod
    def read_all(cls, text: str) -> dict[str, Self]:
        """Read the lines of parts.txt. Raises ValueError for a line that has not three words."""
        found = {}
        for line in text.splitlines():
            if line.strip() and not line.startswith("#"):
                part, commit, at = line.split()
                found[part] = cls(part=part, commit=commit, at=at)
        return found


def list_by_age(green: Mapping[str, Green], parts: Iterable[str] = PARTS) -> list[str]:
    """Return the parts that have ended green, those that were longest ago first.

    A part joins when somebody has run it alone, so that no change is refused for a part that never worked.
    """
    return sorted((name for name in parts if name in green), key=lambda name: (green[name].at, name))


def record(part: str, *, commit: str, now: datetime, file: Path = GREEN) -> None:
    """Write that a part ended green."""
    green = Green.read_all(file.read_text())
    green[part] = Green(part=part, commit=commit, at=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ"))
    head = [line for line in file.read_text().splitlines() if line.startswith("#")]
    lines = [f"{each.part} {each.commit} {each.at}" for _, each in sorted(green.items()) if each.part in PARTS]
    file.write_text("\n".join([*head, *lines]) + "\n")


def list_old(green: Mapping[str, Green], *, root: Path = ROOT) -> list[str]:
    """Return a warning for each part that was not green within the last commits."""
    warnings = []
    for name in PARTS:
        if name not in green:
            warnings.append(f"the part {name} has never ended green")
            continue
        counted = _git("rev-list", "--count", f"{green[name].commit}..HEAD", root=root)
        if not counted:
            warnings.append(f"the part {name} was green at {green[name].commit}, which this clone does not have")
        elif int(counted) > OLD_COMMITS:
            warnings.append(f"the part {name} was green {counted} commits ago, at {green[name].commit}")
    return warnings


def find_commit(*, root: Path = ROOT) -> str:
    """Return the commit of the checkout, or an empty text if something else than parts.txt has changed since."""
    changed = _git("status", "--porcelain", "--", ".", f":!{GREEN.relative_to(ROOT)}", root=root)
    return "" if changed else _git("rev-parse", "--short=12", "HEAD", root=root)


def _git(*arguments: str, root: Path) -> str:
    """Return what git prints, or an empty text if it fails."""
    ended = subprocess.run(("git", *arguments), cwd=root, capture_output=True, text=True, check=False, timeout=60)
    return ended.stdout.strip() if ended.returncode == 0 else ""
