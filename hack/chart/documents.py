"""values.yaml, values.schema.json and the chart's README, from the types of the values."""

import inspect
import json
from typing import Any, Final

import yaml
from values import Values

from mcp_exec_api.meta import Model
from mcp_exec_api.sandbox_pool import SandboxPoolSpec

Schema = dict[str, Any]

_HEADER: Final = "# Generated from hack/chart/values.py by `make generate`. Do not edit.\n"
_DROPPED: Final = frozenset({"title", "default", "$defs"})


def inlined(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """A schema without references, titles, defaults and nulls. Helm takes a null to mean that a value is taken away."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        return inlined(target | {key: value for key, value in schema.items() if key != "$ref"}, definitions)
    found = {key: value for key, value in schema.items() if key not in _DROPPED and not key.startswith("x-")}
    if "properties" in found:
        found["properties"] = {name: inlined(each, definitions) for name, each in found["properties"].items()}
    for key in ("items", "additionalProperties", "propertyNames"):
        if isinstance(found.get(key), dict):
            found[key] = inlined(found[key], definitions)
    if isinstance(found.get("patternProperties"), dict):
        found["patternProperties"] = {
            pattern: inlined(each, definitions) for pattern, each in found["patternProperties"].items()
        }
        found["additionalProperties"] = False  # a name that is none
    options = [inlined(each, definitions) for each in found.pop("anyOf", []) if each.get("type") != "null"]
    if len(options) == 1:
        return options[0] | found
    return found | ({"anyOf": options} if options else {})


def schema_json() -> str:
    """values.schema.json: strict, so that a misspelt value is refused by its name."""
    schema = Values.model_json_schema(by_alias=True)
    found = inlined(schema, schema["$defs"])
    # Helm hands these two to every chart that is used as a dependency.
    found["properties"] |= {"global": {"type": "object"}, "enabled": {"type": "boolean"}}
    found = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of mcp-exec"} | found
    return json.dumps(found, indent=2) + "\n"


def fields(model: type[Model]) -> list[tuple[str, str, str]]:
    """Name, name on the wire and meaning of a model's fields, its own before those that it inherits."""
    names = [name for parent in model.__mro__ for name in inspect.get_annotations(parent)]
    found = {name: model.model_fields[name] for name in names if name in model.model_fields}
    return [(name, field.alias or name, field.description or "") for name, field in found.items()]


def values_yaml() -> str:
    """values.yaml: every value with its default, and what it means above it."""
    lines: list[str] = []
    for name, alias, meaning in fields(Values):
        lines += ["", *_entry(alias, meaning, getattr(Values(), name), indent="")]
    return _HEADER + "\n".join(lines) + "\n"


def _entry(name: str, meaning: str, value: Any, *, indent: str) -> list[str]:
    comment = [f"{indent}# {meaning}"]
    if isinstance(value, Model):
        lines = [f"{indent}{name}:"]
        for inner, alias, about in fields(type(value)):
            if getattr(value, inner) is None:
                lines += [f"{indent}  # {about} Not set by default.", f"{indent}  # {alias}:"]
            else:
                lines += _entry(alias, about, getattr(value, inner), indent=indent + "  ")
        empty = all(getattr(value, inner) is None for inner in type(value).model_fields)
        return [*comment, f"{indent}{name}: {{}}", *lines[1:]] if empty else comment + lines
    return [*comment, f"{indent}{name}: {_flow(value)}"]


def _flow(value: Any) -> str:
    """A value on one line, as YAML."""
    if isinstance(value, str):
        # `Off` would be read as a boolean
        plain = value != "" and value[0].isalpha() and yaml.safe_load(value) == value
        return str(value) if plain else json.dumps(str(value))
    return yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False).removesuffix("...\n").strip()


def readme_table() -> str:
    """One row for each value."""
    rows = ["| Value | Default | Meaning |", "|---|---|---|"]
    rows += [f"| `{path}` | {_cell(value)} | {meaning} |" for path, meaning, value in _leaves(Values(), "")]
    return "\n".join(rows)


