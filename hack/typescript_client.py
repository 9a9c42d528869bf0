"""Generate what client/typescript takes from the API: a method for each operation, and the options of an execution.

python -m hack.typescript_client      writes the files; hack/typescript-client writes the types of openapi.json
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hack.openapi import PAGE

from mcp_exec_api.wire.execution_options import EXECUTION_OPTIONS, ExecutionOption

FOLDER: Final = Path(__file__).parents[1] / "client" / "typescript" / "src"
_METHODS: Final = ("get", "put", "post", "delete")
_WIDTH: Final = 110
_HEADER: Final = "// `make generate` writes this file from {source}.\n"
_OPERATIONS: Final = """\
import {{ type Answer, Api, type Given }} from "./api.ts";

/** Every operation of the API that answers with JSON or without a body, under the name that openapi.json gives it. */
export class Operations extends Api {{
{methods}
}}
"""
_METHOD: Final = """\
  /** {summary}. */
  {name}({names}options: Given<"{name}"> = {{}}): Promise<Answer<"{name}">> {{
    return this.request("{method}", "{path}", {given}, options);
  }}"""
_OPTIONS: Final = """\
import type {{ components }} from "./schema.ts";
import type {{ Loose }} from "./types.ts";

type Body = Loose<components["schemas"]["NewExecution"]>;

/** Options of an execution. One that is not given, or null, has the gateway's default. */
export interface RunOptions {{
{fields}
}}

/** Places of the options in the body of a request. */
export const OPTION_FIELDS: Readonly<Record<keyof RunOptions, string>> = {{
{places}
}};
"""


def build_files() -> dict[Path, str]:
    """Build the text of each file."""
    page = json.loads(PAGE.read_text())
    return {
        FOLDER / "operations.ts": _HEADER.format(source="openapi.json") + build_operations(page["paths"]),
        FOLDER / "options.ts": _HEADER.format(source="mcp_exec_api.wire.execution_options")
        + build_options(page["components"]["schemas"]["NewExecution"]["properties"]),
    }


def build_operations(paths: Mapping[str, Any]) -> str:
    """Build the class with a method for each operation of these paths."""
    methods = [
        _build_method(path, method, operation)
        for path, operations in paths.items()
        for method, operation in operations.items()
        if method in _METHODS and _is_plain(operation)
    ]
    return _OPERATIONS.format(methods="\n\n".join(methods))


def _is_plain(operation: Mapping[str, Any]) -> bool:
    """Return whether neither the request nor the response has a body that is no JSON."""
    bodies = [
        operation.get("requestBody", {}),
        *(each for status, each in operation["responses"].items() if status[0] == "2"),
    ]
    return all(set(body.get("content", {})) <= {"application/json"} for body in bodies)


def _build_method(path: str, method: str, operation: Mapping[str, Any]) -> str:
    names = re.findall(r"\{(\w+)\}", path)
    types = {each["name"]: each["schema"]["type"] for each in operation.get("parameters", []) if each["in"] == "path"}
    given = [f"{name}: {'number' if types[name] == 'integer' else 'string'}, " for name in names]
    return _METHOD.format(
        summary=operation["summary"],
        name=operation["operationId"],
        names="".join(given),
        method=method.upper(),
        path=path,
        given=f"{{ {', '.join(names)} }}" if names else "{}",
    )


def build_options(properties: Mapping[str, Any]) -> str:
    """Build the interface of the options, which are fields of a body with these properties, and their places."""
    fields = [line for option in EXECUTION_OPTIONS.values() for line in _build_field(option, properties)]
    places = [f'  {_camel(option.name)}: "{option.field}",' for option in EXECUTION_OPTIONS.values()]
    return _OPTIONS.format(fields="\n".join(fields), places="\n".join(places))


def _build_field(option: ExecutionOption, properties: Mapping[str, Any]) -> Iterator[str]:
    field, _, inner = option.field.partition(".")
    text = "" if inner else properties[field].get("description", "")
    text = " ".join((text or f"{option.help[:1].upper()}{option.help[1:]}.").split())
    default = f" Default: {option.default}." if option.default and "default" not in text.lower() else ""
    yield from _comment(text + default)
    kind = f'NonNullable<Body["{field}"]>["{inner}"]' if inner else f'Body["{field}"]'
    yield f"  {_camel(option.name)}?: {kind} | null | undefined;"


def _comment(text: str) -> Iterator[str]:
    """Yield the lines of a comment with a text, whose words stay whole."""
    words, line = text.replace("*/", "* /").split(" "), ""
    lines = []
    for word in words:
        if line and len(line) + len(word) >= _WIDTH:
            lines.append(line)
            line = ""
        line += f"{' ' if line else ''}{word}"
    lines.append(line)
    if len(lines) == 1:
        yield f"  /** {line} */"
        return
    yield "  /**"
    yield from (f"   * {each}" for each in lines)
    yield "   */"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


if __name__ == "__main__":
    for path, text in build_files().items():
        path.write_text(text)
