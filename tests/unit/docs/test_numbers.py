"""Defaults and counts that pages state, compared with the values, resources and folders that they speak of."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_exec_api.meta import parse_quantity
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_client.agent.hybrid_rules import HybridRules
from mcp_exec_operator.core.scaling.autoscaler import REFILL_PER_SECOND

ROOT = Path(__file__).parents[3]
IGNORED = (ROOT / ".gitignore").read_text()
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "reference" not in path.parts  # is generated
}

STATED = re.compile(
    r"`([A-Za-z][\w.-]*)`[^`|;]{0,40}?(?:\((?:the )?default:? |by default )(`[^`]+`|[^,;). ]+(?: \w+)?)"
)
"""`name` (default VALUE), and `name`, by default VALUE."""
STATED_BEFORE = re.compile(r"`([A-Za-z][\w.-]*)`[^`|;]{0,40}?[:,(] ?(\d[\d,]*(?: \w+)?) by default")
"""`name` (VALUE by default)."""
NO_FIELDS = {"Digest", "limit", "limits.answer_tokens"}
"""Names in such sentences that are values, parameters of requests and of the client."""
LEAST_STATEMENTS = 7

TABLES = {
    ("docs/agents/agent-loop.md", "rule"): "HybridRules.",
    ("docs/platform/policy.md", "bound"): "toolservers.spec.",
    ("docs/platform/policy.md", "field"): "toolservers.spec.scan.",
    ("docs/platform/files.md", "value of `broker.files.limits`"): "values.broker.files.limits.",
    ("docs/platform/scaling.md", "`spec`"): "sandboxpools.spec.",
    ("docs/platform/high-availability.md", "value (`operator.`)"): "values.operator.",
    ("docs/services/sessions.md", "field"): "sandboxsessions.spec.",
}
"""Tables with a column `default`, by page and first column, and where their names are."""
OTHER_TABLES = {("docs/platform/policy.md", "list"), ("docs/platform/policy.md", "limit")}
"""Tables with such a column in words."""

UNITS = {
    "s": 1, "seconds": 1, "min": 60, "minutes": 60, "h": 3600, "days": 86400,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
WORDS = {12: ("twelve", "dozen"), 15: ("fifteen",), 17: ("seventeen",), 20: ("twenty",)}
"""Numbers that a page may write as a word."""


def flatten(item: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Return the values of nested dicts by their dotted paths."""
    if isinstance(item, Mapping):
        for name, value in item.items():
            yield from flatten(value, f"{prefix}{name}.")
    else:
        yield prefix.rstrip("."), item


