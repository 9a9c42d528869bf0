"""values.yaml, values.schema.json and the chart's README, generated from the types of the values."""

import inspect
import json
import re
from pathlib import Path
from typing import Any, Final

import yaml
from hack.chart.rules import take_rules
from hack.chart.settings import add_settings
from hack.chart.values import Values
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import WithDefaultSchema

from mcp_exec_api.meta import Model
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_api.wire.version import RELEASE
from mcp_exec_common.kube.version import MISSING, NEWEST_SUPPORTED, OLDEST_ACCEPTED, OLDEST_SUPPORTED

Schema = dict[str, Any]

VALUES: Final = add_settings(Values)
"""All values of the chart."""
_HEADER: Final = "# Generated from hack/chart and the processes' settings by `make generate`. Do not edit.\n"
_DROPPED: Final = frozenset({"title", "default", "$defs"})


def inline_references(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return a schema without references, titles, defaults and nulls: to Helm, a null removes a value."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        return inline_references(target | {key: value for key, value in schema.items() if key != "$ref"}, definitions)
    found = {key: value for key, value in schema.items() if key not in _DROPPED and not key.startswith("x-")}
    if isinstance(found.get("description"), str):
        found["description"] = " ".join(found["description"].split())
    if "properties" in found:
        found["properties"] = {name: inline_references(each, definitions) for name, each in found["properties"].items()}
    for key in ("items", "additionalProperties", "propertyNames"):
        if isinstance(found.get(key), dict):
            found[key] = inline_references(found[key], definitions)
    if isinstance(found.get("patternProperties"), dict):
        found["patternProperties"] = {
            pattern: inline_references(each, definitions) for pattern, each in found["patternProperties"].items()
        }
        found["additionalProperties"] = False  # a name that does not match a pattern
    options = [inline_references(each, definitions) for each in found.pop("anyOf", []) if each.get("type") != "null"]
    if len(options) == 1:
        return options[0] | found
    return found | ({"anyOf": options} if options else {})


class _WithoutDefaults(GenerateJsonSchema):
    """Schema without defaults: values.yaml has them, and some are not of the types that JSON makes of them."""

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema of a type without its default."""
        return self.generate_inner(schema["schema"])


def build_schema_json(values: type[Model] = VALUES) -> str:
    """Return values.schema.json. It is strict: an unknown value is refused by name."""
    found, _ = take_rules(_build_schema(values))
    # Helm sets these two in every chart that is a dependency
    found["properties"] |= {"global": {"type": "object"}, "enabled": {"type": "boolean"}}
    found = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of mcp-exec"} | found
    return json.dumps(found, indent=2) + "\n"


def build_rules(values: type[Model] = VALUES) -> str:
    """Return files/rules.json: the patterns of values and what they allow, which templates check."""
    return take_rules(_build_schema(values))[1]


def _build_schema(values: type[Model]) -> Schema:
    schema = values.model_json_schema(by_alias=True, schema_generator=_WithoutDefaults)
    return inline_references(schema, schema["$defs"])


def list_fields(model: type[Model]) -> list[tuple[str, str, str]]:
    """Return name, alias and description of a model's fields; inherited fields last."""
    names = [name for parent in model.__mro__ for name in inspect.get_annotations(parent)]
    found = {name: model.model_fields[name] for name in names if name in model.model_fields}
    return [(name, field.alias or name, " ".join((field.description or "").split())) for name, field in found.items()]


def build_values_yaml(values: type[Model] = VALUES) -> str:
    """Return values.yaml: each value with its default, below a comment with its meaning."""
    lines: list[str] = []
    for name, alias, meaning in list_fields(values):
        lines += ["", *_entry(alias, meaning, getattr(values(), name), indent="")]
    return _HEADER + "\n".join(lines) + "\n"


def _entry(name: str, meaning: str, value: Any, *, indent: str) -> list[str]:
    comment = [f"{indent}# {meaning}"]
    if isinstance(value, Model):
        lines = [f"{indent}{name}:"]
        for inner, alias, about in list_fields(type(value)):
            if getattr(value, inner) is None:
                lines += [f"{indent}  # {about} Not set by default.", f"{indent}  # {alias}:"]
            else:
                lines += _entry(alias, about, getattr(value, inner), indent=indent + "  ")
        empty = all(getattr(value, inner) is None for inner in type(value).model_fields)
        return [*comment, f"{indent}{name}: {{}}", *lines[1:]] if empty else comment + lines
    return [*comment, f"{indent}{name}: {_flow(value)}"]


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, str):
        # YAML would read `Off` as a boolean
        plain = value != "" and value[0].isalpha() and yaml.safe_load(value) == value
        return str(value) if plain else json.dumps(str(value))
    return yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False).removesuffix("...\n").strip()


def _build_table() -> str:
    """Return a Markdown table with one row per value."""
    rows = ["| Value | Default | Meaning |", "|---|---|---|"]
    rows += [f"| `{path}` | {_cell(value)} | {meaning} |" for path, meaning, value in _leaves(VALUES(), "")]
    return "\n".join(rows)


