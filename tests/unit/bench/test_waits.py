"""Limits of the benchmarks' waits, and that every wait has one."""

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from waits import WaitTimedOut, within

BENCH = Path(__file__).parents[3] / "bench"
UNTIL_A_SIGNAL = {("nodes.py", "simulate"), ("nodes.py", "work"), ("stamps.py", "_run_timer")}
"""Functions that last as long as their program."""
Place = tuple[str, str, str]


async def test_a_wait_that_ends_at_its_limit_says_what_it_waited_for_and_what_there_was() -> None:
    with pytest.raises(WaitTimedOut, match=r"^waited 0\.01 s for 3 warm pods, but had 1$"):
        async with within(0.01, "3 warm pods", state=lambda: 1):
            await asyncio.Event().wait()


async def test_an_error_of_what_is_waited_for_passes() -> None:
    with pytest.raises(TimeoutError) as raised:
        async with within(5, "an answer"):
            raise TimeoutError("of the connection")
    assert (type(raised.value), str(raised.value)) == (TimeoutError, "of the connection")


def name_of(call: ast.Call) -> str:
    """Return the last part of a called function's name."""
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "")


def find_unlimited(node: ast.AST, place: tuple[str, str], *, limited: bool, looping: bool = False) -> Iterator[Place]:
    """Yield the waits below a node that no `within` or timeout ends."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        place, limited, looping = (place[0], node.name), place[0] == "waits.py", False
    if isinstance(node, ast.AsyncWith):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        limited = limited or "within" in map(name_of, calls)
    looping = looping or isinstance(node, ast.While)
    if isinstance(node, ast.Call) and not limited:
        has_limit = bool({"timeout", "timeout_seconds"} & {each.arg for each in node.keywords})
        own = ast.unparse(node.func)
        bare = own.endswith((".wait", ".communicate")) and not node.args and not has_limit
        group = own == "asyncio.wait" and not has_limit
        process = own in ("subprocess.run", "subprocess.check_call", "subprocess.check_output") and not has_limit
        unnamed = own in ("asyncio.timeout", "asyncio.wait_for")
        if bare or group or process or unnamed or (own.endswith("sleep") and looping):
            yield (*place, ast.unparse(node))
    for child in ast.iter_child_nodes(node):
        yield from find_unlimited(child, place, limited=limited, looping=looping)


def test_every_wait_has_a_limit_that_names_it() -> None:
    found = [
        each
        for path in sorted(BENCH.glob("*.py"))
        for each in find_unlimited(ast.parse(path.read_text()), (path.name, ""), limited=False)
    ]
    assert [each for each in found if each[:2] not in UNTIL_A_SIGNAL] == []


@pytest.mark.parametrize(
    "code",
    [
        "async def f():\n    await done.wait()",
        "async def f():\n    await process.communicate()",
        "async def f():\n    while True:\n        await asyncio.sleep(1)",
        "async def f():\n    async with asyncio.timeout(3):\n        pass",
        "def f():\n    subprocess.run(['kubectl', 'wait'])",
        "def f():\n    process.wait()",
    ],
)
def test_a_wait_without_a_limit_is_found(code: str) -> None:
    assert list(find_unlimited(ast.parse(code), ("any.py", ""), limited=False)) != []
