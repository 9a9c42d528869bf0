"""What stands out in an agent's code before it runs: calls that it seldom needs, imports, values put into SQL text, and
what it would take too much of.

It reads the code's syntax tree and runs nothing. It is help for honest code and one more hurdle for other code, never a
boundary: Python has more ways to say a thing than any list has.
"""

import ast
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Final

from mcp_exec_api.code_findings import (
    MAX_FINDINGS,
    MAX_MESSAGE_CHARACTERS,
    CodeCheck,
    CodeCheckMode,
    Finding,
    Rule,
    Severity,
)
from mcp_exec_api.quantity import parse_quantity
from mcp_exec_common.code_check.estimates import Sizes, endless_loops
from mcp_exec_common.code_check.sql import Bindings, formatted_sql

MAX_CHECKED_BYTES: Final = 32 * 1024
"""Longer code is not looked at: to parse 256 KiB takes up to a second, in which a process does nothing else."""
SANDBOX_MODULES: Final = frozenset({"__future__", "client", "servers", "skills", "tool_discovery"})
"""Modules that no list of allowed imports needs to name."""

_DEEPEST_NAME: Final = 4
_PARSER: Final = threading.Lock()
"""Warnings are silenced for the whole process."""


_SEVERE: Final = frozenset({Rule.DYNAMIC_CODE, Rule.SUBPROCESS, Rule.NATIVE_CODE})
_ADVICE: Final = {
    Rule.DYNAMIC_CODE: "it turns text into code; write the code itself",
    Rule.SUBPROCESS: "it starts a process; do it in Python, or by a tool",
    Rule.NATIVE_CODE: "it leaves Python; do it in Python, or by a tool",
    Rule.NETWORK: "a sandbox has no network; call a tool",
}
_MODULES: Final = {
    "subprocess": Rule.SUBPROCESS,
    "_posixsubprocess": Rule.SUBPROCESS,
    "pty": Rule.SUBPROCESS,
    "ctypes": Rule.NATIVE_CODE,
    "_ctypes": Rule.NATIVE_CODE,
    "cffi": Rule.NATIVE_CODE,
    "socket": Rule.NETWORK,
    "_socket": Rule.NETWORK,
}
_BUILTINS: Final = frozenset({"eval", "exec", "compile", "__import__"})
_STARTS: Final = ("system", "popen", "exec", "spawn", "posix_spawn", "fork")
"""What the names of `os` that start a process begin with."""
_NAMES: Final = {
    "importlib.import_module": Rule.DYNAMIC_CODE,
    "importlib.__import__": Rule.DYNAMIC_CODE,
    "runpy.run_path": Rule.DYNAMIC_CODE,
    "runpy.run_module": Rule.DYNAMIC_CODE,
    "asyncio.create_subprocess_exec": Rule.SUBPROCESS,
    "asyncio.create_subprocess_shell": Rule.SUBPROCESS,
    "asyncio.open_connection": Rule.NETWORK,
    "asyncio.open_unix_connection": Rule.NETWORK,
    "asyncio.start_server": Rule.NETWORK,
}
_STARRED: Final = {"os": Rule.SUBPROCESS, "posix": Rule.SUBPROCESS, "builtins": Rule.DYNAMIC_CODE}
"""Modules of which `import *` brings such names."""


def check_code(code: str, rules: CodeCheck) -> list[Finding]:
    """Return what the rules find in the code; nothing if the check is off. Takes about a millisecond per KiB."""
    if rules.mode is CodeCheckMode.OFF:
        return []
    return find_issues(code, allowed_imports=rules.allowed_imports, memory=int(parse_quantity(rules.memory)))


def find_issues(code: str, *, allowed_imports: Sequence[str] = ("*",), memory: int | None = None) -> list[Finding]:
    """What stands out in the code, the gravest first, at most MAX_FINDINGS.

    `allowed_imports` are modules, each with all below it; `*` is every module. `memory` is the
    bytes that a value may take; None is any. Code that is no Python has no findings: running it says better what is
    wrong. Takes about a millisecond for each KiB.
    """
    if len(code.encode("utf-8", "surrogatepass")) > MAX_CHECKED_BYTES:
        return [_not_checked(f"code of more than {MAX_CHECKED_BYTES} bytes is not checked; pass data in `context`")]
    try:
        look = _Look(_parsed(code), allowed_imports, memory)
        # one for each rule and line: a chain of names would be found once for each of its parts
        found = {(each.rule, each.line): each for each in look.find_issues()}
    except (SyntaxError, ValueError):
        return []
    except (RecursionError, MemoryError):
        return [_not_checked("the code is nested too deeply to be checked")]
    return sorted(found.values(), key=lambda each: (each.severity is not Severity.HIGH, each.line))[:MAX_FINDINGS]


