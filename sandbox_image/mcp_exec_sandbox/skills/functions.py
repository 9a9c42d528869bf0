"""Functions of the package `skills`: search, call by name, save."""

import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from mcp_exec_sandbox.protocol import SAVED_CODE_BYTES, SAVED_SKILLS, SKILL_EVENT, SKILLS_FOLDER
from mcp_exec_sandbox.skills.store import get_store
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.search.index import Index

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def search_skills(query: str = "", detail_level: str = "with_description", limit: int = 20) -> list[dict[str, Any]]:
    """Return the approved skills that match the query, best first. An empty query lists all.

    Args:
        query: a task, or the name of a skill.
        detail_level: `name_only`, `with_description` (also description, import) or `full` (also signature and
            input_schema).
        limit: maximum number of skills.

    Raises:
        ValueError: the level or the limit is invalid.
    """
    index = Index([Catalog.from_skills(get_store().catalog)])
    found: list[dict[str, Any]] = index.search(query, detail_level=detail_level, limit=limit)
    return found


async def run_skill(name: str, /, **arguments: Any) -> Any:
    """Call a skill by its name and return its result.

    A name that the code computes must be listed in the execution's `spec.skills`.

    Raises:
        ImportError: the execution may not use the skill, or may not call a tool that it needs.
    """
    module = importlib.import_module(f"{SKILLS_FOLDER}.{name.replace('-', '_')}")
    value = module.run(**arguments)
    return await value if inspect.isawaitable(value) else value


def save_skill(
    name: str,
    code: str | Callable[..., Any],
    description: str,
    *,
    tools: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> None:
    """Save code as a draft of a skill. The execution's `status.skills` shows its name and version, or why not.

    Until an approver approves it, only executions of the same caller and user can use it.

    Args:
        name: lower-case letters and digits, in words that `-` separates.
        code: Python source that defines a function `run`, or such a function. At most 64 KiB.
        description: what it does and when to use it, in one line.
        tools: tools that it calls, for example `github.list_issues`.
        tags: words by which searches find it.

    Raises:
        ValueError: an argument is invalid.
    """
    store = get_store()
    source = code if isinstance(code, str) else inspect.getsource(code)
    if not isinstance(name, str) or len(name) > 50 or not _NAME.fullmatch(name):
        raise ValueError(f"name: {str(name)[:60]!r} must be lower-case letters and digits in words that '-' separates")
    if not isinstance(description, str) or not 1 <= len(description.strip()) <= 1024:
        raise ValueError("description: write what the skill does in 1 to 1024 characters")
    if (size := len(source.encode("utf-8", "replace"))) > SAVED_CODE_BYTES:
        raise ValueError(f"code: it has {size} bytes; at most {SAVED_CODE_BYTES} are allowed")
    if not re.search(r"^(async +)?def +run *\(", source, re.MULTILINE):
        raise ValueError("code: it defines no function `run` at its top level")
    if store.saved >= SAVED_SKILLS:
        raise ValueError(f"one execution can save {SAVED_SKILLS} skills")
    store.saved += 1
    event = {"name": name, "code": source, "description": " ".join(description.split())}
    store.emit({"type": SKILL_EVENT, **event, "tools": list(map(str, tools)), "tags": list(map(str, tags))})
