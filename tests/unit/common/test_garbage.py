"""Objects of the start of a process are exempt from garbage collection, and later ones are not."""

import gc
import weakref

from mcp_exec_common.process.setup import exempt_started_objects


class Node:
    """An object that may refer to itself."""

    itself: "Node"


def make_garbage() -> "weakref.ref[Node]":
    node = Node()
    node.itself = node
    return weakref.ref(node)


def test_later_garbage_is_collected_and_the_objects_of_the_start_are_not_looked_at() -> None:
    kept = [Node()]
    early = make_garbage()
    exempt_started_objects()
    try:
        assert gc.get_freeze_count() > len(gc.get_objects())
        assert not any(each is kept for each in gc.get_objects())
        late = make_garbage()
        gc.collect()
        assert (early(), late()) == (None, None)
    finally:
        gc.unfreeze()