def _parsed(code: str) -> ast.Module:
    with _PARSER, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = compile(code, "<agent>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)  # noqa: S101 - narrows the type
    return tree


def _not_checked(message: str) -> Finding:
    return Finding(rule=Rule.NOT_CHECKED, severity=Severity.MEDIUM, line=1, message=message)


def _found(rule: Rule, node: ast.stmt | ast.expr, message: str) -> Finding:
    severity = Severity.HIGH if rule in _SEVERE else Severity.MEDIUM
    return Finding(rule=rule, severity=severity, line=node.lineno, message=message[:MAX_MESSAGE_CHARACTERS])


class _Look:
    """One look at one tree."""

    def __init__(self, tree: ast.Module, allowed_imports: Sequence[str], memory: int | None) -> None:
        self._tree = tree
        self._nodes = list(ast.walk(tree))
        self._allowed = allowed_imports
        self._memory = memory
        self._aliases: dict[str, str] = {}
        """What imported names stand for; of a name that is imported twice, the last counts."""

    def find_issues(self) -> Iterator[Finding]:
        """All of them, in no order."""
        for node in self._nodes:
            if isinstance(node, ast.Import):
                yield from self._import(node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from self._import_from(node, node.module)
        bindings = Bindings(self._nodes)
        for node in self._nodes:
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                if rule := _rule_of(name := self._name(node)):
                    yield _found(rule, node, f"{name}: {_ADVICE[rule]}")
            elif isinstance(node, ast.Call) and formatted_sql(node, called=self._name(node.func), bindings=bindings):
                message = "values are put into the text of a query; pass them as its parameters"
                yield _found(Rule.FORMATTED_SQL, node, message)
        yield from self._estimates(bindings)

    def _estimates(self, bindings: Bindings) -> Iterator[Finding]:
        for loop in endless_loops(self._tree, self._name):
            yield _found(Rule.ENDLESS_LOOP, loop, "the loop has no way out; break when done, or count its rounds")
        if self._memory is None:
            return
        sizes = Sizes(self._name, bindings)
        for node in self._nodes:
            if isinstance(node, ast.expr) and (size := sizes.bytes_at_least(node)) > self._memory:
                message = f"a value of at least {size >> 20:,} MiB, of {self._memory >> 20:,} MiB; work on parts of it"
                yield _found(Rule.LARGE_VALUE, node, message)

    def _import(self, node: ast.Import) -> Iterator[Finding]:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self._aliases[alias.asname or top] = alias.name if alias.asname else top
            yield from self._module(node, alias.name)

    def _import_from(self, node: ast.ImportFrom, module: str) -> Iterator[Finding]:
        yield from self._module(node, module)
        for alias in node.names:
            name = f"{module}.{alias.name}"
            self._aliases[alias.asname or alias.name] = name
            rule = _STARRED.get(module) if alias.name == "*" else _rule_of(name) or _MODULES.get(name)
            if rule:
                yield _found(rule, node, f"{name}: {_ADVICE[rule]}")

    def _module(self, node: ast.stmt, module: str) -> Iterator[Finding]:
        top, shown = module.partition(".")[0], module[:100]
        if rule := _MODULES.get(top):
            yield _found(rule, node, f"import of {shown}: {_ADVICE[rule]}")
        allowed = top in SANDBOX_MODULES or any(
            each == "*" or module == each or module.startswith(each + ".") for each in self._allowed
        )
        if not allowed:
            message = f"import of {shown}: the pool allows {', '.join(self._allowed)[:100] or 'no modules'}"
            yield _found(Rule.IMPORT_NOT_ALLOWED, node, message)

    def _name(self, node: ast.expr) -> str:
        """The dotted name that an expression stands for, by the imports; empty where it is none or a long one."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < _DEEPEST_NAME:
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._aliases.get(node.id, node.id), *reversed(parts)])


def _rule_of(name: str) -> Rule | None:
    if name in _BUILTINS or (name.partition(".")[0] == "builtins" and name.removeprefix("builtins.") in _BUILTINS):
        return Rule.DYNAMIC_CODE
    module, _, rest = name.partition(".")
    if module in ("os", "posix") and rest.startswith(_STARTS):
        return Rule.SUBPROCESS
    return _NAMES.get(name)
