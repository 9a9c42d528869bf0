"""The rules of the repository's structure that no other tool holds."""

import tomllib
from collections import defaultdict
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
NOT_PRODUCT = ("build", "tests", "servers", "examples")
MAX_MODULES = 14
NOT_PACKAGES = {"bench"}
"""Folders of scripts, which may hold any number of modules."""


def product_modules() -> list[Path]:
    folders = [folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name[0] not in "._"]
    return [path for folder in folders if folder.name not in NOT_PRODUCT for path in folder.rglob("*.py")]


def test_no_folder_holds_too_many_modules() -> None:
    sizes: dict[str, int] = defaultdict(int)
    for path in product_modules():
        sizes[str(path.parent.relative_to(ROOT))] += path.name != "__init__.py"
    large = {folder: size for folder, size in sizes.items() if size > MAX_MODULES}
    assert {folder: size for folder, size in large.items() if folder not in NOT_PACKAGES} == {}


def test_no_imports_form_a_circle() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    graph = grimp.build_graph(*settings["root_packages"], cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert remove_ends(remove_ends(imports, backwards=False), backwards=True) == {}


def remove_ends(imports: dict[str, set[str]], *, backwards: bool) -> dict[str, set[str]]:
    """Return the imports without the modules that import nothing of the rest; `backwards`, that nothing imports."""
    rest = {module: set(targets) for module, targets in imports.items()}
    while True:
        imported = set().union(*rest.values()) if rest else set()
        ends = {module for module in rest if (module not in imported if backwards else not rest[module])}
        if not ends:
            return rest
        rest = {module: targets - ends for module, targets in rest.items() if module not in ends}
