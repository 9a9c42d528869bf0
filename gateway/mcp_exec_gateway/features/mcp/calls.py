"""Cache of runs by their calls: those that have not ended, and those whose answer was not delivered."""

import asyncio
import hashlib
import hmac
import json
import re
import secrets
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self

from mcp_exec_api.code_execution import is_finished, read_created_at, spec_digest
from mcp_exec_api.constants import GROUP
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_gateway.core.auth.callers import Caller

ANNOTATION_CALL: Final = f"{GROUP}/call"
"""Annotation of an execution: digest of the call that it answers, and of the session, if the client has one."""
ANNOTATION_UNDELIVERED: Final = f"{GROUP}/undelivered"
"""Annotation of an execution whose client left without the answer: a mark, or who has followed it since."""

_KEY_PREFIX: Final = b"mcp-exec calls:"
_SESSION_CHARACTERS: Final = 16
_CALL: Final = re.compile(rf"([0-9a-f]{{64}})(?:\.([0-9a-f]{{{_SESSION_CHARACTERS}}}))?")
_HOLDER: Final = re.compile(r"taken\.(\d{13})\.[0-9a-f]{16}")
_MARK: Final = re.compile(r"([0-9a-f]{64})\.(\d{13})(\.cancelled)?")


@dataclass(frozen=True, kw_only=True)
class CallIdentity:
    """One call: what it runs for whom, and the client's session."""

    digest: str
    session: str = ""
    """Digest of the session's id; empty if the client has none."""
    digests: tuple[str, ...] = ()
    """Digests that a run of the same call may have: `digest`, and one by each other key of the release."""

    @classmethod
    def create(
        cls, spec: Mapping[str, Any], *, keys: SandboxKeys, caller: Caller, conversation: str, session_id: str | None
    ) -> Self:
        """Return the call that runs this spec. `keys` are the release's. A description changes nothing."""
        fixed = {name: value for name, value in spec.items() if name != "description"}
        content = json.dumps((caller.namespace, caller.name, conversation, spec_digest(fixed)))
        digests = [hmac.new(_KEY_PREFIX + key, content.encode(), hashlib.sha256).hexdigest() for key in keys]
        session = hashlib.sha256(session_id.encode()).hexdigest()[:_SESSION_CHARACTERS] if session_id else ""
        return cls(digest=digests[0], session=session, digests=tuple(digests))

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> Self | None:
        """Return the call that an execution answers, or None if it answers none that can be repeated."""
        match = _CALL.fullmatch(_read_annotation(metadata, ANNOTATION_CALL))
        return cls(digest=match[1], session=match[2] or "") if match else None

    def __str__(self) -> str:
        return f"{self.digest}.{self.session}" if self.session else self.digest


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What says that the client of a run left without the answer."""

    digest: str
    """Digest of the call; zeros if it is unknown."""
    milliseconds: int
    """When it left, since 1970."""
    cancelled: bool = False
    """Whether the run was cancelled because its client had left."""

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> Self | None:
        """Return the mark of an execution, or None if it has none."""
        match = _MARK.fullmatch(_read_annotation(metadata, ANNOTATION_UNDELIVERED))
        return cls(digest=match[1], milliseconds=int(match[2]), cancelled=bool(match[3])) if match else None

    def __str__(self) -> str:
        return f"{self.digest}.{self.milliseconds:013}" + (".cancelled" if self.cancelled else "")


UNKNOWN_DIGEST: Final = "0" * 64


def create_holder(milliseconds: int) -> str:
    """Return a new value of ANNOTATION_UNDELIVERED for a request that follows a run after its first client."""
    return f"taken.{milliseconds:013}.{secrets.token_hex(8)}"


def read_holder_since(metadata: Mapping[str, Any]) -> float | None:
    """Return when the present holder took the run, in seconds since 1970, or None if there is no such holder."""
    match = _HOLDER.fullmatch(_read_annotation(metadata, ANNOTATION_UNDELIVERED))
    return int(match[1]) / 1000 if match else None


def read_holder(execution: Object) -> str:
    """Return what ANNOTATION_UNDELIVERED says; empty if only the request that created the run has followed it."""
    return _read_annotation(execution["metadata"], ANNOTATION_UNDELIVERED)


def _read_annotation(metadata: Mapping[str, Any], name: str) -> str:
    return str((metadata.get("annotations") or {}).get(name) or "")


_MAX_RUNS: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class CalledRun:
    """One run, and the call that it answers."""

    key: ObjectKey
    call: CallIdentity
    created: float
    """Seconds from 1970 to its creation."""
    followed: float
    """Seconds from 1970 since which the present request follows it."""
    mark: Mark | None
    has_ended: bool = False

    @classmethod
    def from_object(cls, execution: Object, *, call: CallIdentity, mark: Mark | None) -> Self:
        """Return the run of an execution."""
        created = _read_seconds(read_created_at(execution))
        followed = read_holder_since(execution["metadata"])
        return cls(
            key=object_key(execution),
            call=call,
            created=created,
            followed=created if followed is None else followed,
            mark=mark,
            has_ended=is_finished(execution),
        )


@dataclass(kw_only=True)
class CallCache:
    """Runs by namespace and digest of their calls. `observe` gets each change. The newest runs are kept."""

    _runs: OrderedDict[ObjectKey, CalledRun] = field(default_factory=OrderedDict, init=False)
    _keys: dict[tuple[str, str], dict[ObjectKey, None]] = field(default_factory=dict, init=False)
    _leaving: set[ObjectKey] = field(default_factory=set, init=False)
    """Runs that this replica is about to mark."""
    _followed: Counter[ObjectKey] = field(default_factory=Counter, init=False)
    """Runs that requests at this replica follow, with their number: their answers are not delivered yet."""
    _changes: dict[tuple[str, str], list[asyncio.Event]] = field(
        default_factory=lambda: defaultdict(list[asyncio.Event]), init=False
    )

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._runs)

    def observe(self, execution: Object, *, deleted: bool = False) -> None:
        """Take in an execution."""
        key, metadata = object_key(execution), execution["metadata"]
        old = self._runs.get(key)
        call, mark = (None, None) if deleted else (CallIdentity.read(metadata), Mark.read(metadata))
        if call is not None and (mark is not None or not is_finished(execution) or key in self._followed):
            self._remove(key)
            self._runs[key] = CalledRun.from_object(execution, call=call, mark=mark)
            self._keys.setdefault((key[0], call.digest), {})[key] = None
            if len(self._runs) > _MAX_RUNS:
                self._remove(next(iter(self._runs)))
        elif old is not None:
            self._remove(key)
        else:
            return
        self._announce((key[0], (call or (old and old.call) or CallIdentity(digest="")).digest))

    def _remove(self, key: ObjectKey) -> None:
        run = self._runs.pop(key, None)
        if run is None:
            return
        index = (key[0], run.call.digest)
        self._keys[index].pop(key, None)
        if not self._keys[index]:
            del self._keys[index]

    def find(self, namespace: str, digest: str) -> list[CalledRun]:
        """Return the runs of a call, newest first."""
        return [self._runs[key] for key in reversed(self._keys.get((namespace, digest), {}))]

    def get(self, key: ObjectKey) -> CalledRun | None:
        """Return a run, if it is here."""
        return self._runs.get(key)

    @contextmanager
    def leaving(self, key: ObjectKey) -> Iterator[None]:
        """Make repeated calls wait while this replica marks a run."""
        self._leaving.add(key)
        try:
            yield
        finally:
            self._leaving.discard(key)
            if (run := self._runs.get(key)) is not None:
                self._announce((key[0], run.call.digest))

    def follow(self, key: ObjectKey) -> None:
        """Keep a run until `unfollow`, also when it has ended."""
        self._followed[key] += 1

    def unfollow(self, key: ObjectKey) -> None:
        """Note that the answer of a run is delivered, or that the run has its mark."""
        self._followed[key] -= 1
        if self._followed[key] > 0:
            return
        del self._followed[key]
        run = self._runs.get(key)
        if run is not None:
            if run.has_ended and run.mark is None:
                self._remove(key)
            self._announce((key[0], run.call.digest))

    def is_leaving(self, key: ObjectKey) -> bool:
        """Return whether this replica may be about to mark a run: its answer is on the way, or its client has left."""
        run = self._runs.get(key)
        return key in self._leaving or (key in self._followed and run is not None and run.has_ended)

    async def wait_while(self, unsettled: Callable[[], bool], index: tuple[str, str], *, seconds: float) -> None:
        """Wait until a condition of the runs of one call no longer holds, for so many seconds at most."""
        change = asyncio.Event()
        self._changes[index].append(change)
        try:
            async with asyncio.timeout(seconds):
                while unsettled():
                    await change.wait()
                    change.clear()
        except TimeoutError:
            return
        finally:
            self._changes[index].remove(change)
            if not self._changes[index]:
                del self._changes[index]

    def _announce(self, index: tuple[str, str]) -> None:
        for change in self._changes.get(index, ()):
            change.set()


def _read_seconds(moment: str) -> float:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return 0.0
