"""Lists of executions from a cache, newest first: entries, order, filters, page tokens."""

import asyncio
import base64
import binascii
import json
import re
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from sys import intern
from typing import Final, Self

from mcp_exec_api.code_execution import Phase, read_created_at
from mcp_exec_api.constants import LABEL_CONVERSATION, LABEL_USE_CASE
from mcp_exec_api.wire.execution_views import LISTED, read_listed
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.pages import TableRow
from mcp_exec_gateway.core.auth.callers import Caller, format_caller_label, may_see
from mcp_exec_gateway.core.executions.parameters import ListQuery
from mcp_exec_gateway.core.http.problems import invalid_field

_ENTRY_BYTES: Final = 900
"""Memory of an entry and of its place in the order, without names, labels and texts (measured: 700 to 850)."""
_MAX_LABELS: Final = 64
_MAX_LABEL_CHARACTERS: Final = 4096
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

EntryPosition = tuple[int, str]
"""Place of an execution in the order: microseconds of its creation since 1970, and its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionEntry:
    """One execution in a list. Strings that many executions share are interned."""

    name: str
    created_at: str
    created: int
    """Microseconds from 1970 to the creation. It changes once at most: the operator may record a finer time."""
    pool: str
    caller: str
    user: str | None
    """User of the execution, or empty; None if the list of an older definition of the resource does not say."""
    description: str
    labels: dict[str, str]
    """Labels with all prefixes, at most 64. Keeps kubectl's first labels and drops the rest."""
    phase: str
    reason: str
    start: str
    pod_name: str
    finished_at: str
    duration: str

    @classmethod
    def from_object(cls, execution: Object, *, caller: str) -> Self:
        """Return the entry of an object, or of a table's row as `read_row` returns it."""
        metadata, status = execution["metadata"], execution.get("status") or {}
        spec = execution.get("spec") or execution.get(LISTED) or {}
        created_at = read_created_at(execution)
        return cls(
            name=metadata["name"],
            created_at=created_at,
            created=_count_microseconds(created_at),
            pool=intern(str((spec.get("poolRef") or {}).get("name") or "default")),
            caller=intern(caller),
            user=None if (user := spec.get("user", "")) is None else intern(str(user)),
            description=str(spec.get("description") or "")[:200],
            labels=_bound_labels(metadata.get("labels") or {}),
            phase=intern(str(status.get("phase") or Phase.PENDING)),
            reason=intern(str(status.get("reason") or "")),
            start=intern(str(status.get("start") or "")),
            pod_name=str(status.get("podName") or ""),
            finished_at=str(status.get("finishedAt") or ""),
            duration=str(status.get("duration") or ""),
        )

    @property
    def position(self) -> EntryPosition:
        """The place in the order."""
        return self.created, self.name

    @property
    def conversation(self) -> str:
        """Conversation that the execution is part of."""
        return self.labels.get(LABEL_CONVERSATION, "")

    @property
    def use_case(self) -> str:
        """What the execution is for."""
        return self.labels.get(LABEL_USE_CASE, "")

    @property
    def weight(self) -> int:
        """Bytes of memory, about."""
        texts = len(self.name) + len(self.pod_name) + 4 * (len(self.description) + len(self.user or ""))
        return _ENTRY_BYTES + texts + sum(len(key) + len(value) + 100 for key, value in self.labels.items())


def read_row(row: TableRow) -> Object:
    """Return what a table's row shows of an execution as an object without spec."""
    return read_listed(row.metadata, row.cells)


def _count_microseconds(moment: str) -> int:
    try:
        return (datetime.fromisoformat(moment) - _EPOCH) // _MICROSECOND
    except (ValueError, TypeError):
        return 0


def _bound_labels(labels: Object) -> dict[str, str]:
    bounded: dict[str, str] = {}
    size = 0
    for key, value in labels.items():
        size += len(key) + len(value)
        if len(bounded) >= _MAX_LABELS or size > _MAX_LABEL_CHARACTERS:
            break
        bounded[intern(key)] = intern(value)
    return bounded


