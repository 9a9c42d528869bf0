"""CustomResourceDefinitions from the pydantic types.

A CRD's schema is structural (KEP-1693): references inlined, one type each, no `anyOf` with null. Unknown fields are
pruned by the API server, or refused where the client asks for strict validation, so `additionalProperties: false` goes.
"""

from typing import Any, Final

from mcp_exec_api import code_execution as execution
from mcp_exec_api import sandbox_pool as pool
from mcp_exec_api import tool_server as toolserver
from mcp_exec_api.constants import EXECUTIONS, GROUP, POOLS, TOOL_SERVERS, VERSION
from mcp_exec_api.meta import Model

Schema = dict[str, Any]

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_KEPT: Final = frozenset(
    {"type", "description", "format", "pattern", "enum", "default", "minimum", "maximum", "minLength", "maxLength"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "required", _PRESERVE, "x-kubernetes-validations"}
)


def to_structural(schema: Schema, definitions: dict[str, Schema] | None = None) -> Schema:
    """The structural form of a JSON Schema that pydantic made. Raises ValueError for what a CRD can't express."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        return to_structural(target | {key: value for key, value in schema.items() if key != "$ref"}, definitions)
    if "anyOf" in schema:
        options = [option for option in schema["anyOf"] if option.get("type") != "null"]
        if len(options) != 1:
            raise ValueError(f"a CRD can't express the union {schema['anyOf']}")
        rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return to_structural(options[0] | rest, definitions)
    unknown = set(schema) - _KEPT - {"title", "$defs", "properties", "items", "additionalProperties", "const"}
    if unknown:
        raise ValueError(f"a CRD can't express {sorted(unknown)}")
    found = {key: value for key, value in schema.items() if key in _KEPT and value is not None}
    if isinstance(found.get("default"), dict):
        # a default of null is none, and Kubernetes refuses it where a value can't be null
        found["default"] = {name: value for name, value in found["default"].items() if value is not None}
    if "const" in schema:
        found["enum"] = [schema["const"]]
    if "properties" in schema:
        found["properties"] = {name: to_structural(each, definitions) for name, each in schema["properties"].items()}
    if "items" in schema:
        found["items"] = to_structural(schema["items"], definitions)
    return found | _free_part(schema, definitions)


def _free_part(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """What the schema says of properties that it does not name, and of values of any type."""
    extra = schema.get("additionalProperties", False)
    if isinstance(extra, dict) and "type" in (values := to_structural(extra, definitions)):
        return {"additionalProperties": values}
    if extra is not False or "type" not in schema:
        return {_PRESERVE: True}
    return {}


def drop_defaults(schema: Schema) -> Schema:
    """A status has none: what its writer left out is not known, and Kubernetes 1.20 reads an empty string as null."""
    found = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in found:
        found["properties"] = {name: drop_defaults(each) for name, each in found["properties"].items()}
    if "items" in found:
        found["items"] = drop_defaults(found["items"])
    return found


def build_definition(
    *,
    kind: str,
    plural: str,
    short: str,
    spec: type[Model],
    status: type[Model],
    columns: list[dict[str, Any]],
    description: str,
    scale: dict[str, str] | None = None,
) -> dict[str, Any]:
    """One CustomResourceDefinition."""
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
                    "subresources": {"status": {}, **({"scale": scale} if scale else {})},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": description,
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": to_structural(spec.model_json_schema(by_alias=True)),
                                "status": drop_defaults(to_structural(status.model_json_schema(by_alias=True))),
                            },
                        }
                    },
                }
            ],
        },
    }


def build_definitions() -> dict[str, dict[str, Any]]:
    """Every CustomResourceDefinition of the project, by its plural name."""
    return {
        EXECUTIONS: build_definition(
            kind="CodeExecution",
            plural=EXECUTIONS,
            short="cex",
            spec=execution.CodeExecutionSpec,
            status=execution.CodeExecutionStatus,
            columns=execution.PRINTER_COLUMNS,
            description="One run of an agent's code in a sandbox pod, with its output in status.",
        ),
        POOLS: build_definition(
            kind="SandboxPool",
            plural=POOLS,
            short="sbp",
            spec=pool.SandboxPoolSpec,
            status=pool.SandboxPoolStatus,
            columns=pool.PRINTER_COLUMNS,
            description="Sandbox pods of one kind that stand ready, each for one execution.",
            scale={
                "specReplicasPath": ".spec.warm.min",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        ),
        TOOL_SERVERS: build_definition(
            kind="ToolServer",
            plural=TOOL_SERVERS,
            short="ts",
            spec=toolserver.ToolServerSpec,
            status=toolserver.ToolServerStatus,
            columns=toolserver.PRINTER_COLUMNS,
            description="An MCP server whose tools the code in sandboxes may call, through the broker.",
        ),
    }