def _leaves(model: Model, prefix: str) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    for name, alias, meaning in fields(type(model)):
        value = getattr(model, name)
        if isinstance(value, Model):
            found += _leaves(value, f"{prefix}{alias}.")
        else:
            found.append((prefix + alias, meaning.replace("|", "\\|"), value))
    return found


def _cell(value: Any) -> str:
    return "" if value is None else f"`{_flow(value)}`"


_README: Final = """<!-- Generated from hack/chart by `make generate`. Do not edit. -->
# mcp-exec, the Helm chart

Installs the CustomResourceDefinitions, the operator, the gateway, the tool broker and a default pool of warm sandboxes.

    helm install mcp-exec charts/mcp-exec --namespace mcp-exec-system --create-namespace --wait \\
      --set pool.runtimeClassName=gvisor

Helm 3.6 or later, Helm 4; Kubernetes 1.20 or later. The notes after the installation have the first command to try.

## What happens when

- **Install.** Helm installs the definitions in `crds/` and waits for them before anything else.
- **Upgrade.** A Job of the operator's image brings definitions of another version to this one's, and is there only then
  (`crds.upgrade`). The sandbox key and the initial API key stay as they are, and so do the keys that you added to the
  Secret `<release>-api-keys`; not so with `--force`, which replaces the Secret.
- **Uninstall.** Definitions, executions, the namespaces that the chart made and the Secret with the API keys stay;
  pools, and with them all sandbox pods, go.
- **Kubernetes before 1.21** gives namespaces no label with their name, which the pools' NetworkPolicies ask for:
  `kubectl label namespace mcp-exec-system kubernetes.io/metadata.name=mcp-exec-system`.
- **Helm 4 and Kubernetes before 1.25**: `--server-side=false`, as server-side apply refuses the definitions' CEL rules
  there. Helm 3 is not concerned.
- **Helm 4 after `kubectl scale sbp`**, where `pool.warm` is set: the upgrade says that the field is another's; with
  `--force-conflicts` the chart's value wins.
- **A new field of a pool**, set in the very upgrade that brings it, is unknown to Helm's check, which comes before the
  Job: upgrade first, or `--disable-openapi-validation`.
- **Without Helm's own installation** (`helm template`, or a tool that renders only) nothing can be looked up: name the
  Secrets by `sandboxKey.existingSecret` and `gateway.apiKeys.existingSecret`, or each rendering makes new ones.

## API keys

Each entry of the Secret `<release>-api-keys` is a key: its name, and JSON with the key's SHA-256, its namespace and,
if you like, its limits: `maxConcurrent`, `requestsPerMinute` (at each replica of the gateway), `maxTimeoutSeconds`,
`pools`, `maxPriority`, `tools` and `users`. With `"approver": true` beside them it may also decide on tool calls that
wait for consent. The gateway reads changes at once.

    key="mcpx_$(openssl rand -base64 48 | tr -dc A-Za-z0-9 | head -c 43)"
    digest=$(printf %s "$key" | sha256sum | cut -d' ' -f1)
    entry='{{"sha256": "'$digest'", "namespace": "agents", "limits": {{"maxConcurrent": 20}}}}'
    kubectl patch secret mcp-exec-api-keys -n mcp-exec-system --type=merge \\
      -p "$(jq -n --arg entry "$entry" '{{stringData: {{billing: $entry}}}}')"

## Values

Unknown values are refused. A pool's fields are those of a SandboxPool's `spec`.

{table}
"""


def pool_defaults() -> str:
    """What the API sets in a pool that doesn't say otherwise, as values: no name of a class is an empty one."""
    said = SandboxPoolSpec(image="none").to_api()
    names = [alias for _, alias, _ in fields(SandboxPoolSpec) if alias != "image"]
    return json.dumps({name: said.get(name, "") for name in names}, indent=2) + "\n"


def readme() -> str:
    """The chart's README."""
    return _README.format(table=readme_table())