def encode_position(position: EntryPosition) -> str:
    """Return the token of a place in the order."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def decode_position(token: str) -> EntryPosition:
    """Return the place in the order. Raises ValueError for a token that no gateway made."""
    try:
        position = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        position = None
    match position:
        case [int(created), str(name)]:
            return created, name
    raise ValueError("this is not the `continue` of a page; list again without it")


_MAX_REQUIREMENTS: Final = 32
_KEY: Final = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_REQUIREMENTS: Final = (
    re.compile(rf"(?P<key>{_KEY})\s*(?P<operator>==|=|!=)\s*(?P<values>[^,()]*)"),
    re.compile(rf"(?P<key>{_KEY})\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)"),
    re.compile(rf"(?P<operator>!?)\s*(?P<key>{_KEY})(?P<values>)"),
)
_PART: Final = re.compile(r"(?:[^,()]|\([^()]*\))+")
_NEGATIVE: Final = ("!", "!=", "notin")
_RULE: Final = "use KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY, separated by commas"


@dataclass(frozen=True, kw_only=True)
class _Requirement:
    key: str
    values: frozenset[str] | None
    """Accepted values of the label; None if any value will do."""
    negative: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        return (value is not None and (self.values is None or value in self.values)) is not self.negative


@dataclass(frozen=True, kw_only=True)
class LabelSelector:
    """Requirements that an object's labels fulfil. A label that is absent fulfils `!=`, `notin` and `!`."""

    requirements: tuple[_Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels fulfil all requirements."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_label_selector(text: str) -> LabelSelector:
    """Parse a selector as kubectl takes it. Raises ValueError with the part that is wrong and what is allowed."""
    requirements: list[_Requirement] = []
    position, text = 0, text.strip()
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or len(requirements) >= _MAX_REQUIREMENTS:
            reason = f"more than {_MAX_REQUIREMENTS} requirements" if part else f"at {text[position : position + 40]!r}"
            raise ValueError(f"{reason}: {_RULE}")
        requirements.append(_parse_requirement(part[0].strip()))
        position = part.end()
        if position < len(text):
            if text[position] != "," or position + 1 == len(text):
                raise ValueError(f"at {text[position : position + 40]!r}: {_RULE}")
            position += 1
    return LabelSelector(requirements=tuple(requirements))


def _parse_requirement(text: str) -> _Requirement:
    for pattern in _REQUIREMENTS:
        if (found := pattern.fullmatch(text)) is None:
            continue
        operator = found["operator"]
        if operator in ("", "!"):
            return _Requirement(key=found["key"], values=None, negative=operator == "!")
        values = [value.strip() for value in found["values"].split(",")]
        if all(_VALUE.fullmatch(value) for value in values):
            return _Requirement(key=found["key"], values=frozenset(values), negative=operator in _NEGATIVE)
    raise ValueError(f"{text[:80]!r}: {_RULE}")


@dataclass(frozen=True, kw_only=True)
class ExecutionFilter:
    """What an execution has to be to be listed. None and empty values mean any."""

    viewer: Caller
    """Who lists. Executions that it may not see are not listed."""
    phase: str | None
    callers: frozenset[str]
    """Accepted spellings of the execution's caller."""
    conversation: str | None
    use_case: str | None
    labels: LabelSelector

    @classmethod
    def from_query(cls, query: ListQuery, *, viewer: Caller) -> Self:
        """Read the parameters. Raises HttpProblem, a 422, for an invalid label selector."""
        try:
            labels = parse_label_selector(query.label_selector or "")
        except ValueError as error:
            raise invalid_field("labelSelector", str(error)) from error
        caller = query.caller
        return cls(
            viewer=viewer,
            phase=query.phase,
            callers=frozenset((caller, format_caller_label(caller)) if caller else ()),
            conversation=query.conversation,
            use_case=query.use_case,
            labels=labels,
        )

    def matches(self, entry: ExecutionEntry) -> bool:
        """Return whether an execution is listed."""
        return (
            (self.phase is None or entry.phase == self.phase)
            and (not self.callers or entry.caller in self.callers)
            and (self.conversation is None or entry.conversation == self.conversation)
            and (self.use_case is None or entry.use_case == self.use_case)
            and self.labels.matches(entry.labels)
            and self._is_visible(entry)
        )

    def _is_visible(self, entry: ExecutionEntry) -> bool:
        if entry.user is None:
            return not self.viewer.limits.sees_own_only
        return may_see(self.viewer, creator=entry.caller, user=entry.user)


_ALL_BYTES: Final = 64 * 1024 * 1024
"""Memory of the lists of all namespaces: about 40,000 executions. The memory limit of a gateway is 512 MiB."""
_MIN_BYTES: Final = 1024 * 1024
"""Memory of one namespace's list, however many namespaces there are."""
_SLICE: Final = 1_000
"""Entries that are searched before other requests get a turn."""


@dataclass(kw_only=True)
class _NamespaceList:
    entries: dict[str, ExecutionEntry] = field(default_factory=dict)
    order: list[EntryPosition] = field(default_factory=list)
    """Places of all entries, oldest first."""
    weight: int = 0

    def put(self, entry: ExecutionEntry) -> None:
        old = self.entries.get(entry.name)
        if old is None or old.position != entry.position:
            self.remove(entry.name)
            insort(self.order, entry.position)
        else:
            self.weight -= old.weight
        self.entries[entry.name] = entry
        self.weight += entry.weight

    def remove(self, name: str) -> None:
        if (entry := self.entries.pop(name, None)) is not None:
            del self.order[bisect_left(self.order, entry.position)]
            self.weight -= entry.weight


@dataclass(kw_only=True)
class ExecutionLists:
    """Executions by namespace, newest first, in bounded memory: the oldest of a namespace are dropped first.

    An execution that was dropped can still be read by its name.
    """

    served: Sized = ("",)
    """Served namespaces. Each has an equal part of the memory."""
    _lists: dict[str, _NamespaceList] = field(default_factory=dict, init=False)

    @property
    def limit(self) -> int:
        """Bytes of memory of one namespace's list."""
        return max(_ALL_BYTES // max(len(self.served), 1), _MIN_BYTES)

    def put(self, namespace: str, entry: ExecutionEntry) -> None:
        """Add an execution, or replace what is known of it."""
        listed = self._lists.setdefault(namespace, _NamespaceList())
        listed.put(entry)
        while listed.weight > self.limit:
            listed.remove(listed.order[0][1])

    def remove(self, namespace: str, name: str) -> None:
        """Remove an execution."""
        if (listed := self._lists.get(namespace)) is not None:
            listed.remove(name)

    async def find_page(
        self,
        namespace: str,
        matches: Callable[[ExecutionEntry], bool],
        *,
        limit: int,
        before: EntryPosition | None = None,
    ) -> tuple[list[ExecutionEntry], EntryPosition | None]:
        """Return the newest executions that match, of those older than `before`, and the last one's place if more do.

        The search takes turns with other requests. Executions that come meanwhile belong to an earlier page.
        """
        listed = self._lists.get(namespace)
        found: list[ExecutionEntry] = []
        if listed is None:
            return found, None
        end = len(listed.order) if before is None else bisect_left(listed.order, before)
        while end > 0:
            part = listed.order[max(0, end - _SLICE) : end]
            for _, name in reversed(part):
                if matches(entry := listed.entries[name]):
                    if len(found) == limit:
                        return found, found[-1].position
                    found.append(entry)
            await asyncio.sleep(0)
            end = bisect_left(listed.order, part[0])
        return found, None
