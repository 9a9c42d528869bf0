"""The file with the code of modules: imports from it are like imports from the modules' own files."""

import dataclasses
import importlib
import inspect
import json.scanner
import marshal
import re
import sys
import wave
from importlib.machinery import SourceFileLoader
from types import ModuleType

import pytest

from mcp_exec_sandbox import bundle
from mcp_exec_sandbox.bundle import BundleFinder, forget_start, install
from mcp_exec_sandbox.bundle_builder import build
from mcp_exec_sandbox.import_locks import Precompiled, lock_imports

COMPILER = importlib.import_module("re._compiler")
COMPILING = """
import dataclasses, re

@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int = 2

WORD = re.compile("(?P<letter>[a-z])[0-9]+", re.ASCII)
DIGITS = re.compile(rb"[0-9]+")
"""


@pytest.fixture
def make_bundle(tmp_path, monkeypatch):
    """Writes a bundle of `first` and `later` modules, and installs it for a test."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(bundle, "FILE", str(tmp_path / "modules.bundle"))
    monkeypatch.setattr(COMPILER, "compile", COMPILER.compile)

    def make(
        first: list[ModuleType],
        later: list[ModuleType],
        *,
        lazy: frozenset[str] = frozenset(),
        precompiled: Precompiled | None = None,
    ) -> BundleFinder:
        monkeypatch.setattr(bundle, "LAZY", lazy)
        (tmp_path / "modules.bundle").write_bytes(build(first, later, precompiled or Precompiled({}, {})))
        for module in (*first, *later):
            monkeypatch.delitem(sys.modules, module.__name__)
        install()
        finder = sys.meta_path[0]
        assert isinstance(finder, BundleFinder)
        return finder

    yield make
    lock_imports()
    vars(dataclasses).pop("exec", None)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_module_of_the_bundle_has_its_file_and_its_source(make_bundle, is_first):
    finder = make_bundle([wave] if is_first else [], [] if is_first else [wave])
    found = importlib.import_module("wave")
    assert found is not wave
    assert finder.find_spec("wave") is None, "it did not come from the bundle"
    assert type(found.__spec__.loader) is SourceFileLoader
    assert (found.__file__, found.__cached__) == (wave.__file__, wave.__cached__)
    assert inspect.getsource(found) == inspect.getsource(wave)
    assert importlib.reload(found) is found


def test_packages_and_their_modules_are_found(make_bundle):
    make_bundle([json, json.scanner], [])
    assert importlib.import_module("json.scanner").__spec__.parent == "json"
    assert list(sys.modules["json"].__path__) == list(json.__path__)


def test_what_every_sandbox_imports_is_forgotten_after_the_start_and_the_rest_is_not(make_bundle):
    finder = make_bundle([wave], [json.scanner])
    forget_start()
    assert finder.find_spec("wave") is None
    assert finder.find_spec("json.scanner") is not None
    assert importlib.import_module("wave").__file__ == wave.__file__


def test_modules_of_another_system_are_searched_for_only_after_the_start(make_bundle, tmp_path, monkeypatch):
    (tmp_path / "msvcrt.py").write_text("name = 'of the code'")
    monkeypatch.syspath_prepend(tmp_path)
    make_bundle([wave], [])
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'msvcrt'$") as raised:
        importlib.import_module("msvcrt")
    assert raised.value.name == "msvcrt"
    forget_start()
    assert importlib.import_module("msvcrt").name == "of the code"
    monkeypatch.delitem(sys.modules, "msvcrt")


def test_a_lazy_module_runs_when_it_is_used(make_bundle):
    make_bundle([wave], [], lazy=frozenset({"wave"}))
    found = importlib.import_module("wave")
    assert "Wave_read" not in vars(found)
    assert found is importlib.import_module("wave")
    assert found.Wave_read.__module__ == "wave"
    assert "Wave_write" in vars(found)
    with pytest.raises(AttributeError, match="no_such_name"):
        found.no_such_name  # noqa: B018


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 7, (99).to_bytes(8, "big"), (5).to_bytes(8, "big") + b"abcde"],
)
def test_a_damaged_bundle_is_ignored(make_bundle, tmp_path, content):
    make_bundle([wave], [])
    del sys.meta_path[0]
    (tmp_path / "modules.bundle").write_bytes(content)
    install()
    assert not any(isinstance(finder, BundleFinder) for finder in sys.meta_path)


def test_the_bundle_of_another_python_is_ignored(make_bundle, tmp_path):
    make_bundle([wave], [])
    del sys.meta_path[0]
    head = marshal.dumps(("3.11.0", 0, {}, {}, {}))
    (tmp_path / "modules.bundle").write_bytes(len(head).to_bytes(8, "big") + head)
    install()
    assert not any(isinstance(finder, BundleFinder) for finder in sys.meta_path)


@pytest.fixture
def compiling(tmp_path, monkeypatch):
    """A module with a dataclass and patterns, and what was compiled for it."""
    (tmp_path / "compiling.py").write_text(COMPILING)
    monkeypatch.syspath_prepend(tmp_path)
    re.purge()
    precompiled = Precompiled({}, {})
    precompiled.record()
    module = importlib.import_module("compiling")
    recorded = Precompiled(dict(precompiled.functions), dict(precompiled.patterns))
    precompiled.forget()
    monkeypatch.setitem(sys.modules, "compiling", module)
    re.purge()
    return module, recorded


def test_a_bundled_module_compiles_neither_its_dataclasses_nor_its_patterns(make_bundle, compiling, monkeypatch):
    module, recorded = compiling
    make_bundle([module], [], precompiled=recorded)
    with monkeypatch.context() as patched:
        patched.setattr("re._parser.parse", None)
        found = importlib.import_module("compiling")
    assert found is not module
    assert (found.WORD, found.DIGITS) == (module.WORD, module.DIGITS)
    assert found.WORD.fullmatch("a12").groupdict() == {"letter": "a"}
    assert found.Point(1) == found.Point(x=1, y=2)
    assert repr(found.Point(1)) == "Point(x=1, y=2)"
    assert str(inspect.signature(found.Point)) == "(x: int, y: int = 2) -> None"
    compiled = sys.meta_path[0].precompiled.functions.values()
    assert found.Point.__init__.__code__ in [each for code in compiled for each in list_codes(code)]


def test_only_the_start_imports_without_locks(make_bundle):
    system = importlib.import_module("_frozen_importlib")
    names = ("_ModuleLockManager", "_ImportLockContext", "_lock_unlock_module")
    usual = [getattr(system, name) for name in names]
    make_bundle([wave], [])
    assert all(getattr(system, name) is not each for name, each in zip(names, usual, strict=True))
    assert importlib.import_module("wave").Wave_read
    forget_start()
    assert [getattr(system, name) for name in names] == usual


def test_after_the_start_all_is_compiled_as_usual(make_bundle, compiling):
    module, recorded = compiling
    make_bundle([], [], precompiled=recorded)
    forget_start()
    assert "exec" not in vars(dataclasses)
    assert COMPILER.compile.__module__ == "re._compiler"
    assert importlib.reload(module).Point(1).y == 2


def test_what_the_bundle_lacks_is_compiled(make_bundle, compiling):
    module, _ = compiling
    make_bundle([module], [])
    found = importlib.import_module("compiling")
    assert found.Point(1).y == 2
    assert found.WORD == module.WORD


def list_codes(code):
    """All code objects in one, itself included."""
    inner = [each for each in code.co_consts if inspect.iscode(each)]
    return [code, *(each for part in inner for each in list_codes(part))]
