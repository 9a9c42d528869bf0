"""CustomResourceDefinitions generated from the pydantic types.

The schema of a CRD is structural (KEP-1693): references are inlined, each value has one type, and there is no `anyOf`
with null. A `oneOf` may only name required fields. `additionalProperties: false` is dropped, because the API server
prunes unknown fields, or rejects them if the client requests strict validation.
"""

from collections.abc import Sequence
from typing import Any, Final

from mcp_exec_api import code_execution, execution_rollout, sandbox_pool, sandbox_session, skill, tool_server
from mcp_exec_api import rollout_status as rollout_status
from mcp_exec_api.constants import (
    EXECUTIONS,
    GROUP,
    POOLS,
    ROLLOUTS,
    SESSIONS,
    SKILLS,
    TOOL_SERVERS,
    VERSION,
)
from mcp_exec_api.meta import PATTERN_WORDS, Model
from mcp_exec_tools.patterns import TOOL_PATTERN

Schema = dict[str, Any]
SELECTABLE: Final = "selectableFields"
"""Field of a version of a definition that API servers before 1.30 drop."""

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_SUPPORTED: Final = frozenset(
    {"type", "description", "format", "pattern", "enum", "default", "minimum", "maximum", "minLength", "maxLength"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "required", "oneOf", _PRESERVE}
    | {"x-kubernetes-validations", "x-kubernetes-map-type"}
)

_LEFT_OUT: Final = (*((key, None) for key in _SUPPORTED), ("default", ""))
"""Values that a schema does not have."""


def to_structural(schema: Schema, definitions: dict[str, Schema] | None = None) -> Schema:
    """Convert a JSON Schema of pydantic to a structural one. Raises ValueError for what a CRD cannot express."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        return to_structural(target | {key: value for key, value in schema.items() if key != "$ref"}, definitions)
    if "anyOf" in schema:
        options = [option for option in schema["anyOf"] if option.get("type") != "null"]
        if len(options) != 1:
            raise ValueError(f"a CRD cannot express the union {schema['anyOf']}")
        rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return to_structural(options[0] | rest, definitions)
    if unknown := _find_unknown(schema):
        raise ValueError(f"a CRD cannot express {sorted(unknown)}")
    # Kubernetes 1.20, if built by Go 1.22 or later, reads an empty default as null and rejects it
    result = {key: each for key, each in schema.items() if key in _SUPPORTED and (key, each) not in _LEFT_OUT}
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    if isinstance(result.get("default"), dict):
        # Kubernetes rejects a default of null for a value that cannot be null
        result["default"] = {name: value for name, value in result["default"].items() if value is not None}
    result = _adapt(result)
    if "const" in schema:
        result["enum"] = [schema["const"]]
    if "properties" in schema:
        result["properties"] = {name: to_structural(part, definitions) for name, part in schema["properties"].items()}
    if "items" in schema:
        result["items"] = to_structural(schema["items"], definitions)
    return result | _convert_additional_properties(schema, definitions)


def _adapt(schema: Schema) -> Schema:
    """Return a schema of one value with what a CRD has in place of several types, and of a tool's pattern."""
    result = dict(schema)
    if result.get("type") == ["string", "integer"]:
        del result["type"]
        result[_INT_OR_STRING] = True
    elif isinstance(result.get("type"), list):
        # a value of one of several types has no type; lists and objects must be empty, and the operator refuses them
        del result["type"]
        result |= {_PRESERVE: True, "maxItems": 0, "maxProperties": 0}
    if result.get("pattern") == TOOL_PATTERN:
        # a pattern's message is its expression, and people write only a server's name; without CEL, the operator
        # refuses that
        del result["pattern"]
        rule = {"rule": f"self.matches(r'{TOOL_PATTERN}')", "message": f"write {PATTERN_WORDS[TOOL_PATTERN]}"}
        result["x-kubernetes-validations"] = [rule]
    return result


def _find_unknown(schema: Schema) -> set[str]:
    """Return the keywords that a CRD cannot express."""
    unknown = set(schema) - _SUPPORTED - {"title", "$defs", "properties", "items", "additionalProperties", "const"}
    is_structural = all(set(option) == {"required"} for option in schema.get("oneOf", ()))
    return unknown if is_structural else unknown | {"oneOf"}