def _leaves(model: Model, prefix: str) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    for name, alias, meaning in list_fields(type(model)):
        value = getattr(model, name)
        if isinstance(value, Model):
            found += _leaves(value, f"{prefix}{alias}.")
        else:
            found.append((prefix + alias, meaning.replace("|", "\\|"), value))
    return found


def _cell(value: Any) -> str:
    return "" if value is None else f"`{_flow(value)}`"


_README: Final = """<!-- Generated from hack/chart by `make generate`. Do not edit. -->
# Helm chart of mcp-exec

The chart installs the CustomResourceDefinitions (CRDs), the operator, the gateway, the broker and a default pool of
warm sandboxes.

    helm install mcp-exec charts/mcp-exec --namespace mcp-exec-system --create-namespace --wait

It needs Helm 3.8 or later, or Helm 4, and supports Kubernetes {oldest} to {newest}. It also installs on {accepted} and
later, and Helm then prints what is missing there ([versions.md](../../docs/platform/versions.md#kubernetes)). It is
tested with Helm 3.10 (installations and upgrades on a cluster, and all templates), Helm 4.1 (the same) and Helm 3.17
(templates). After the installation, Helm prints a first command.

## Install, upgrade, uninstall

- **Install.** Helm installs the CRDs in `crds/` first. When the operator starts, it creates the Secrets with the
  sandbox key and the API keys. Until then, the pods of gateway and broker wait in ContainerCreating, with the Event
  FailedMount; with `--wait` or `--atomic`, Helm waits for them as long as `--timeout` says.
- **Upgrade.** When the operator of the new version starts, it upgrades the cluster's CRDs (`crds.upgrade`;
  [upgrading.md](../../docs/platform/upgrading.md#definitions) has the details). The sandbox key, the initial API key
  and all keys that you added to the Secret `<release>-api-keys` remain: the operator has created these Secrets, and
  Helm does not know them. [upgrading.md](../../docs/platform/upgrading.md) also lists values that an upgrade requires,
  and what it changes.
- **Uninstall.** CRDs, executions, namespaces that the chart created (`keepNamespaces: false` deletes them), the claims
  of the broker's volumes, the Secret with the API keys, the operators' Lease and, after `helm test`, its pod remain. Of
  a release `mcp-exec`, remove the last two by
  `kubectl delete lease/mcp-exec-operator pod/mcp-exec-test -n mcp-exec-system --ignore-not-found`. The operator's
  ServiceAccount owns the Secrets with the sandbox key and the text of the initial API key, which are deleted with it:
  a new release gets new ones, and keys that you added remain valid. A Job with the
  operator's image cancels the executions that run or wait, stops the operator and deletes all sandboxes; it takes at
  most three minutes. Pools that you created remain, without pods and with the reason NotObserved, until a release
  serves their namespace again. Tool servers that you created remain, too, and the pods of stdio servers go
  on: delete these. If the Job fails, for example because the image cannot be pulled, uninstall with
  `--no-hooks`: sandboxes stay isolated until they are gone in any case, and the NetworkPolicy `mcp-exec-base` stays
  ([security.md](../../docs/platform/security.md#how-sandboxes-end)).
- **A namespace that is removed from `namespaces`** is cleaned up by the operator after the upgrade
  ([upgrading.md](../../docs/platform/upgrading.md#removed-namespaces)).
- **Pod Security.** All pods of the release meet the level `restricted`. The chart sets it in the namespaces that it
  creates (`podSecurity`). Set it in the release's namespace, too:
  `kubectl label namespace mcp-exec-system pod-security.kubernetes.io/enforce=restricted`.
- **Kubernetes before 1.21** does not label namespaces with their name, but NetworkPolicies select them by it. Label the
  release's namespace and each served one that the chart does not create:
  `kubectl label namespace mcp-exec-system kubernetes.io/metadata.name=mcp-exec-system`.
- **Helm 4 with Kubernetes before 1.25** needs `--server-side=false`, because server-side apply refuses the CEL rules of
  the CRDs there. Helm 3 is not affected.
- **Helm 4 after `kubectl scale sbp`**, if `pool.warm` is set: the upgrade reports a field conflict. With
  `--force-conflicts`, the chart's value wins.
- **A new field of a pool** that is set in the same upgrade that introduces it fails Helm's check, which runs before the
  operator upgrades the CRDs. Upgrade first, or run `kubectl apply --server-side -f charts/mcp-exec/crds` before.
- **Tools that only render**, such as `helm template` and Argo CD, get all objects: no template reads from the cluster,
  and two renderings with the same values are equal.

## Choices

- **`pool.runtimeClassName`** is `gvisor`. If the cluster has no RuntimeClass of that name, the pool has no pods, its
  condition Ready has the reason RuntimeClassNotFound, and no code runs. Install
  [gVisor](https://gvisor.dev/docs/user_guide/install/), name another RuntimeClass, for example of Kata, or set
  `NodeDefault`. With it, pods use the runtime that the node's container runtime starts by default. That is usually
  runc, and the code then runs on the node's own kernel.
- **Volumes.** The broker's audit log and records are on claims of the cluster's default StorageClass. A cluster without
  one needs `storageClass` or `existingClaim` in `broker.audit.persistence` and `broker.records.volume`, or
  `broker.audit.persistence.enabled: false` and `broker.records.enabled: false`: otherwise the broker's pod stays
  Pending. Several brokers share neither; they need a [database](../../docs/platform/records.md).
- **`namespaces`** are `[agents]`. Name yours before the first installation: a later change moves nothing, and what runs
  in a removed namespace is ended. They must not contain the release's own namespace: it contains the keys of the
  release, and an account that may create ToolServers or pods in a served namespace can read the Secrets there.

## Addresses of the API server

Operator and gateway may reach sandboxes, the broker and the API server, and nothing else. By default, the last rule
allows the ports `networkPolicy.apiServer.ports` at any address: the addresses of a managed API server change without
notice, and some network plugins compare them with no network. To allow only its addresses, set
`networkPolicy.apiServer.cidrs` to the networks of the control plane.
`kubectl get service,endpointslices kubernetes --namespace default` prints the addresses and ports of today: of the
Service and of the servers behind it, since plugins compare a connection before or after its address is translated.
Cilium does not compare the nodes' own addresses with networks unless its `policyCIDRMatchMode` contains `nodes`. If the
API server runs on nodes of the cluster, set this mode, or leave `cidrs` empty.

## API keys

Each entry of the Secret `<release>-api-keys` is one key. Its name is the key's name. Its value is JSON with the key's
SHA-256, its namespace and optional limits: `maxConcurrent`, `maxStored`, `maxStoredBytes`, `requestsPerMinute`,
`maxWaits` and `maxStreams` (at each replica of the gateway), `directCallsPerMinute`, `maxSessions`, `maxWorkspaces`,
`maxTimeoutSeconds`, `pools`, `maxPriority`, `tools`, `users` and `own`. With `"approver": true`, the key may also
decide on tool calls that wait for an approval. With `"expiresAt": "2027-01-31T00:00:00Z"`, it is refused from then on.
The gateway applies changes at once.

The operator creates this Secret, and in it the key `initial` for a first try, which has limits and expires after 90
days. Its text is in the Secret `<release>-initial-api-key`. To get a new one, delete that Secret: within a minute the
operator creates another key, and the old one is refused. To revoke it, remove the entry `initial`, or set
`gateway.initialApiKey.create: false`. The entry is the operator's: use other names for keys of your own.

    key="mcpx_$(openssl rand -base64 48 | tr -dc A-Za-z0-9 | head -c 43)"
    digest=$(printf %s "$key" | sha256sum | cut -d' ' -f1)
    entry='{{"sha256": "'$digest'", "namespace": "agents", "limits": {{"maxConcurrent": 20}}}}'
    kubectl patch secret mcp-exec-api-keys -n mcp-exec-system --type=merge \\
      -p "$(jq -n --arg entry "$entry" '{{stringData: {{billing: $entry}}}}')"

## Values

Unknown values are refused. A pool's fields are those of a SandboxPool's `spec`.

{table}
"""


