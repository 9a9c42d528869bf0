"""Search of tools for code in other languages than Python: `python3 -P -m mcp_exec_sandbox.tool_search LIMITS`.

The index is Python, and it is built of files that the code may have changed. So a process of its own builds it, under
the limits of the code. It takes lines of JSON on descriptor 3: first what the execution may use, then searches. It
answers each search with one line.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_exec_sandbox.protocol import CONTROL_FD, SERVERS_FOLDER, RunnerLimits
from mcp_exec_sandbox.runner.limits import apply_limits
from mcp_exec_sandbox.runner.seccomp import install_filter
from mcp_exec_sandbox.tools.calls import read_catalogs
from mcp_exec_tools.catalog import SKILLS, Catalog
from mcp_exec_tools.search.index import Index

MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_NAMES = 50


class ToolSearch:
    """The tools and skills of one execution."""

    def __init__(self, setup: Mapping[str, Any], folder: Path) -> None:
        self._language: str = setup["language"]
        self._allow: list[str] = setup["allow"]
        catalogs = read_catalogs(folder)
        modules = {catalog.server: module for module, catalog in catalogs.items()}
        skills = [Catalog.from_skills(setup["skills"])] if setup["skills"] else []
        self._tools = Index([*catalogs.values(), *skills], modules={SKILLS: SKILLS, **modules})
        self._skills = Index(skills)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tools that match a query, or those of these names, or why there are none."""
        try:
            names = request.get("names")
            tools = self._find(names) if names is not None else self._search(request)
        except ValueError as error:
            return {"error": str(error)}
        answer = {"tools": tools}
        if len(json.dumps(answer)) > MAX_ANSWER_BYTES:
            return {"error": f"the tools have more than {MAX_ANSWER_BYTES // 1024 // 1024} MiB: set a lower limit"}
        return answer

    def _search(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        index = self._skills if request.get("only") == SKILLS else self._tools
        limit: Any = request.get("limit")
        found: list[dict[str, Any]] = index.search(
            str(request.get("query")),
            detail_level=str(request.get("detailLevel")),
            limit=limit,
            allow=self._allow,
            language=self._language,
        )
        return found

    def _find(self, names: object) -> list[dict[str, Any]]:
        if not isinstance(names, list) or len(names) > MAX_NAMES:
            raise ValueError(f"names must be at most {MAX_NAMES} names of tools")
        found = []
        for name in map(str, names):
            tool = self._tools.find(name, allow=self._allow, language=self._language)
            if tool is None:
                raise ValueError(f"there is no tool {name[:100]} that this execution may call")
            found.append(tool)
        return found


def main(limits: RunnerLimits) -> None:
    """Answer searches until the supervisor closes the channel."""
    apply_limits(limits)
    install_filter(os.getppid())
    with open(CONTROL_FD, "rb", closefd=False) as requests, open(CONTROL_FD, "wb", closefd=False) as answers:
        search = ToolSearch(json.loads(requests.readline()), Path.cwd() / SERVERS_FOLDER)
        for line in requests:
            answers.write(json.dumps(search.answer(json.loads(line))).encode() + b"\n")
            answers.flush()


if __name__ == "__main__":
    main(RunnerLimits.from_argument(sys.argv[1]))
