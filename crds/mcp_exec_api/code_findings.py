"""Static check of an execution's code: a pool's rules, and what was found."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from mcp_exec_api.meta import Model
from mcp_exec_api.quantity import Quantity

MAX_FINDINGS: Final = 20
MAX_MESSAGE_CHARACTERS: Final = 256


class Rule(StrEnum):
    """What a finding is about."""

    DYNAMIC_CODE = "DynamicCode"
    """Text becomes code: `eval`, `exec`, `compile`, `__import__`, `importlib.import_module`."""
    SUBPROCESS = "Subprocess"
    """Another program or process is started: `subprocess`, `os.system`, `os.exec*`, `os.fork`, `pty`."""
    NATIVE_CODE = "NativeCode"
    """Code outside of Python: `ctypes`, `cffi`."""
    NETWORK = "Network"
    """A connection of its own, which the sandbox's network would refuse: `socket`, `asyncio.open_connection`."""
    IMPORT_NOT_ALLOWED = "ImportNotAllowed"
    """A module that is not on the pool's list."""
    FORMATTED_SQL = "FormattedSql"
    """Values are put into the text of a query, instead of passed as its parameters."""
    ENDLESS_LOOP = "EndlessLoop"
    """A loop that has no way out: the execution would end by its time-out."""
    LARGE_VALUE = "LargeValue"
    """A value that takes more memory than the pool gives: the execution would end as OutOfMemory."""
    NOT_CHECKED = "NotChecked"
    """The code is too long, or nested too deeply, to be looked at."""


class Severity(StrEnum):
    """How much a finding matters."""

    HIGH = "High"
    MEDIUM = "Medium"


class Finding(Model):
    """One thing that stands out in the code."""

    rule: Rule
    """What it is about."""
    severity: Severity
    """How much it matters."""
    line: Annotated[int, Field(ge=1)]
    """The line of the code, from 1."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE_CHARACTERS)]
    """What was found, and what to do instead."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.message} ({self.rule})"


class CodeCheckMode(StrEnum):
    """What is done about what stands out in code."""

    OFF = "Off"
    """Code is not looked at."""
    WARN = "Warn"
    """It runs, and its status tells."""
    STRICT = "Strict"
    """It is refused."""


ModuleName = Annotated[
    str, Field(min_length=1, max_length=128, pattern=r"^(\*|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*)$")
]
"""A Python module, which stands for all below it too; `*` is every module."""


class CodeCheck(Model):
    """A look at the code before it runs. It helps honest code, and is no boundary: the sandbox is."""

    mode: CodeCheckMode = CodeCheckMode.OFF
    """What is done about what is found: nothing is looked for, the status tells, or the code is refused."""
    allowed_imports: Annotated[list[ModuleName], Field(max_length=256)] = Field(default_factory=lambda: ["*"])
    """Modules that code may import, each with all below it, beside those of tools and skills."""
    memory: Quantity = "512Mi"
    """Bytes that one value may take, as far as the code tells its size; the default is that of a sandbox's memory."""
