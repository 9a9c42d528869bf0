"""Pages of the site with the fields of each custom resource, from its CustomResourceDefinition."""

from pathlib import Path
from typing import Any, Final

import yaml
from hack.reference.markdown import build_table, format_code
from hack.reference.schema import list_fields

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.crd_schema import build_definitions
from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.meta import Model
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_api.sandbox_session import SandboxSessionSpec
from mcp_exec_api.skill import SkillSpec
from mcp_exec_api.tool_server import ToolServerSpec

EXAMPLES: Final = Path(__file__).parent / "examples"
SPECS: Final[dict[str, type[Model]]] = {
    "CodeExecution": CodeExecutionSpec,
    "SandboxPool": SandboxPoolSpec,
    "SandboxSession": SandboxSessionSpec,
    "Skill": SkillSpec,
    "ToolServer": ToolServerSpec,
    "ExecutionRollout": ExecutionRolloutSpec,
}
_PAGES: Final = {
    "CodeExecution": "[executions](../../kubectl/executions.md)",
    "SandboxPool": "[pools](../../platform/pools.md) and [scaling](../../platform/scaling.md)",
    "SandboxSession": "[sessions](../../services/sessions.md)",
    "Skill": "[skills](../../agents/skills.md)",
    "ToolServer": "[tool servers](../../platform/tool-servers.md) and [policy](../../platform/policy.md)",
    "ExecutionRollout": "[rollouts](../../platform/rollouts.md)",
}
_FIELDS: Final = ("field", "type", "default", "meaning")


def build_pages() -> dict[str, str]:
    """Build all pages, by path below docs/reference."""
    pages = {}
    for definition in build_definitions().values():
        kind = definition["spec"]["names"]["kind"]
        pages[f"resources/{kind.lower()}.md"] = _build_page(kind, definition["spec"])
    return pages


def read_example(kind: str) -> str:
    """Return the example of a kind. Raises ValidationError if its spec is not valid."""
    text = (EXAMPLES / f"{kind.lower()}.yaml").read_text()
    item = yaml.safe_load(text)
    assert item["kind"] == kind, f"the example of {kind} is a {item['kind']}"
    SPECS[kind].model_validate(item["spec"])
    return text


def _build_page(kind: str, spec: dict[str, Any]) -> str:
    names, versions = spec["names"], spec["versions"]
    version = next(each for each in versions if each["storage"])
    schema = version["schema"]["openAPIV3Schema"]
    served = ", ".join(format_code(f"{spec['group']}/{each['name']}") for each in versions if each["served"])
    columns = [
        (column["name"], format_code(column["jsonPath"]), "wide" if column.get("priority") else "")
        for column in version["additionalPrinterColumns"]
    ]
    commands = ", ".join(f"`kubectl get {name}`" for name in (names["plural"], *names["shortNames"]))
    return "\n".join(
        [
            f"# {kind}\n",
            f"{schema['description']} Explained in {_PAGES[kind]}.\n",
            f"API version: {served}. Namespaced. {commands}.\n",
            f"```yaml\n{read_example(kind)}```\n",
            "## Spec\n",
            build_table(_FIELDS, list_fields(schema["properties"]["spec"])),
            "## Status\n",
            "The control plane writes it; a field that is missing is not known.\n",
            build_table(("field", "type", "meaning"), _list_status(schema["properties"]["status"])),
            "## Columns of kubectl\n",
            build_table(("column", "field", "only with `-o wide`"), columns),
        ]
    )


def _list_status(schema: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(path, kind, meaning) for path, kind, _, meaning in list_fields(schema)]
