"""The store against a model, with crashes at every write: what was acknowledged stays, and half of nothing is seen."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.files_store import SPACE, Crash, FilesWorld
from tests.support.fuzz import fuzz_settings

from mcp_exec_api.wire.workspaces import KEEP_VERSIONS
from mcp_exec_broker.features.files.collector import GRACE_SECONDS
from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.workspace.states import WorkspaceState
from mcp_exec_common.broker.files import FilesReason

PATHS = st.sampled_from(["a", "b", "c/d", "c/e", "f"])
CONTENTS = st.binary(max_size=3)
FILES = st.dictionaries(PATHS, CONTENTS, max_size=4)
CRASHES = st.none() | st.tuples(st.integers(1, 8), st.sampled_from(["before", "after", "collector"]))
"""The write where the process ends, before or after it, or the collector of another replica runs."""

Files = dict[str, bytes]


class StoreMachine(RuleBasedStateMachine):
    """One workspace, written by executions and others, restored, deleted and collected."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.world = FilesWorld()
        self.replica = self.world.build()
        """Another replica, which never crashes."""
        self.id = ""
        """Id of the workspace; empty if there is none."""
        self.versions: dict[int, Files] = {}
        """All versions that were committed; only the last ones are kept."""
        self.uploaded: dict[str, Files] = {}
        """Contents that executions have uploaded and not committed."""
        self.snapshots: list[tuple[str, int]] = []
        """Ids and versions that executions have read."""
        self.count = 0

    def teardown(self) -> None:
        self.runner.close()

    @property
    def head(self) -> int:
        return max(self.versions, default=0)

    def attempt(self, work: Awaitable[Any], crash: tuple[int, str] | None) -> Any:
        """Do something; return its result, the reason why it was refused, or Crash."""

        async def run() -> Any:
            try:
                return await work
            except FilesRefused as error:
                return error.reason
            except Crash:
                return Crash

        if crash:
            self.world.storage.writes_left, self.world.storage.loses_last = crash[0], crash[1] == "before"
            self.world.storage.between = self.replica.collector.run if crash[1] == "collector" else None
        result = self.runner.run(run())
        self.world.storage.writes_left = self.world.storage.between = None
        assert result is not FilesReason.UNAVAILABLE
        if result is Crash:
            self.world.restart()
        return result

    def find(self) -> WorkspaceState | None:
        return self.runner.run(self.world.store.states.find(SPACE, "data"))

    def settle(self, result: Any, new: Files, *, before: Files) -> None:
        """Note what a commit has done; after a crash, whichever of the two is there."""
        assert not isinstance(result, FilesReason), result
        if result is Crash:
            state = self.find()
            if state is None or state.id != self.id:
                return
            found = self.runner.run(self.world.store.versions.find_head(SPACE, state.id))
            assert found in (self.head, self.head + 1)
            if found == self.head:
                return
        else:
            assert result.version == (self.head if new == before else self.head + 1)
        if new != before:
            self.versions[self.head + 1] = new

    @rule(crash=CRASHES)
    def open(self, crash: tuple[int, str] | None) -> None:
        result = self.attempt(self.world.store.states.open(SPACE, "data"), crash)
        state = self.find()
        assert result is Crash or (state is not None and result.id == state.id)
        if state is not None and state.id != self.id:
            assert self.id == ""
            self.id, self.versions = state.id, {}
        if state is not None:
            self.snapshots.append((state.id, self.head))

    @precondition(lambda self: self.id)
    @rule(files=FILES, choice=st.integers(0, 3), crash=CRASHES)
    def commit(self, files: Files, choice: int, crash: tuple[int, str] | None) -> None:
        state = self.find()
        assert state is not None
        mine = [version for id, version in self.snapshots if id == state.id]
        base = mine[-1 - choice % len(mine)]
        self.count += 1
        before = self.versions.get(self.head, {})
        result = self.attempt(self.world.commit(state, files, base=base, execution=f"uid-{self.count}"), crash)
        merged = merge(self.versions.get(base, {}), files, before)
        if merged is None or (base and base <= self.head - KEEP_VERSIONS):
            assert result in (FilesReason.CONFLICT, Crash)
            return
        self.settle(result, merged, before=before)
        if result is not Crash and not isinstance(result, FilesReason) and merged != before:
            again = self.attempt(self.world.commit(state, files, base=base, execution=f"uid-{self.count}"), None)
            assert again.version == result.version  # the answer was lost, and the sandbox repeats
            self.snapshots.append((state.id, self.head))

    @precondition(lambda self: self.id)
    @rule(files=FILES)
    def upload(self, files: Files) -> None:
        state = self.find()
        assert state is not None
        self.count += 1
        self.attempt(self.world.upload(state, f"uid-{self.count}", files.values()), None)
        self.uploaded[f"uid-{self.count}"] = files

    @precondition(lambda self: self.id and self.uploaded)
    @rule(choice=st.integers(0, 3), crash=CRASHES)
    def commit_upload(self, choice: int, crash: tuple[int, str] | None) -> None:
        state = self.find()
        assert state is not None
        execution = sorted(self.uploaded)[choice % len(self.uploaded)]
        files, before = self.uploaded.pop(execution), self.versions.get(self.head, {})
        work = self.world.commit(state, files, base=self.head, execution=execution, uploads=False)
        result = self.attempt(work, crash)
        if result is not FilesReason.MISSING:
            self.settle(result, files, before=before)

    @rule()
    def collect_at_the_replica(self) -> None:
        self.attempt(self.replica.collector.run(), None)

    @precondition(lambda self: self.id)
    @rule(path=PATHS, content=CONTENTS, crash=CRASHES)
    def put(self, path: str, content: bytes, crash: tuple[int, str] | None) -> None:
        state = self.find()
        assert state is not None
        before = self.versions.get(self.head, {})
        self.settle(self.attempt(self.world.put(state, path, content), crash), before | {path: content}, before=before)

    @precondition(lambda self: self.versions)
    @rule(back=st.integers(0, 12), crash=CRASHES)
    def restore(self, back: int, crash: tuple[int, str] | None) -> None:
        state, version = self.find(), self.head - back
        assert state is not None
        result = self.attempt(self.world.store.workspaces.restore(SPACE, state, version), crash)
        if back >= KEEP_VERSIONS or version < 1:
            assert result in (FilesReason.NO_VERSION, Crash)
            return
        self.settle(result, self.versions[version], before=self.versions[self.head])

    @precondition(lambda self: self.id)
    @rule(crash=CRASHES)
    def delete(self, crash: tuple[int, str] | None) -> None:
        result = self.attempt(self.world.store.states.delete(SPACE, "data"), crash)
        state = self.find()
        assert result is Crash or state is None
        if state is None:
            self.id, self.versions = "", {}

    @rule(crash=CRASHES)
    def collect(self, crash: tuple[int, str] | None) -> None:
        self.attempt(self.world.store.collector.run(), crash)

    @rule(seconds=st.sampled_from([1.0, 400.0, GRACE_SECONDS / 2 + 1, GRACE_SECONDS + 1]))
    def wait(self, seconds: float) -> None:
        self.world.seconds += seconds

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @invariant()
    def what_was_committed_can_be_read(self) -> None:
        state = self.find()
        assert (state.id if state else "") == self.id
        if state is not None:
            kept = [version for version in self.versions if version > self.head - KEEP_VERSIONS]
            assert self.runner.run(self.world.store.versions.list_numbers(SPACE, state.id)) == kept[::-1]
            for version in kept:
                assert self.runner.run(self.world.read(state, version)) == self.versions[version]


def merge(base: Files, mine: Files, head: Files) -> Files | None:
    """Return what must come of changes from `base` to `mine` and to `head`, or None if they touch the same file."""
    merged = {}
    for path in base.keys() | mine.keys() | head.keys():
        states = base.get(path), mine.get(path), head.get(path)
        chosen = states[2] if states[1] == states[0] else states[1]
        if states[1] != states[0] and states[2] != states[0] and states[1] != states[2]:
            return None
        if chosen is not None:
            merged[path] = chosen
    return merged


StoreMachine.TestCase.settings = fuzz_settings(25, stateful_step_count=25)
TestStoreMachine = pytest.mark.fuzz(StoreMachine.TestCase)
