"""How much state one class holds, and where what waits for a change of it is woken up."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("operator", "gateway", "broker", "common", "sandbox_image", "client")
MAX_FIELDS = 20
LARGER = {
    "mcp_exec_operator.metrics.Metrics": "a field is one metric, and holds no state that another field must fit",
}
"""Classes with more fields, and why they are not divided."""


@dataclass(frozen=True)
class Declaration:
    """A class as its source declares it."""

    module: str
    node: ast.ClassDef

    @property
    def path(self) -> str:
        return f"{self.module}.{self.node.name}"

    @property
    def bases(self) -> set[str]:
        return {ast.unparse(base).partition("[")[0] for base in self.node.bases}

    def list_fields(self) -> set[str]:
        """Return the fields of a dataclass, and the attributes that the constructor sets."""
        fields = set(self._list_annotated()) if any("dataclass" in text for text in self._decorators()) else set()
        return fields | {name for method in self._constructors() for name in list_assigned(method)}

    def _decorators(self) -> list[str]:
        return [ast.unparse(decorator) for decorator in self.node.decorator_list]

    def _list_annotated(self) -> Iterator[str]:
        for each in self.node.body:
            if isinstance(each, ast.AnnAssign) and not ast.unparse(each.annotation).startswith(("ClassVar", "InitVar")):
                yield ast.unparse(each.target)

    def _constructors(self) -> Iterator[ast.FunctionDef]:
        for each in self.node.body:
            if isinstance(each, ast.FunctionDef) and each.name in ("__init__", "__post_init__"):
                yield each


def list_assigned(method: ast.FunctionDef) -> Iterator[str]:
    """Yield the attributes of `self` that a method sets."""
    for each in ast.walk(method):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self":
            yield each.attr


def list_sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield each module of the product by its name. Settings have a field for each option."""
    for folder in PACKAGES:
        for path in sorted((ROOT / folder).glob("mcp_exec_*/**/*.py")):
            if path.name != "settings.py":
                yield ".".join(path.relative_to(ROOT / folder).with_suffix("").parts), ast.parse(path.read_text())


@pytest.fixture(scope="module")
def sources() -> dict[str, ast.Module]:
    return dict(list_sources())


def count_fields(sources: dict[str, ast.Module]) -> dict[str, int]:
    """Return the number of fields of each class, with those of its bases."""
    declared = [
        Declaration(module, node)
        for module, tree in sources.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    by_name = {each.node.name: each for each in declared}

    def collect(each: Declaration) -> set[str]:
        inherited = [collect(by_name[base]) for base in each.bases if base in by_name and by_name[base] is not each]
        return each.list_fields().union(*inherited)

    return {each.path: len(collect(each)) for each in declared}


def test_no_class_holds_more_fields_than_can_be_kept_consistent(sources: dict[str, ast.Module]) -> None:
    """Fields that change together are a value of their own."""
    counts = count_fields(sources)
    assert {path: count for path, count in counts.items() if count > MAX_FIELDS and path not in LARGER} == {}
    assert {path for path in LARGER if counts.get(path, 0) <= MAX_FIELDS} == set(), "these need no exception"


def list_wake_ups(tree: ast.AST, method: str = "") -> Iterator[tuple[int, str]]:
    """Yield the line and the method of each use of `set` of a wake-up."""
    for each in ast.iter_child_nodes(tree):
        name = each.name if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) else method
        if isinstance(each, ast.Attribute) and each.attr == "set" and ast.unparse(each.value).endswith("wakeup"):
            yield each.lineno, name
        yield from list_wake_ups(each, name)


def test_only_the_method_changed_of_a_class_sets_its_wake_up(sources: dict[str, ast.Module]) -> None:
    found = [(module, *each) for module, tree in sources.items() for each in list_wake_ups(tree)]
    assert [each for each in found if each[2] != "changed"] == []
    assert len(found) > 10