def flatten_schema(schema: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Return the default of each field of a resource, None if it has none, by its dotted path."""
    if (default := schema.get("default")) is not None or "properties" not in schema:
        yield from flatten(default, prefix)
    for name, field in schema.get("properties", {}).items():
        yield from flatten_schema(field, f"{prefix}{name}.")


def read_defaults() -> dict[str, Any]:
    found = dict(flatten(yaml.safe_load((ROOT / "charts/mcp-exec/values.yaml").read_text()), "values."))
    found |= {f"HybridRules.{field.name}": field.default for field in dataclasses.fields(HybridRules)}
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        crd = yaml.safe_load(path.read_text())
        spec = crd["spec"]["versions"][-1]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        found |= {
            name: value
            for name, value in flatten_schema(spec, f"{crd['spec']['names']['plural']}.spec.")
            if value is not None or name not in found
        }
    return found


# the operator's own number, for pools that follow demand
DEFAULTS = read_defaults() | {"sandboxpools.spec.scaling.refillPerSecond": REFILL_PER_SECOND}


def read_stated(text: str) -> Any:
    """Return the value that a page states: a number in the smallest unit, a boolean, None or a text."""
    text = text.strip().strip("`")
    if text in ("none", "on", "true", "off", "false"):
        return {"none": None, "on": True, "true": True}.get(text, False)
    if match := re.match(r"([\d,]+)(?: (\w+))?", text):
        number = int(match[1].replace(",", ""))
        if text[match.end(1) :] and match[2] is None and re.fullmatch(r"\d+[KMG]i", text):
            return parse_quantity(text)
        return number * UNITS.get(match[2] or "", 1)
    return text


def read_default(value: Any) -> Any:
    """Return a default in the same form."""
    return parse_quantity(value) if isinstance(value, str) and re.fullmatch(r"\d+[KMG]i", value) else value


def find(name: str, prefix: str = "") -> list[Any]:
    """Return the defaults of the fields and values with a name, or with the end of a dotted path."""
    if prefix:
        return [read_default(DEFAULTS[prefix + name])] if prefix + name in DEFAULTS else []
    return [read_default(value) for path, value in DEFAULTS.items() if f".{path}".endswith(f".{name}")]


STATEMENTS = [
    (page, match[1], match[2])
    for page, text in PAGES.items()
    for pattern in (STATED, STATED_BEFORE)
    for match in pattern.finditer(text.replace("\n", " "))
    if match[1] not in NO_FIELDS and (re.match(r"`?\d", match[2]) or match[2].startswith("`"))
]


def test_pages_state_defaults_in_sentences_that_this_test_finds() -> None:
    assert len(STATEMENTS) >= LEAST_STATEMENTS


@pytest.mark.parametrize(("page", "name", "stated"), STATEMENTS)
def test_a_default_in_a_sentence_is_that_of_the_code(page: str, name: str, stated: str) -> None:
    assert read_stated(stated) in find(name), f"{page}: `{name}` is {find(name)}"


def list_tables() -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Return page, head and rows of each table with a column `default`."""
    for page, text in PAGES.items():
        for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
            head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
            if "default" in head:
                yield page, head, rows


DEFAULT_TABLES = {(page, head[0]): (head, rows) for page, head, rows in list_tables()}


def test_each_table_of_defaults_is_compared() -> None:
    assert DEFAULT_TABLES.keys() == TABLES.keys() | OTHER_TABLES


@pytest.mark.parametrize("table", TABLES, ids=" ".join)
def test_a_table_has_the_defaults_of_the_code(table: tuple[str, str]) -> None:
    (head, rows), prefix, compared = DEFAULT_TABLES[table], TABLES[table], 0
    for row in rows:
        names = [name.removeprefix("spec.") for name in re.findall(r"`([\w.]+)`", row[0])]
        stated = re.split(r", (?!\d{3})", row[head.index("default")])
        for name, text in zip(names, stated, strict=False):
            if (found := find(name, prefix) or find(name, f"{prefix}limits.")) and "`" not in text:
                assert read_stated(text) == found[0], (name, text)
                compared += 1
    assert compared >= min(3, len(rows))


def test_the_first_screen_has_the_median_that_was_measured() -> None:
    (stated,) = re.findall(r"A warm run takes (\d+) ms", PAGES["README.md"].partition("\n## ")[0])
    table = PAGES["docs/internals/performance.md"].partition("<!-- begin latency -->")[2]
    (median,) = re.findall(r"(?m)^\| 1 \| \d+ \| ([\d.]+) / ", table.partition("<!-- end -->")[0])
    assert abs(int(stated) - float(median)) < 1


COUNTS = {
    "tasks of `make examples`": (
        [("README.md", r"`make examples` (\w+) tasks"), ("docs/README.md", r"(\w+) tasks that call tools")],
        len([path for path in (ROOT / "examples/tasks").glob("*.py") if "    run_task(task)\n" in path.read_text()]),
    ),
    "catalogs": (
        [("docs/internals/architecture.md", r"the catalogs of (\w+) servers")],
        len(list((ROOT / "servers/catalogs").glob("*.json"))),
    ),
    "catalogs without wrappers in git": (
        [("docs/agents/wrappers.md", r"the catalogs for those of (\w+) more")],
        len(list((ROOT / "servers/catalogs").glob("*.json")))
        - len(re.findall(r"^!/servers/(?!catalogs/)", IGNORED, re.M)),
    ),
    "skills": (
        [("README.md", r"; a (\w+) are installed"), ("docs/README.md", r"; a (\w+) that are installed")],
        len(list((ROOT / "skills").glob("*/SKILL.md"))),
    ),
}


@pytest.mark.parametrize("what", COUNTS)
def test_a_page_counts_what_there_is(what: str) -> None:
    places, count = COUNTS[what]
    for page, pattern in places:
        (stated,) = re.findall(pattern, PAGES[page].replace("\n", " "))
        assert stated in (str(count), *WORDS.get(count, ())), page


def test_records_are_on_by_default_as_the_pages_say() -> None:
    # `auto` is on for the one replica that is the default
    assert (find("broker.records.enabled", "values."), find("broker.replicas", "values.")) == (["auto"], [1])
    for page in ("README.md", "docs/platform/usage.md"):
        assert re.search(r"records\S*,? which are on by default", PAGES[page])


def test_the_memory_of_a_sandbox_is_that_of_the_code_and_of_its_files() -> None:
    spec = SandboxPoolSpec.model_validate({"image": "sandbox"})
    limit, code, files = (
        int(parse_quantity(text))
        for text in (spec.resources.limits.memory, spec.code_check.memory, spec.workspace_size)
    )
    assert limit == code + files
    mebibytes = [number // 2**20 for number in (limit, code, files)]
    page = PAGES["docs/platform/security.md"].replace("\n", " ")
    assert "limit of {} MiB is {} MiB for the code and {} MiB, the default `workspaceSize`".format(*mebibytes) in page
    page = PAGES["docs/coming-from/local-framework.md"]
    assert "limits.memory={}Mi` | the default: {}Mi for the code, and {}Mi for its files".format(*mebibytes) in page
    assert f"resources: {{limits: {{memory: {mebibytes[0]}Mi}}}}" in page


@pytest.mark.parametrize("page", ["README.md", "docs/coming-from/local-framework.md"])
def test_what_was_never_run_is_not_listed_as_if_it_was(page: str) -> None:
    sentences = re.findall(r"[^|.]*\bKata\b[^|.]*", PAGES[page].replace("\n", " "))
    assert sentences
    assert all("not run" in each or "not been run" in each for each in sentences)
