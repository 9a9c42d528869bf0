"""Rules of the chart's values that its templates check, because Helm would show a pattern and not what it allows."""

import json
from collections.abc import Iterator
from typing import Any, Final

from mcp_exec_api.meta import PATTERN_WORDS, REPOSITORY, find_words
from mcp_exec_common.access import CALLER_PATTERN, HTTPS, SCOPE
from mcp_exec_common.process.settings import DIRECT_HOST, NETWORK

Schema = dict[str, Any]

WORDS: Final = {
    **PATTERN_WORDS,
    rf"^{REPOSITORY}$": "a registry and a path without https://, tag and digest, for example registry.example.com/team",
    r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$": "a tag, for example 1.2.3",
    r"^sha256:[0-9a-f]{64}$": "a digest: sha256: and 64 hexadecimal digits",
    r"^[0-9]+(Ki|Mi|Gi|Ti)$": "a size with its unit, for example 512Mi or 1Gi",
    r"^[1-9][0-9]*(ms|s|m)$": "a time with its unit, for example 30s",
    r"^(NodeDefault|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$": "the name of a RuntimeClass, for example gvisor, or NodeDefault",
    r"^([1-9][0-9]*(ms|s|m))?$": "a time with its unit, for example 10s, or empty",
    r"^(https?://[^\s#\"]+|docs/platform/runbooks\.md)?$": "an address without a fragment, for example "
    "https://git.example.com/docs/runbooks.md, or empty",
    r"^[-a-z0-9._]*$": "a value of the label `release`, for example mcp-exec-system.mcp-exec, or empty",
    r"^[A-Z][A-Za-z]{0,62}$": "a kind, for example ClusterIssuer",
    CALLER_PATTERN: "a caller or a group with its kind, for example oidc/corp/developers, k8s/alice or, for all of "
    "those, oidc/corp/*",
    SCOPE: "a scope: printable ASCII characters but blanks, commas, quotes and backslashes, for example openid",
    HTTPS.pattern: "an address with https:// and without a query, for example https://login.example.com",
    rf"^({HTTPS.pattern[1:-1]})?$": "an address with https:// and without a query, for example "
    "https://login.example.com/keys, or empty",
    r"^https?://[^,/]+$": "an origin, for example https://ide.example.com",
    r"^(https?://[^\s/@]+/?)?$": "the URL of a proxy without user and password, which belong in the Secret "
    "`proxy.secret`, for example http://proxy.example.com:3128, or empty",
    DIRECT_HOST: "a network, an address, a host or a domain, for example 10.0.0.0/8 or .corp.example.com",
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$": "lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
    r"^[a-z0-9*]([-a-z0-9.*]*[a-z0-9*])?$": "the name of a host, for example api.example.com or *.example.com",
    r"^[^,/]+$": "a host, with its port if it is not the default one, for example mcp-exec.example.com:8443",
}
"""What each pattern allows, also those that only the chart has."""
_INNER: Final = ("items", "additionalProperties")


def take_rules(schema: Schema) -> tuple[Schema, str]:
    """Return a schema without patterns and networks, and files/rules.json with these.

    A rule has the paths of its values `at`, or of objects whose keys it is for in `keysOf`; `*` is each item or value.
    Raises ValueError if a pattern has no words.
    """
    rules: dict[str, dict[str, Any]] = {}
    for path, key, pattern in _find_patterns(schema, ""):
        words = NETWORK if pattern is None else find_words(pattern, WORDS)
        if words is None:
            raise ValueError(f"hack/chart/rules.py has no words for the pattern {pattern} of {path}")
        rule = rules.setdefault(words, {"words": words} | ({"pattern": pattern} if pattern else {}))
        if rule.get("pattern") != pattern:
            raise ValueError(f"two patterns have the words {words!r}: {rule.get('pattern')} and {pattern}")
        if path not in rule.setdefault(key, []):
            rule[key].append(path)
    return _strip(schema), json.dumps(list(rules.values()), indent=1) + "\n"


def _find_patterns(schema: Schema, path: str) -> Iterator[tuple[str, str, str | None]]:
    """Return path, kind and pattern of each rule; None is a network."""
    if "pattern" in schema:
        yield path, "at", schema["pattern"]
    if schema.get("format") == "cidr":
        yield path, "at", None
    below = f"{path}." if path else ""
    for name, each in schema.get("properties", {}).items():
        yield from _find_patterns(each, below + name)
    for pattern, each in schema.get("patternProperties", {}).items():
        yield path, "keysOf", pattern
        yield from _find_patterns(each, below + "*")
    if "pattern" in schema.get("propertyNames", {}):
        yield path, "keysOf", schema["propertyNames"]["pattern"]
    for key in _INNER:
        if isinstance(schema.get(key), dict):
            yield from _find_patterns(schema[key], below + "*")
    for each in schema.get("anyOf", []):
        yield from _find_patterns(each, path)


def _strip(schema: Schema) -> Schema:
    found = {key: value for key, value in schema.items() if key not in ("pattern", "format", "propertyNames")}
    if "properties" in found:
        found["properties"] = {name: _strip(each) for name, each in found["properties"].items()}
    for each in found.pop("patternProperties", {}).values():
        found["additionalProperties"] = each
    for key in _INNER:
        if isinstance(found.get(key), dict):
            found[key] = _strip(found[key])
    if "anyOf" in found:
        found["anyOf"] = [_strip(each) for each in found["anyOf"]]
    return found
