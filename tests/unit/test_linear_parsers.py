"""Every parser of foreign input takes linear time: input built against it, at one and four times its size."""

import contextlib
import gc
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import thread_time
from typing import Any, cast

import h11
import pytest
from starlette.requests import Request

from mcp_exec_api.meta import parse_quantity
from mcp_exec_broker.core.api.call_body import parse_request
from mcp_exec_broker.core.calls.response import parse_value
from mcp_exec_broker.core.upstream.errors import redact_json, redact_output
from mcp_exec_broker.core.validation.values import ArgumentValidator, OutputValidator
from mcp_exec_broker.features.scanning.detectors import PersonalDataDetector, SecretDetector, TextIndex
from mcp_exec_broker.features.scanning.scanner import Scanner
from mcp_exec_broker.features.scanning.tokenizer import Tokenizer
from mcp_exec_client.agent.written_calls import read_written_calls
from mcp_exec_common.broker.grants import Grant, GrantSigner
from mcp_exec_common.code_check.rules import find_issues
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.skills.interface import InvalidSkill
from mcp_exec_common.skills.languages import read_interface
from mcp_exec_common.util.weight import weigh_json
from mcp_exec_gateway.core.auth.kubernetes_tokens import read_token_expiry
from mcp_exec_gateway.core.events.follower import StreamPosition
from mcp_exec_gateway.core.http.parameters import reject_repeated_parameters
from mcp_exec_gateway.core.http.request_body import parse_spec
from mcp_exec_gateway.features.signin.tokens import read_unverified
from mcp_exec_operator.features.skills.resolver import find_skills
from mcp_exec_sandbox.supervisor.http.connection import MAX_HEADER_BYTES
from mcp_exec_sandbox.supervisor.json_object import parse_object
from mcp_exec_tools.catalog import Catalog, Tool, assign_modules
from mcp_exec_tools.names import find_close_names
from mcp_exec_tools.output_inference import infer_schema
from mcp_exec_tools.patterns import ToolPatterns, matches_any
from mcp_exec_tools.schemas.model_schema import build_model_schema
from mcp_exec_tools.schemas.parameters import read_parameters
from mcp_exec_tools.search.index import Index
from mcp_exec_tools.text import estimate_tokens
from mcp_exec_tools.wrappers import build_files

FLOOR_SECONDS = 0.004
"""CPU time that counts as nothing: a machine under load adds as much."""
_SIGNER = GrantSigner(keys=SandboxKeys(b"a key"))
_SECRETS, _PERSONAL = SecretDetector(), PersonalDataDetector()


@dataclass(frozen=True)
class Case:
    """A parser, and the input that costs it most."""

    parse: Callable[[Any], object]
    make: Callable[[int], Any]
    size: int
    """The input's smallest size; the largest has four times as much, and not more than the parser accepts."""


def parse_call(data: bytes) -> object:
    return parse_request(data, lease=cast(Any, None))


def body(members: str) -> bytes:
    return f'{{"code": "1", "context": {{{members}}}}}'.encode()


def query(text: str) -> Request:
    return Request({"type": "http", "query_string": text.encode(), "headers": []})


def tool(name: str, schema: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema or {"type": "object"}, **fields}


def catalog(*tools: dict[str, Any]) -> Catalog:
    return Catalog.from_tools("box", tools)


def properties(count: int, value: Any = None) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{number}": value or {} for number in range(count)}}


def validate(given: tuple[Tool, dict[str, Any]]) -> object:
    return ArgumentValidator().validate(given[0], given[1], catalog_hash="x")


def personal(text: Any) -> object:
    return list(_PERSONAL.find(TextIndex(text)))


def secrets(text: Any) -> object:
    return list(_SECRETS.find(TextIndex(text)))


def replace_all(text: str) -> object:
    texts = TextIndex([text, text])
    return texts.replace((span, "x") for span in sorted(_PERSONAL.find(texts), key=lambda span: span.start))


def tokenize(text: str) -> object:
    tokenizer = Tokenizer()
    for number in range(100):
        tokenizer.tokenize("EMAIL", f"{number}@it.example")
    return tokenizer.detokenize(text)


def read_calls(text: str) -> object:
    return read_written_calls(text, {"execute_code"})


def check(code: str) -> object:
    return find_issues(code, memory=1024)


def read_skill(code: str) -> object:
    with contextlib.suppress(InvalidSkill):
        return read_interface(code, "typescript")
    return find_skills(code, "typescript")


