"""Manifest of a ToolServer that runs an imported server, and functions of a Python file, found without running it."""

import ast
import ipaddress
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from mcp_exec_client.cli.exit_codes import CommandError
from mcp_exec_client.cli.importing.definitions import MAX_TOOLS, ImportProblem
from mcp_exec_client.cli.options import Object

MAX_SETTINGS_BYTES: Final = 96 * 1024
"""The settings are an argument of the server's command. Linux takes at most 128 KiB."""
_DNS: Final[Object] = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
_EVERYWHERE: Final = ("0.0.0.0/0", "::/0")
MAX_SOURCE_BYTES: Final = 64 * 1024
"""The source is an argument of the server's command. Linux takes at most 128 KiB."""


@dataclass(frozen=True, kw_only=True)
class SecretVariable:
    """Environment variable whose value is in a Secret."""

    name: str
    secret: str
    key: str


@dataclass(frozen=True, kw_only=True)
class ServerPod:
    """Pod of the server, and the networks that it reaches."""

    image: str
    namespace: str | None = None
    variables: Sequence[SecretVariable] = ()
    egress: Sequence[Object] = ()


def build_function_server(name: str, *, source: str, file: str, functions: Sequence[str], pod: ServerPod) -> Object:
    """Return a ToolServer of functions in the source."""
    settings = {"server": name, "file": file, "tools": list(functions)}
    return build_server(name, ["python3", "-c", _read_program("function_server.py"), json.dumps(settings), source], pod)


def build_forwarding_server(name: str, *, url: str, tools: Sequence[Object], pod: ServerPod) -> Object:
    """Return a ToolServer that forwards calls to a URL. Raises CommandError if its definitions are too large."""
    settings = json.dumps({"server": name, "url": url.rstrip("/"), "tools": list(tools)}, indent=1, ensure_ascii=False)
    if (size := len(settings.encode())) > MAX_SETTINGS_BYTES:
        settings = json.dumps(json.loads(settings), ensure_ascii=False, separators=(",", ":"))
        size = len(settings.encode())
    if size > MAX_SETTINGS_BYTES:
        raise CommandError(
            f"the definitions have {size} bytes; at most {MAX_SETTINGS_BYTES} are allowed: "
            "import some of the tools with --only, and the others as another server"
        )
    return build_server(name, ["python3", "-c", _read_program("forwarding_server.py"), settings], pod)


def build_remote_server(
    name: str, *, url: str, headers: Sequence[tuple[SecretVariable, str]], namespace: str | None
) -> Object:
    """Return a ToolServer at a URL. Each header is a value in a Secret, and the prefix before it."""
    spec: Object = {"url": url}
    if headers:
        spec["headers"] = [
            {
                "name": each.name,
                **({"prefix": prefix} if prefix else {}),
                "secretKeyRef": {"name": each.secret, "key": each.key},
            }
            for each, prefix in headers
        ]
    return _build(name, spec, namespace)


def allow_networks(networks: Sequence[str]) -> list[Object]:
    """Return egress rules for networks, with DNS."""
    return [{"to": [{"ipBlock": {"cidr": network}} for network in networks]}, _DNS] if networks else []


def allow_url(url: str) -> list[Object]:
    """Return the egress rules that a server needs for a URL.

    A NetworkPolicy has no names. For a Service, the rule allows its namespace; for other names, all addresses at the
    URL's port.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    ports = [{"protocol": "TCP", "port": parts.port or (443 if parts.scheme == "https" else 80)}]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [{"to": [{"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}], "ports": ports}]
    labels = host.split(".")
    if len(labels) > 2 and labels[2] == "svc":
        # a pod's port can differ from its Service's
        return [{"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": labels[1]}}}]}, _DNS]
    return [{"to": [{"ipBlock": {"cidr": network}} for network in _EVERYWHERE], "ports": ports}, _DNS]


def _read_program(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def build_server(name: str, command: Sequence[str], pod: ServerPod) -> Object:
    """Return a ToolServer that runs a command in a pod."""
    stdio: dict[str, Any] = {"image": pod.image, "command": [_escape(word) for word in command]}
    if pod.variables:
        stdio["env"] = [
            {"name": each.name, "secretKeyRef": {"name": each.secret, "key": each.key}} for each in pod.variables
        ]
    if pod.egress:
        stdio["egress"] = list(pod.egress)
    return _build(name, {"stdio": stdio}, pod.namespace)


def _build(name: str, spec: Object, namespace: str | None) -> Object:
    return {
        "apiVersion": "mcp-exec.dev/v1beta1",
        "kind": "ToolServer",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }


def _escape(text: str) -> str:
    """Escape what the kubelet would replace in a command: `$(NAME)` and `$$`."""
    return text.replace("$", "$$") if "$$" in text or "$(" in text else text


@dataclass(kw_only=True)
class ImportedFunctions:
    """Functions that can be tools, and those that cannot."""

    source: str
    names: list[str] = field(default_factory=list)
    problems: list[ImportProblem] = field(default_factory=list)


def read_functions(path: Path) -> ImportedFunctions:
    """Read the public functions at the top level of a Python file. Raises CommandError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SOURCE_BYTES + 1)
        if len(content) > MAX_SOURCE_BYTES:
            raise CommandError(
                f"{path} is larger than {MAX_SOURCE_BYTES} bytes: put the code into an image, "
                "and import a small file that imports it, with --image"
            )
        # as Python reads it: lines end with \n, and no NUL or byte order mark remains
        source = content.decode("utf-8-sig").replace("\r\n", "\n")
        tree = ast.parse(source, filename=path.name)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 at byte {error.start}") from error
    except SyntaxError as error:
        raise CommandError(f"{path} is not valid Python, line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise CommandError(f"{path} is not valid Python: {error or 'it is nested too deeply'}") from error
    found = ImportedFunctions(source=source)
    for name, function in {each.name: each for each in _find_functions(tree)}.items():  # the last one counts
        if reason := _find_obstacle(function):
            found.problems.append(ImportProblem(tool=name[:80], reason=reason))
        else:
            found.names.append(name)
    if len(found.names) > MAX_TOOLS:
        raise CommandError(f"{path} has {len(found.names)} functions, but at most {MAX_TOOLS} are allowed")
    return found


def _find_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node


def _find_obstacle(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """Return why a function cannot be a tool, whose arguments have names."""
    arguments = function.args
    if not function.name.isascii() or len(function.name) > 128:
        return "its name must have 1 to 128 ASCII letters, digits and '_'"
    for star, argument in (("*", arguments.vararg), ("**", arguments.kwarg)):
        if argument is not None:
            return f"its parameter {star}{argument.arg} has no fixed name: name each parameter"
    if arguments.posonlyargs:
        return f"its parameter {arguments.posonlyargs[0].arg} is positional only: remove the '/'"
    for argument in (*arguments.args, *arguments.kwonlyargs):
        if argument.arg.startswith("_"):
            return f"its parameter {argument.arg} begins with '_': rename it"
    return None
