"""The skills of the folder `skills`, and the examples of their pages."""

import re
from pathlib import Path
from typing import Any

from mcp_exec_api.skill import module_name
from mcp_exec_common.skills.folder import CODE_FILES, SKILL_FILE, SkillFolder
from mcp_exec_common.skills.interface import promote_code

ROOT = Path(__file__).parents[2] / "skills"
NAMES = sorted(path.name for path in ROOT.iterdir() if path.is_dir())


def read_folder(name: str) -> SkillFolder:
    return SkillFolder.from_files(
        {path: (ROOT / name / path).read_text() for path in (SKILL_FILE, CODE_FILES["python"])}
    )


def read_example(name: str) -> str:
    found = re.search(r"```python\n(.*?)```", read_folder(name).instructions, re.DOTALL)
    assert found is not None, f"{name} has no example"
    return found[1]


def build_examples() -> str:
    """Return code that runs all examples and returns their answers by the names of the skills."""
    functions, calls = [], []
    for name in NAMES:
        if name != "docs-lookup":  # needs tools
            function = f"example_{module_name(name)}"
            functions.append(promote_code(read_example(name), []).replace("def run(", f"def {function}(", 1))
            calls.append(f"    {name!r}: await {function}(),")
    return "\n".join([*functions, "{", *calls, "}"])


def build_job() -> dict[str, Any]:
    """Return the field `skills` of a job that has all of them."""
    folders = {f"{name}-v1": read_folder(name) for name in NAMES}
    return {
        "sources": {name: {"code": folder.code, "tools": folder.tools} for name, folder in folders.items()},
        "modules": {module_name(folder.name): name for name, folder in folders.items()},
        "catalog": [],
    }


def check_answers(answers: dict[str, Any]) -> None:
    """Check what the examples return."""
    assert answers["profile-table"] == [["Oslo", 2], ["Rome", 1]]
    assert answers["convert-table"] == [{"name": "Ada", "age": 36}, {"name": "Bob", "age": None}]
    assert [row["n"] for row in answers["deduplicate"]["rows"]] == [1, 3]
    assert answers["sql-report"] == [{"total": 7}]
    assert answers["paginate"] == [0, 1, 2, 3, 4, 5]
    assert (answers["poll-until"]["ok"], answers["poll-until"]["calls"]) == (True, 3)
    assert answers["retry"] == "ok"
    assert answers["batch"]["results"] == [12, 6, None, 3]
    assert list(answers["batch"]["errors"]) == ["2"]
    assert answers["text-statistics"]["top_words"][:2] == [["cat", 2], ["sat", 2]]
    assert answers["text-statistics"]["sentences"] == 3
    assert answers["chart"] == {"path": "artifacts/chart.svg", "labels": 2, "series": 2, "min": 0.0, "max": 5.0}
    counts = {name: answers["compare-documents"][name] for name in ("added", "removed", "changed")}
    assert counts == {"added": 1, "removed": 0, "changed": 1}
