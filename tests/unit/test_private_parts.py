"""Parts of libraries that are used although they are not promised. These tests fail first if such a part changes."""

import ast
import inspect
import textwrap
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from mcp.shared.message import SessionMessage
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mcp_exec_common.peers import ProvenConnector
from mcp_exec_common.process.http_server import BoundedProtocol, HttpServer
from mcp_exec_gateway.features.mcp import sdk

ROOT = Path(__file__).parents[2]
SDK = "gateway/mcp_exec_gateway/features/mcp/sdk.py"
PLACES = {
    "aiohttp.client_proto": {"common/mcp_exec_common/peers.py"},
    "aiohttp.tracing": {"common/mcp_exec_common/peers.py"},
    "mcp.server.connection": {SDK},
    "mcp.server.runner": {SDK},
    "mcp.shared": {
        SDK,
        "broker/mcp_exec_broker/core/upstream/stdio_transport.py",
        "gateway/mcp_exec_gateway/features/signin/resource.py",
    },
    "uvicorn": {"common/mcp_exec_common/process/http_server.py"},
}
"""Modules of libraries with all below them, and the only modules of ours that import them. The broker's transport
exchanges messages of the SDK's own class, and the metadata of the protected resource are one."""

PARAMETERS: dict[Callable[..., Any], str] = {
    SessionMessage: "message metadata",
    sdk.Connection: "outbound protocol_version session_id client_params",
    sdk.InboundLadderRejection: "code message data",
    sdk.NoBackChannelError: "method",
    sdk.TransportContext: "kind can_send_request headers",
    sdk.as_request_id: "value",
    sdk.classify_inbound_request: "body headers supported_modern_versions",
    sdk.find_duplicated_routing_header: "headers",
    sdk.handler_exception_to_error_data: "exc",
    sdk.progress_token_from_params: "params",
    sdk.serve_one: "server dctx method params connection lifespan_state",
    sdk.unsupported_protocol_version_rejection: "requested supported_modern_versions",
}


@pytest.mark.parametrize(("part", "parameters"), PARAMETERS.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_private_function_has_the_parameters_that_are_passed(part: Callable[..., Any], parameters: str) -> None:
    assert " ".join(inspect.signature(part).parameters) == parameters


@pytest.mark.parametrize(
    ("ours", "base"),
    [(BoundedProtocol, HttpToolsProtocol), (HttpServer, uvicorn.Server), (ProvenConnector, aiohttp.BaseConnector)],
)
def test_a_private_class_has_what_its_subclass_uses(ours: type, base: type) -> None:
    own = names_of_self(ours, stored=True) | set(vars(ours))
    inherited = set(dir(base)) | {name for each in base.__mro__[:-1] for name in names_of_self(each, stored=True)}
    used = names_of_self(ours, stored=False)
    assert used - own - inherited == set()
    for name in set(vars(ours)) & set(dir(base)) - set(dir(object)):
        if inspect.isfunction(method := getattr(ours, name)):
            assert list(inspect.signature(method).parameters) == list(inspect.signature(getattr(base, name)).parameters)


@pytest.mark.parametrize("process", ["operator", "gateway", "broker"])
@pytest.mark.parametrize("library", ["aiohttp", "mcp", "uvicorn"])
def test_a_library_with_private_parts_has_a_tested_minor_version(process: str, library: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for requirement in extras[process]:
        if requirement.startswith(f"{library}>"):
            major, minor = version(library).split(".")[:2]
            assert requirement == f"{library}>={major}.{minor},<{major}.{int(minor) + 1}"


def test_private_modules_are_imported_in_one_place() -> None:
    found: dict[str, set[str]] = {private: set() for private in PLACES}
    for package in ("operator", "gateway", "broker", "common"):
        for path in (ROOT / package).rglob("*.py"):
            for module in imported_modules(path.read_text()):
                for private in PLACES:
                    if f"{module}.".startswith(f"{private}."):
                        found[private].add(str(path.relative_to(ROOT)))
    assert found == PLACES


def imported_modules(text: str) -> set[str]:
    """Return the modules that Python code imports names of."""
    nodes = list(ast.walk(ast.parse(text)))
    named = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return named | {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


def names_of_self(owner: type, *, stored: bool) -> set[str]:
    """Return the attributes of `self` that the code of a class assigns, or that it reads."""
    kind = ast.Store if stored else ast.Load
    return {
        node.attr
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(owner))))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, kind)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
