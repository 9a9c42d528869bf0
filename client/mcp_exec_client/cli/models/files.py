"""Files that say which model an agent uses: `--env-file`, `.env` of the working folder, and `--config`.

Only a file that an option names may have addresses and keys: a `.env` file that comes with a cloned repository could
send keys elsewhere.
"""

import io
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final

from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.output import print_note
from mcp_exec_client.model_choice import ANSWER_VARIABLE, MODEL_VARIABLE, PROVIDER_VARIABLE, TEMPERATURE_VARIABLE

WORKING_FILE: Final = Path(".env")
HARMLESS: Final = (PROVIDER_VARIABLE, MODEL_VARIABLE)
"""Variables that are read from `.env` of the working folder."""
_MAX_BYTES: Final = 64 * 1024
FIELDS: Final = {
    "llm.provider": PROVIDER_VARIABLE,
    "llm.model": MODEL_VARIABLE,
    "llm.azure_endpoint": "AZURE_OPENAI_ENDPOINT",
    "llm.azure_deployment_name": "AZURE_OPENAI_DEPLOYMENT_NAME",
    "llm.azure_api_version": "AZURE_OPENAI_API_VERSION",
    "llm.temperature": TEMPERATURE_VARIABLE,
    "llm.max_tokens": ANSWER_VARIABLE,
}
"""Fields of a configuration file, and the variable that each of them sets."""
_NUMBERS: Final = ("llm.temperature", "llm.max_tokens")
_SWITCH: Final = "llm.enabled"
"""Field that has to be true: without a model there is `--offline`."""
ELSEWHERE: Final = (
    "execution.workspace_dir",
    "execution.servers_dir",
    "execution.skills_dir",
    "execution.sandbox_type",
    "execution.sandbox_image",
    "execution.allow_network_access",
    "guardrails.enabled",
    "guardrails.strict_mode",
    "guardrails.security_checks",
    "guardrails.max_execution_time",
    "guardrails.max_memory_mb",
)
"""Fields that other implementations have in such a file and that set nothing here."""


def apply_files(
    environment: MutableMapping[str, str], *, env_file: Path | None, config: Path | None, working: Path = WORKING_FILE
) -> None:
    """Set the variables of the files that are not set yet: of `env_file`, of `config`, of the working folder's `.env`.

    Raises CommandError.
    """
    found = read_env_file(env_file) if env_file else {}
    for name, value in (read_config(config) if config else {}).items():
        found.setdefault(name, value)
    if env_file is None and working.is_file():
        given = read_env_file(working)
        for name in HARMLESS:
            if name in given:
                found.setdefault(name, given[name])
        if others := sorted(set(given) - set(HARMLESS)):
            print_note(
                f"of {working} only {' and '.join(HARMLESS)} are used, not {', '.join(others)[:200]}; "
                f"--env-file {working} uses all"
            )
    for name, value in found.items():
        environment.setdefault(name, value)


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a file of NAME=VALUE lines, without expansion. Raises CommandError."""
    from dotenv import dotenv_values

    values = dotenv_values(stream=io.StringIO(_read(path)), interpolate=False)
    return {name: value for name, value in values.items() if value is not None}


def read_config(path: Path) -> dict[str, str]:
    """Return the variables that a configuration file sets; one note names the fields that set nothing.

    Raises CommandError.
    """
    import yaml

    try:
        parsed = yaml.safe_load(_read(path))
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise CommandError(f"{path} is not YAML: {where}{problem}", ExitCode.USAGE) from error
    sections = {} if parsed is None else parsed
    if isinstance(sections, dict):
        sections = {name: {} if section is None else section for name, section in sections.items()}
    if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
        raise CommandError(f"{path} must have sections with fields", ExitCode.USAGE)
    given = {f"{section}.{name}": value for section, fields in sections.items() for name, value in fields.items()}
    if unknown := sorted(set(given) - {*FIELDS, *ELSEWHERE, _SWITCH}):
        allowed = ", ".join([*FIELDS, _SWITCH, *ELSEWHERE])
        raise CommandError(f"{path}: there is no field {unknown[0][:80]!r}; allowed are {allowed}", ExitCode.USAGE)
    given = {name: value for name, value in given.items() if value is not None}  # a field without a value is not set
    if given.get(_SWITCH, True) is not True:
        raise CommandError(f"{path}: {_SWITCH} is not true; --offline uses no model", ExitCode.USAGE)
    found = {FIELDS[name]: _check_value(path, name, value) for name, value in given.items() if name in FIELDS}
    if unused := [name for name in given if name in ELSEWHERE]:
        sections = " and ".join(sorted({name.partition(".")[0] for name in unused}))
        print_note(
            f"{path}: {len(unused)} fields of {sections} have no effect: workspaces, ToolServers, skills and the pool "
            "set the same (docs/agents/agent-loop.md#models)"
        )
    return found


def _check_value(path: Path, name: str, value: Any) -> str:
    if name in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CommandError(f"{path}: {name} must be a number", ExitCode.USAGE)
        return str(value)
    if not isinstance(value, str) or not value:
        raise CommandError(f"{path}: {name} must be a text", ExitCode.USAGE)
    return value


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {os.strerror(error.errno or 0)}", ExitCode.USAGE) from error
    if len(content) > _MAX_BYTES:
        raise CommandError(f"{path} is larger than {_MAX_BYTES} bytes", ExitCode.USAGE)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8", ExitCode.USAGE) from error