def _convert_additional_properties(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return the part of a structural schema for properties without a name and for values of any type."""
    extra = schema.get("additionalProperties", False)
    if isinstance(extra, dict) and {"type", _INT_OR_STRING} & (values := to_structural(extra, definitions)).keys():
        return {"additionalProperties": values}
    if extra is not False or "type" not in schema:
        return {_PRESERVE: True}
    return {}


def drop_defaults(schema: Schema) -> Schema:
    """Return the schema of a status without defaults.

    A missing field of a status means "unknown", and Kubernetes 1.20 reads a default of "" as null.
    """
    result = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in result:
        result["properties"] = {name: drop_defaults(part) for name, part in result["properties"].items()}
    if "items" in result:
        result["items"] = drop_defaults(result["items"])
    return result


def build_definition(
    *,
    kind: str,
    plural: str,
    short: str,
    spec: type[Model],
    status: type[Model],
    unobserved: dict[str, Any],
    columns: list[dict[str, Any]],
    description: str,
    selectable: Sequence[str] = (),
    scale: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Build one CustomResourceDefinition. Objects without a status show the status `unobserved`.

    `selectable` are the fields of `kubectl get --field-selector`, which Kubernetes has from 1.31 on; API servers before
    1.30 drop their list.
    """
    schema = {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": to_structural(spec.model_json_schema(by_alias=True)),
            # only the operator writes a status, so nobody needs to know who wrote which of its fields
            "status": {
                **drop_defaults(to_structural(status.model_json_schema(by_alias=True))),
                "default": unobserved,
                "x-kubernetes-map-type": "atomic",
            },
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["mcp-exec"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": columns,
                    **({SELECTABLE: [{"jsonPath": path} for path in selectable]} if selectable else {}),
                    "subresources": {"status": {}, **({"scale": scale} if scale else {})},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def build_definitions() -> dict[str, dict[str, Any]]:
    """Build all CustomResourceDefinitions of the project, by plural name."""
    return {
        EXECUTIONS: build_definition(
            kind="CodeExecution",
            plural=EXECUTIONS,
            short="cex",
            spec=code_execution.CodeExecutionSpec,
            status=code_execution.CodeExecutionStatus,
            unobserved=code_execution.UNOBSERVED_STATUS,
            columns=code_execution.PRINTER_COLUMNS,
            selectable=code_execution.SELECTABLE_FIELDS,
            description="One run of an agent's code in a sandbox pod, with its output in the status.",
        ),
        POOLS: build_definition(
            kind="SandboxPool",
            plural=POOLS,
            short="sbp",
            spec=sandbox_pool.SandboxPoolSpec,
            status=sandbox_pool.SandboxPoolStatus,
            unobserved=sandbox_pool.UNOBSERVED_STATUS,
            columns=sandbox_pool.PRINTER_COLUMNS,
            selectable=sandbox_pool.SELECTABLE_FIELDS,
            description="Warm sandbox pods, each for one execution.",
            scale={
                "specReplicasPath": ".spec.warm.min",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        ),
        SESSIONS: build_definition(
            kind="SandboxSession",
            plural=SESSIONS,
            short="sbs",
            spec=sandbox_session.SandboxSessionSpec,
            status=sandbox_session.SandboxSessionStatus,
            unobserved=sandbox_session.UNOBSERVED_STATUS,
            columns=sandbox_session.PRINTER_COLUMNS,
            selectable=sandbox_session.SELECTABLE_FIELDS,
            description="A sandbox pod that is kept for one owner across executions.",
        ),
        TOOL_SERVERS: build_definition(
            kind="ToolServer",
            plural=TOOL_SERVERS,
            short="ts",
            spec=tool_server.ToolServerSpec,
            status=tool_server.ToolServerStatus,
            unobserved=tool_server.UNOBSERVED_STATUS,
            columns=tool_server.PRINTER_COLUMNS,
            selectable=tool_server.SELECTABLE_FIELDS,
            description="An MCP server whose tools code in sandboxes can call through the broker.",
        ),
        SKILLS: build_definition(
            kind="Skill",
            plural=SKILLS,
            short="skl",
            spec=skill.SkillSpec,
            status=skill.SkillStatus,
            unobserved=skill.UNOBSERVED_STATUS,
            columns=skill.PRINTER_COLUMNS,
            selectable=skill.SELECTABLE_FIELDS,
            description="One version of a reusable piece of code, which code in sandboxes imports from `skills`.",
        ),
        ROLLOUTS: build_definition(
            kind="ExecutionRollout",
            plural=ROLLOUTS,
            short="xro",
            spec=execution_rollout.ExecutionRolloutSpec,
            status=rollout_status.ExecutionRolloutStatus,
            unobserved=rollout_status.UNOBSERVED_STATUS,
            columns=execution_rollout.PRINTER_COLUMNS,
            selectable=execution_rollout.SELECTABLE_FIELDS,
            description="A staged change between arms, which are modes or pools, with guards that roll it back.",
        ),
    }