def build_defaults(values: type[Model] = VALUES) -> str:
    """Return the values of values.yaml, which templates can't read there."""
    return json.dumps(yaml.safe_load(build_values_yaml(values)), indent=1) + "\n"


def build_pool_defaults() -> str:
    """Return the API defaults of a pool as chart values; an unset class name is an empty string."""
    said = SandboxPoolSpec(image="none").to_api()
    names = [alias for _, alias, _ in list_fields(SandboxPoolSpec) if alias != "image"]
    return json.dumps({name: said.get(name, "") for name in names}, indent=2) + "\n"


def update_chart(path: Path) -> str:
    """Build the text of Chart.yaml with the version of the release and those of Kubernetes."""
    text = re.sub(r"(?m)^(version|appVersion): .*$", rf"\1: {RELEASE}", path.read_text())
    return re.sub(r"(?m)^kubeVersion: .*$", f'kubeVersion: ">={OLDEST_ACCEPTED}.0-0"', text)


def build_kubernetes() -> str:
    """Return files/kubernetes.json, which the notes read: the supported versions, and what older ones lack."""
    found = {
        "oldest": str(OLDEST_SUPPORTED),
        "newest": str(NEWEST_SUPPORTED),
        "later": str(NEWEST_SUPPORTED._replace(minor=NEWEST_SUPPORTED.minor + 1)),
        "missing": [{"before": str(version), "what": what} for version, what in MISSING.items()],
    }
    return json.dumps(found, indent=2) + "\n"


def build_readme() -> str:
    """Return the chart's README."""
    return _README.format(
        table=_build_table(),
        oldest=OLDEST_SUPPORTED,
        newest=NEWEST_SUPPORTED,
        accepted=OLDEST_ACCEPTED,
    )