def read_head(data: bytes) -> object:
    """Read a request's head as the supervisor does, in pieces."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
    for start in range(0, len(data), 16):
        connection.receive_data(data[start : start + 16])
        connection.next_event()
    return None


def search(given: tuple[Catalog, str]) -> object:
    return Index([given[0]]).search(given[1])


def spell(number: int) -> str:
    """Return one of many spellings of the same name."""
    return "a" + "".join(("-" if number >> bit & 1 else "_") + "a" for bit in range(12))


def spell_word(number: int) -> str:
    """Return one of many words that are spelled almost alike."""
    return "abcdef" + "".join(chr(97 + number // 26**place % 26) for place in range(3))


LOOPS = "".join(" " * level + "while True:\n" for level in range(60)) + " " * 60 + "pass\n"
INDEX = Index([Catalog.from_tools("box", [{"name": f"t{number}", "description": "a b c"} for number in range(200)])])
SIMILAR = Index([Catalog.from_tools("box", [{"name": spell_word(number)} for number in range(1000)])])

GATEWAY = {
    "keys, the last one twice": Case(
        parse_spec, lambda n: body(",".join(f'"{k}":0' for k in [*range(n), n - 1])), 15_000
    ),
    "keys of objects": Case(parse_spec, lambda n: body('"a":[' + ",".join(['{"k":1}'] * n) + "]"), 10_000),
    "levels": Case(parse_spec, lambda n: body('"a":' + "[" * n + "]" * n), 40_000),
    "open levels": Case(parse_spec, lambda n: body('"a":' + '{"a":' * n), 20_000),
    "escapes": Case(parse_spec, lambda n: body('"a":"' + "\\ud83d\\ude00" * n + '"'), 20_000),
    "backslashes without an end": Case(parse_spec, lambda n: body('"a":"' + "\\\\" * n), 100_000),
    "digits": Case(parse_spec, lambda n: body('"a":' + "9" * n), 200_000),
    "digits after a point": Case(parse_spec, lambda n: body('"a":0.' + "1" * n), 200_000),
    "numbers": Case(parse_spec, lambda n: body('"a":[' + "1e308," * n + "0]"), 20_000),
    "code": Case(parse_spec, lambda n: json.dumps({"code": "\n" * n}).encode(), 60_000),
    "query parameters": Case(reject_repeated_parameters, lambda n: query("&".join(f"{k}=" for k in range(n))), 4000),
    "a query of separators": Case(reject_repeated_parameters, lambda n: query("&" * n + "a=1&a=2"), 20_000),
    "a query of escapes": Case(reject_repeated_parameters, lambda n: query("a=" + "%41" * n), 8000),
    "a stream's position": Case(StreamPosition.parse, lambda n: "1" * n + "." * n, 50_000),
    "a ServiceAccount's token": Case(read_token_expiry, lambda n: "a." + "W1tb" * n + ".c", 5000),
    "a person's token": Case(read_unverified, lambda n: "e30." + "W1tb" * n + ".c", 5000),
    "a person's token of dots": Case(read_unverified, lambda n: "." * n, 20_000),
    "a token of dots": Case(read_token_expiry, lambda n: "." * n, 20_000),
}
BROKER = {
    "a grant": Case(partial(_SIGNER.read, Grant), lambda n: "eyJhbGciOiJIUzI1NiJ9." + "W1tb" * n + ".c", 10_000),
    "a grant of dots": Case(partial(_SIGNER.read, Grant), lambda n: "." * n, 20_000),
    "a service token": Case(_SIGNER.read_service_token, lambda n: "W1tb" * n, 10_000),
    "a call": Case(parse_call, lambda n: b'{"id":"1","tool":"a.b","arguments":{"a":[' + b"{}," * n + b"0]}}", 10_000),
    "a call's levels": Case(parse_call, lambda n: b'{"id":"1","tool":"a.b","arguments":' + b'{"a":' * n, 20_000),
    "the memory of short texts": Case(lambda data: weigh_json(data, limit=1), lambda n: b'"",' * n, 20_000),
    "the memory of quotes": Case(lambda data: weigh_json(data, limit=1 << 30), lambda n: b'"\\"' * n, 40_000),
    "arguments": Case(
        validate, lambda n: (catalog(tool("a", properties(n))).tools[0], {f"p{k}": 0 for k in range(n)}), 500
    ),
    "arguments that are unknown": Case(
        validate, lambda n: (catalog(tool("a", properties(n))).tools[0], {f"q{k}": 0 for k in range(n)}), 1000
    ),
    "arguments that are None": Case(
        validate, lambda n: (catalog(tool("a", properties(n))).tools[0], {f"p{k}": None for k in range(n)}), 250
    ),
    "a pattern of a schema": Case(
        validate,
        lambda n: (catalog(tool("a", properties(1, {"pattern": "^(a+)+$"}))).tools[0], {"p0": "a" * n + "b"}),
        50_000,
    ),
    "equal items": Case(
        validate,
        lambda n: (
            catalog(tool("a", properties(1, {"uniqueItems": True}))).tools[0],
            {"p0": [{"a": k} for k in range(n)]},
        ),
        5000,
    ),
    "a schema's alternatives": Case(
        lambda schema: OutputValidator().validate("a", {"a": 1}, schema, catalog_hash="x"),
        lambda n: {"anyOf": [{"allOf": [{"$ref": "#/anyOf/0"}]}] * n},
        2000,
    ),
    "similar names": Case(
        lambda names: find_close_names("ab" * 30, names),
        lambda n: ["ab" * 29 + f"{k:04}" for k in range(n)],
        100,
    ),
    "text that is JSON": Case(
        lambda text: parse_value({"content": [{"type": "text", "text": text}]}, None, modern=True),
        lambda n: "[" + "[]," * n + "0]",
        20_000,
    ),
    "many texts": Case(
        lambda texts: parse_value({"content": [{"type": "text", "text": text} for text in texts]}, None, modern=True),
        lambda n: ["[1]"] * n + ["no JSON"],
        5000,
    ),
    "credentials": Case(lambda text: redact_json([text], ["aaaa", "secret"]), lambda n: "aaa\\u0061" * n, 20_000),
    "parts of credentials": Case(
        lambda text: redact_output(text, [text[::2], "a" * len(text)], min_length=6, max_chars=len(text)),
        lambda n: "aaaaaaab" * n,
        5000,
    ),
    "tokens": Case(tokenize, lambda n: "[EMAIL_1" * n + "[", 10_000),
    "the audit's excerpt": Case(Scanner().redact_json, lambda n: ["a@b.example "] * n, 5000),
}
SCANNER = {
    f"{kind.__name__}: {text}": Case(kind, lambda n, text=text: text * n, size)  # type: ignore[misc]
    for kind, texts in {
        secrets: (
            "AKIA", "sk-ant-", "ghp_", "eyJ.", "eyJhbGciOiJIUzI1NiJ9.", "-----BEGIN RSA PRIVATE KEY-----", "xox",
            "://", "a://b:c@", "sk_live_", "aws.key=", "npm_", "AccountKey=", "hooks.slack.com/services/", "-us1",
        ),
        personal: (
            "a@", "a@b.", "@", "a.", "é@é.", "AA00 ", "AA00A", "1 ", "1-1", "1.", "(1", "+1", "411111", "000-00-",
            "0  ",
        ),
        replace_all: ("a@b.cd ", "4111 1111 1111 1111 "),
    }.items()
    for text in texts
    for size in (12_000 // len(text) if kind is not replace_all else 500,)
}  # fmt: skip
TOOLS = {
    "tokens of spaces": Case(estimate_tokens, lambda n: " " * n + "x", 30_000),
    "tokens of lines": Case(estimate_tokens, lambda n: "\n " * n + "x", 15_000),
    "tokens of capitals": Case(estimate_tokens, lambda n: "A" * n, 60_000),
    "tokens of wide characters": Case(estimate_tokens, lambda n: "\u6f22" * n, 60_000),
    "patterns with stars": Case(
        lambda patterns: matches_any(patterns, server="a" * 1000, tool="a" * 1000),
        lambda n: ["a*" * n + "." + "a*" * n],
        50_000,
    ),
    "many patterns": Case(
        lambda patterns: matches_any(patterns, server="a", tool="a"), lambda n: ["a*.a*b"] * n, 20_000
    ),
    "compiled patterns": Case(
        lambda patterns: [ToolPatterns(patterns).match("a" * 63, "a" * 128) for _ in range(3)],
        lambda n: ["a" * (k % 60) + "*.b" + str(k) + "*" for k in range(n)],
        10_000,
    ),
    "tools": Case(lambda tools: catalog(*tools).spellings, lambda n: [tool(f"listIssue{k}") for k in range(n)], 500),
    "a tool's name in capitals": Case(lambda name: catalog(tool(name)).spellings, lambda n: "A" * n, 50_000),
    "names that collide": Case(
        lambda tools: catalog(*tools).spellings, lambda n: [tool(spell(k)) for k in range(n)], 200
    ),
    "servers": Case(assign_modules, lambda n: [Catalog.from_tools(f"s-{k}", []) for k in range(n)], 500),
    "an index": Case(
        search, lambda n: (catalog(*(tool(f"t{k}", description="ab " * 200) for k in range(n))), "ab"), 100
    ),
    "a description": Case(search, lambda n: (catalog(tool("t", description="aB" * n)), "ab"), 50_000),
    "a query": Case(INDEX.search, lambda n: "a b c " * n, 40),
    "a query of values": Case(INDEX.search, lambda n: "/a.b@c-1/" * n + ' "a' * n, 20),
    "a query of misspelled words": Case(
        SIMILAR.search, lambda n: " ".join(f"abcdefx{chr(97 + k)}h" for k in range(n)), 4
    ),
    "words that are spelled alike": Case(
        search, lambda n: (catalog(*(tool(spell_word(k)) for k in range(n))), "abcdefxgh abcdefgxh abcdxefgh"), 200
    ),
    "values of a parameter": Case(
        search, lambda n: (catalog(tool("t", properties(1, {"enum": [f"v{k}" for k in range(n)]}))), "v1"), 20_000
    ),
    "a tool's name in another script": Case(
        lambda name: catalog(tool(name)).spellings, lambda n: "\u0430\u0410" * n, 20_000
    ),
    "parameters of alternatives": Case(
        read_parameters, lambda n: {"anyOf": [properties(n), properties(n, {"type": "string"})]}, 1000
    ),
    "alternatives that refer to one part": Case(
        read_parameters, lambda n: {"anyOf": [{"$ref": "#/$defs/a"}] * 100, "$defs": {"a": properties(n)}}, 20
    ),
    "names that are equal in code": Case(
        lambda schema: read_parameters(schema).code_names,
        lambda n: {
            "properties": {f"a{chr(33 + k % 15)}{chr(33 + k // 15 % 15)}" + "-" * (k // 225): {} for k in range(n)}
        },
        1000,
    ),
    "rules": Case(
        lambda schema: read_parameters(schema).rules,
        lambda n: {"oneOf": [{"required": [f"p{k}" for k in range(n)]} for _ in range(10)]},
        1000,
    ),
    "a schema for a model": Case(build_model_schema, lambda n: properties(n, {"$ref": "#/properties/p0"}), 300),
    "a schema of levels for a model": Case(
        build_model_schema, lambda n: {"properties": {"a": json.loads('{"items":' * n + "{}" + "}" * n)}}, 100
    ),
    "a description for a model": Case(lambda text: build_model_schema({}, text), lambda n: "\u202e" * n, 50_000),
    "parameters": Case(lambda schema: build_files([catalog(tool("t", schema))]), lambda n: properties(n), 100),
    "references": Case(
        lambda schema: build_files([catalog(tool("t", schema))]),
        lambda n: properties(50, {"$ref": "#/$defs/a"}) | {"$defs": {"a": properties(n)}},
        50,
    ),
    "a long reference": Case(
        lambda schema: build_files([catalog(tool("t", schema))]),
        lambda n: properties(10, {"$ref": "#/" + "a/" * n}),
        5000,
    ),
    "alternatives": Case(
        lambda schema: build_files([catalog(tool("t", schema))]),
        lambda n: properties(n, {"anyOf": [{"type": "null"}] * 20}),
        50,
    ),
    "values": Case(
        lambda schema: build_files([catalog(tool("t", schema))]),
        lambda n: properties(1, {"enum": [f"v{k}" for k in range(n)]}),
        500,
    ),
    "levels of a schema": Case(
        lambda schema: build_files([catalog(tool("t", schema))]),
        lambda n: json.loads('{"items":' * n + "{}" + "}" * n),
        50,
    ),
    "parameters in TypeScript": Case(
        lambda schema: build_files([catalog(tool("t", schema))], language="typescript"),
        lambda n: properties(n, {"enum": ["a", "b"], "description": "a. " * 200}),
        50,
    ),
    "a tool's description in TypeScript": Case(
        lambda text: build_files([catalog(tool("t", description=text))], language="typescript"),
        lambda n: "*/ " * n,
        5000,
    ),
    "a tool's description": Case(
        lambda text: build_files([catalog(tool("t", description=text))]), lambda n: "a. " * n, 5000
    ),
    "inference": Case(infer_schema, lambda n: [[{f"k{k}": k for k in range(20)}] * n], 1000),
}
CODE = {
    "levels of code": Case(check, lambda n: "x = " + "(" * n + ")" * n, 4000),
    "a long sum": Case(check, lambda n: "x = " + "1+" * n + "1", 2000),
    "a sum of texts": Case(check, lambda n: "client.query(" + "'select '+x+" * n + "x)", 500),
    "a product": Case(check, lambda n: "x = [0]" + "*9" * n, 1000),
    "a power": Case(check, lambda n: "x = bytearray(" + "9**" * n + "9)", 500),
    "names": Case(check, lambda n: "\n".join(f"a{k} = a{k - 1} + 'select'\nquery(a{k})" for k in range(n)), 150),
    "one name": Case(check, lambda n: "\n".join(["a = a * 2", "x = bytearray(a)"] * n), 250),
    "loops in loops": Case(check, lambda n: LOOPS * n, 2),
    "loops in a row": Case(check, lambda n: "while True:\n  pass\n" * n, 400),
    "f-strings": Case(check, lambda n: "query(f'select " + "{x}" * n + "')", 2000),
    "attributes": Case(check, lambda n: "x" + ".a" * n + "()", 3000),
    "calls": Case(check, lambda n: "eval(" * n + ")" * n, 40),
    "imports": Case(check, lambda n: "import a\n" * n, 900),
    "calls that a model writes": Case(read_calls, lambda n: "```json\n{}" * n, 20_000),
    "a call without its end": Case(read_calls, lambda n: "<think>" + "<tool_call>[TOOL_CALLS]" * n, 10_000),
    "templates in templates": Case(read_skill, lambda n: "`${" * n, 20_000),
    "levels of a skill": Case(read_skill, lambda n: "{" * n, 20_000),
    "exports of a skill": Case(read_skill, lambda n: "export {" * n, 5_000),
    "slashes in a skill": Case(read_skill, lambda n: "/" * n, 20_000),
    "arrays in a type": Case(read_skill, lambda n: "export function run(a: {a: " + "x[]" * n, 10_000),
    "arguments of a type": Case(read_skill, lambda n: "export function run(a: {a: " + "<" * n, 20_000),
    "names of skills": Case(read_skill, lambda n: "export const run = 1;" + '"skills/a' * n, 10_000),
    "a quantity": Case(parse_quantity, lambda n: "1" * n + "x", 100_000),
}
SUPERVISOR = {
    "a head in pieces": Case(read_head, lambda n: b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * n, 600),
    "a header in pieces": Case(read_head, lambda n: b"GET / HTTP/1.1\r\na: " + b"b" * n, MAX_HEADER_BYTES // 5),
    "levels": Case(parse_object, lambda n: b'{"a":' * n, 50_000),
    "brackets in a text": Case(parse_object, lambda n: b'{"a":"' + b'\\"[' * n, 50_000),
    "texts": Case(parse_object, lambda n: b'{"a":[' + b'"[",' * n, 50_000),
}
CASES = {f"{group}: {name}": case for group, cases in {
    "gateway": GATEWAY, "broker": BROKER, "scanner": SCANNER, "tools": TOOLS, "code": CODE, "supervisor": SUPERVISOR,
}.items() for name, case in cases.items()}  # fmt: skip


def measure(case: Case, factor: int) -> float:
    """Return the CPU seconds of the fastest of three runs."""
    times = []
    gc.disable()  # it takes time for all objects of this process, however few are new
    for _ in range(3):
        given = case.make(case.size * factor)
        started = thread_time()
        with contextlib.suppress(Exception):
            case.parse(given)
        times.append(thread_time() - started)
    gc.enable()
    return min(times)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_parser_takes_linear_time(case: Case) -> None:
    for _ in range(3):  # other processes disturb the caches: one undisturbed comparison is enough
        small, large = measure(case, 1), measure(case, 4)
        if large <= FLOOR_SECONDS + 7 * small:
            return
    assert large <= FLOOR_SECONDS + 7 * small
