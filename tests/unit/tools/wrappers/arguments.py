"""Arguments that a schema allows. Objects are drawn here, because hypothesis-jsonschema's strategy for them fails."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema


def allowed(schema: Mapping[str, Any] | bool) -> st.SearchStrategy[Any]:
    """Return a strategy of values that the schema allows. Objects have only properties that it names."""
    if isinstance(schema, bool) or not schema:
        return st.none() | st.booleans() | st.integers() | st.text()
    if options := schema.get("anyOf", schema.get("oneOf")):
        return st.one_of(*map(allowed, options))
    if isinstance(kinds := schema.get("type"), list):
        return st.one_of(*(allowed({**schema, "type": kind}) for kind in kinds))
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        if not properties:
            # An empty `properties` allows none, as in wrappers and the broker.
            others = schema.get("additionalProperties", "properties" not in schema)
            return st.just({}) if others is False else st.dictionaries(st.text(), allowed(others), max_size=3)
        required = set(schema.get("required", ()))
        return st.fixed_dictionaries(
            {name: allowed(each) for name, each in properties.items() if name in required},
            optional={name: allowed(each) for name, each in properties.items() if name not in required},
        )
    if schema.get("type") == "array":
        most = min(schema.get("maxItems", 4), 4)
        return st.lists(allowed(schema.get("items", {})), min_size=schema.get("minItems", 0), max_size=most)
    known = {key: value for key, value in schema.items() if key not in ("$schema", "default")}
    if "pattern" in known:  # the broker's patterns know only ASCII letters and digits
        known["pattern"] = known["pattern"].replace(r"\d", "[0-9]").replace(r"[\w-]", "[A-Za-z0-9_-]")
    return from_schema(known)
