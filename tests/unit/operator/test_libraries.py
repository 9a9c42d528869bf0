"""Libraries of pools, and what other pools of the namespace have."""

from mcp_exec_api.sandbox_pool import Library
from mcp_exec_common.supervisor.protocol import MAX_HINTED_POOLS, MAX_HINTS, SandboxLibraries
from mcp_exec_operator.core.pools.libraries import NamespaceLibraries, PoolLibraries


def image(python: str = "3.11.2", **versions: str) -> SandboxLibraries:
    libraries = tuple(Library(name=name, version=version, imports=[name]) for name, version in versions.items())
    return SandboxLibraries(python=python, libraries=libraries)


def pool(name: str, namespace: NamespaceLibraries, libraries: SandboxLibraries) -> PoolLibraries:
    made = PoolLibraries(pool=name, namespace=namespace)
    made.set(libraries, template="a")
    return made


def test_hints_change_when_a_pool_changes_or_goes() -> None:
    namespace = NamespaceLibraries()
    plain, data = pool("default", namespace, image()), pool("data", namespace, image(pandas="2.3"))
    assert plain.find_missing("a") == {"pandas": [["data", "2.3"]]}
    assert plain.find_missing("a") is plain.find_missing("a")
    data.set(image(pandas="3.0"), template="b")
    assert plain.find_missing("a") == {"pandas": [["data", "3.0"]]}
    data.clear()
    assert plain.find_missing("a") == {}


def test_hints_are_bounded_and_keep_the_largest_libraries() -> None:
    namespace = NamespaceLibraries()
    plain = pool("default", namespace, image())
    for number in range(20):
        pool(f"p{number}", namespace, image(**{f"lib{rank:02}": "1" for rank in range(90)}))
    hints = plain.find_missing("a")
    assert list(hints) == [f"lib{rank:02}" for rank in range(MAX_HINTS)]
    assert {len(pools) for pools in hints.values()} == {MAX_HINTED_POOLS}
