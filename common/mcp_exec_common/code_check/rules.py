"""Static check of code before it runs: risky calls, imports, formatted SQL, endless loops and large values.

The check reads the syntax tree and executes nothing. It helps to find mistakes and is one more obstacle for attackers,
but not a boundary: Python can express every call in more ways than a list of rules can cover.
"""

import ast
import sys
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
from mcp_exec_api.meta import parse_quantity
from mcp_exec_common.code_check.estimates import SizeEstimator, find_endless_loops
from mcp_exec_common.code_check.sql import Bindings, FormattedSqlDetector
from mcp_exec_tools.source.installers import NETWORK_SENTENCE
from mcp_exec_tools.source.repair import needs_newer_python, repair

MAX_CHECKED_BYTES: Final = 32 * 1024
"""Longer code is not checked: parsing 256 KiB takes up to a second and blocks the process."""
SANDBOX_MODULES: Final = frozenset({"__future__", "client", "servers", "skills", "tool_discovery"})
"""Modules that are always allowed."""

_MAX_NAME_PARTS: Final = 4
_PARSER_LOCK: Final = threading.Lock()
"""Held during parsing, because it silences warnings for the whole process."""

_HIGH_SEVERITY: Final = frozenset({Rule.DYNAMIC_CODE, Rule.SUBPROCESS, Rule.NATIVE_CODE})
_ADVICE: Final = {
    Rule.DYNAMIC_CODE: "executes text as code; write the code itself",
    Rule.SUBPROCESS: "starts a process; use Python or a tool instead",
    Rule.NATIVE_CODE: "calls native code; use Python or a tool instead",
    Rule.NETWORK: NETWORK_SENTENCE,
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
_PROCESS_PREFIXES: Final = ("system", "popen", "exec", "spawn", "posix_spawn", "fork")
"""Prefixes of the functions of `os` that start a process."""
_FUNCTIONS: Final = {
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
_STAR_IMPORTS: Final = {"os": Rule.SUBPROCESS, "posix": Rule.SUBPROCESS, "builtins": Rule.DYNAMIC_CODE}
"""Modules whose `import *` imports such functions."""


def check_code(code: str, rules: CodeCheck) -> list[Finding]:
    """Return the findings by a pool's rules; none if the check is off."""
    if rules.mode is CodeCheckMode.OFF:
        return []
    return find_issues(code, allowed_imports=rules.allowed_imports, memory=int(parse_quantity(rules.memory)))


def find_issues(code: str, *, allowed_imports: Sequence[str] = ("*",), memory: int | None = None) -> list[Finding]:
    """Return the findings in the code, High severity first, at most MAX_FINDINGS.

    `allowed_imports` are modules, each with its submodules; `*` is every module. `memory` is the largest value in
    bytes; None means no limit. Invalid Python has no findings, because running it gives a better error. Takes about a
    millisecond per KiB.
    """
    if len(code.encode("utf-8", "surrogatepass")) > MAX_CHECKED_BYTES:
        return [_not_checked(f"code of more than {MAX_CHECKED_BYTES} bytes is not checked; pass data in `context`")]
    try:
        inspection = _Inspection(_parse_as_sandbox(code), allowed_imports, memory)
        # one per rule and line: each part of a dotted name would be a finding of its own
        findings = {(finding.rule, finding.line): finding for finding in inspection.find_issues()}
    except SyntaxError as error:
        if needs_newer_python(error, code, version=sys.version_info[:2]):
            return [_not_checked(f"the check reads Python {sys.version_info[0]}.{sys.version_info[1]}: {error.msg}")]
        return []
    except ValueError:
        return []
    except (RecursionError, MemoryError):
        return [_not_checked("the code is nested too deeply to be checked")]
    return sorted(findings.values(), key=lambda finding: (finding.severity is not Severity.HIGH, finding.line))[
        :MAX_FINDINGS
    ]


def _parse_as_sandbox(code: str) -> ast.Module:
    """Return the syntax tree of what a sandbox runs: without Markdown fences and magics. Raises as `parse_module`."""
    try:
        return parse_module(code)
    except SyntaxError as error:
        return repair(code, error, parse=parse_module).tree


def parse_module(code: str) -> ast.Module:
    """Return the syntax tree. Raises SyntaxError, ValueError, RecursionError or MemoryError."""
    with _PARSER_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = compile(code, "<agent>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)  # noqa: S101 - narrows the type
    return tree


def _not_checked(message: str) -> Finding:
    return Finding(rule=Rule.NOT_CHECKED, severity=Severity.MEDIUM, line=1, message=message)


def _create_finding(rule: Rule, node: ast.stmt | ast.expr, message: str) -> Finding:
    severity = Severity.HIGH if rule in _HIGH_SEVERITY else Severity.MEDIUM
    return Finding(rule=rule, severity=severity, line=node.lineno, message=message[:MAX_MESSAGE_CHARACTERS])


class _Inspection:
    """One inspection of one syntax tree."""

    def __init__(self, tree: ast.Module, allowed_imports: Sequence[str], memory: int | None) -> None:
        self._tree = tree
        self._nodes = list(ast.walk(tree))
        self._allowed = allowed_imports
        self._memory = memory
        self._aliases: dict[str, str] = {}
        """Dotted names by imported name. If a name is imported twice, the last import counts."""

    def find_issues(self) -> Iterator[Finding]:
        """Yield all findings in no particular order."""
        for node in self._nodes:
            if isinstance(node, ast.Import):
                yield from self._check_import(node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from self._check_import_from(node, node.module)
        bindings = Bindings(self._nodes)
        sql = FormattedSqlDetector(bindings=bindings)
        for node in self._nodes:
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                if rule := _find_rule(name := self._resolve_name(node)):
                    yield _create_finding(rule, node, f"{name}: {_ADVICE[rule]}")
            elif isinstance(node, ast.Call) and sql.sends_formatted_sql(node, called=self._resolve_name(node.func)):
                message = "formats values into the text of a query; pass them as parameters"
                yield _create_finding(Rule.FORMATTED_SQL, node, message)
        yield from self._check_estimates(bindings)

    def _check_estimates(self, bindings: Bindings) -> Iterator[Finding]:
        for loop in find_endless_loops(self._tree, self._resolve_name):
            yield _create_finding(
                Rule.ENDLESS_LOOP, loop, "the loop never ends; break when done, or limit its iterations"
            )
        if self._memory is None:
            return
        sizes = SizeEstimator(self._resolve_name, bindings)
        for node in self._nodes:
            if isinstance(node, ast.expr) and (size := sizes.estimate_bytes(node)) > self._memory:
                message = f"a value of at least {size >> 20:,} MiB, of {self._memory >> 20:,} MiB; work on parts of it"
                yield _create_finding(Rule.LARGE_VALUE, node, message)

    def _check_import(self, node: ast.Import) -> Iterator[Finding]:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self._aliases[alias.asname or top] = alias.name if alias.asname else top
            yield from self._check_module(node, alias.name)

    def _check_import_from(self, node: ast.ImportFrom, module: str) -> Iterator[Finding]:
        yield from self._check_module(node, module)
        for alias in node.names:
            name = f"{module}.{alias.name}"
            self._aliases[alias.asname or alias.name] = name
            rule = _STAR_IMPORTS.get(module) if alias.name == "*" else _find_rule(name) or _MODULES.get(name)
            if rule:
                yield _create_finding(rule, node, f"{name}: {_ADVICE[rule]}")

    def _check_module(self, node: ast.stmt, module: str) -> Iterator[Finding]:
        top, shown = module.partition(".")[0], module[:100]
        if rule := _MODULES.get(top):
            yield _create_finding(rule, node, f"import of {shown}: {_ADVICE[rule]}")
        is_allowed = top in SANDBOX_MODULES or any(
            allowed in ("*", module) or module.startswith(allowed + ".") for allowed in self._allowed
        )
        if not is_allowed:
            message = f"import of {shown}: the pool allows {', '.join(self._allowed)[:100] or 'no modules'}"
            yield _create_finding(Rule.IMPORT_NOT_ALLOWED, node, message)

    def _resolve_name(self, node: ast.expr) -> str:
        """Return the dotted name of an expression, resolved by the imports, or "" if it has none or a very long one."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < _MAX_NAME_PARTS:
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._aliases.get(node.id, node.id), *reversed(parts)])


def _find_rule(name: str) -> Rule | None:
    if name in _BUILTINS or (name.partition(".")[0] == "builtins" and name.removeprefix("builtins.") in _BUILTINS):
        return Rule.DYNAMIC_CODE
    module, _, rest = name.partition(".")
    if module in ("os", "posix") and rest.startswith(_PROCESS_PREFIXES):
        return Rule.SUBPROCESS
    return _FUNCTIONS.get(name)
