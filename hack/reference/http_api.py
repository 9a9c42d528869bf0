"""Page of the site with every route and every body of the HTTP API, from its OpenAPI document."""

import json
from collections.abc import Iterator
from typing import Any, Final

from hack.reference.markdown import build_table, format_code
from hack.reference.schema import describe, describe_type, format_default

from mcp_exec_gateway.app import describe_api

Json = dict[str, Any]

_PROBLEM: Final = "application/problem+json"
_HEAD: Final = """# HTTP API

{description}
[The HTTP API](../services/http-api.md) explains it by examples. This page shows [openapi.json](openapi.json), which
generators of clients read; a gateway serves its own at `/openapi.json`, and with `gateway.docs` a page to try it at
`/docs`. The version of this one is {version}. Each request has a header `Authorization: Bearer KEY`, unless the route
says otherwise. Responses from 400 on have [ProblemDetails](#problemdetails) as `application/problem+json`.
"""


def build_page() -> str:
    """Build the page."""
    document = describe_api()
    info = document["info"]
    parts = [_HEAD.format(description=info["description"], version=info["version"])]
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            (tag, *_) = operation.get("tags") or ["other"]
            groups.setdefault(tag, []).append(_build_route(method, path, operation, document["components"]))
    for tag, routes in groups.items():
        parts += [f"\n## Routes: {tag}\n", *routes]
    parts.append("\n## Bodies\n\nReaders ignore fields that they do not know.\n")
    parts += [_build_body(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    return "".join(parts)


def _build_route(method: str, path: str, operation: Json, components: Json) -> str:
    parts = [f"\n### {method.upper()} {path}\n\n**{operation['summary']}.** {operation.get('description', '')}\n"]
    if not operation.get("security"):
        parts.append("\nIt needs no key.\n")
    if parameters := operation.get("parameters"):
        parts.append("\n" + build_table(("parameter", "in", "type", "default", "meaning"), map(_describe, parameters)))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"\nBody: {_name_content(kind, content)}.\n{_show_example(content)}")
    rows = []
    for status, response in operation["responses"].items():
        found = components["responses"][response["$ref"].rpartition("/")[2]] if "$ref" in response else response
        contents = [(kind, content) for kind, content in found.get("content", {}).items() if kind != _PROBLEM]
        bodies = ", ".join(_name_content(kind, content) for kind, content in contents)
        rows.append((status, found["description"], bodies))
    parts.append("\n" + build_table(("status", "meaning", "body"), rows))
    return "".join(parts)


def _describe(parameter: Json) -> tuple[str, str, str, str, str]:
    schema = parameter["schema"]
    default = "required" if parameter.get("required") else format_default(schema)
    limits = {key: value for key, value in schema.items() if key != "description"}
    meaning = describe(limits | {"description": parameter.get("description", "")})
    return format_code(parameter["name"]), parameter["in"], _drop_null(describe_type(schema)), default, meaning


def _name_content(kind: str, content: Json) -> str:
    name = describe_type(content.get("schema", {}))
    return name if kind == "application/json" else f"{name} as `{kind}`"


def _show_example(content: Json) -> str:
    for example in content.get("examples", {}).values():
        return f"\n```json\n{json.dumps(example['value'], indent=1, ensure_ascii=False)}\n```\n"
    return ""


def _build_body(name: str, schema: Json) -> str:
    text = f"\n### {name}\n\n{describe(schema)}\n"
    if options := schema.get("oneOf"):
        return text + "\nIt is " + ", ".join(map(describe_type, options)) + ".\n"
    if rows := list(_list_fields(schema)):
        return text + "\n" + build_table(("field", "type", "default", "meaning"), rows)
    return text


def _list_fields(schema: Json) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        default = "required" if name in required else format_default(part)
        yield format_code(name), _drop_null(describe_type(part)), default, describe(part)


def _drop_null(kind: str) -> str:
    return kind.removesuffix(" or null")
