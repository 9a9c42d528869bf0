"""How executions, approvals and tools are shown in tables."""

from typing import Any, Final

from mcp_exec_client.cli.options import Object
from mcp_exec_client.cli.output import TableColumn, age

EXECUTIONS: Final = (
    TableColumn(title="NAME", cell=lambda item: item["name"]),
    TableColumn(title="PHASE", cell=lambda item: item.get("phase")),
    TableColumn(title="REASON", cell=lambda item: item.get("reason")),
    TableColumn(title="POOL", cell=lambda item: item.get("pool")),
    TableColumn(title="START", cell=lambda item: item.get("start")),
    TableColumn(title="DURATION", cell=lambda item: item.get("duration")),
    TableColumn(title="CALLER", cell=lambda item: item.get("caller"), wide=True),
    TableColumn(title="DESCRIPTION", cell=lambda item: item.get("description"), wide=True),
    TableColumn(title="POD", cell=lambda item: item.get("podName"), wide=True),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
SESSIONS: Final = (
    TableColumn(title="NAME", cell=lambda item: item["name"]),
    TableColumn(title="PHASE", cell=lambda item: item.get("phase")),
    TableColumn(title="REASON", cell=lambda item: item.get("reason")),
    TableColumn(title="POOL", cell=lambda item: item.get("pool")),
    TableColumn(title="EXECUTIONS", cell=lambda item: item.get("executions", 0)),
    TableColumn(title="QUEUED", cell=lambda item: item.get("queued") or None, wide=True),
    TableColumn(title="MEMORY", cell=lambda item: format_bytes(item.get("memoryBytes"))),
    TableColumn(title="USER", cell=lambda item: item.get("user"), wide=True),
    TableColumn(title="CALLER", cell=lambda item: item.get("caller"), wide=True),
    TableColumn(title="DESCRIPTION", cell=lambda item: item.get("description"), wide=True),
    TableColumn(title="POD", cell=lambda item: item.get("podName"), wide=True),
    TableColumn(title="EXPIRES", cell=lambda item: item.get("expiresAt"), wide=True),
    TableColumn(title="USED", cell=lambda item: age(item.get("lastUsedAt"))),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
WORKSPACES: Final = (
    TableColumn(title="NAME", cell=lambda item: item["name"]),
    TableColumn(title="VERSION", cell=lambda item: item.get("version")),
    TableColumn(title="FILES", cell=lambda item: item.get("files")),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("bytes"))),
    TableColumn(title="LIMIT", cell=lambda item: format_bytes(item.get("maxBytes")), wide=True),
    TableColumn(title="DESCRIPTION", cell=lambda item: item.get("description"), wide=True),
    TableColumn(title="EXPIRES", cell=lambda item: item.get("expiresAt"), wide=True),
    TableColumn(title="USED", cell=lambda item: age(item.get("usedAt"))),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
FILES: Final = (
    TableColumn(title="PATH", cell=lambda item: item["path"]),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("size"))),
    TableColumn(title="SHA256", cell=lambda item: item.get("sha256"), wide=True),
)
VERSIONS: Final = (
    TableColumn(title="VERSION", cell=lambda item: item["version"]),
    TableColumn(title="FILES", cell=lambda item: item.get("files")),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("bytes"))),
    TableColumn(title="CHANGED", cell=lambda item: item.get("changedFiles")),
    TableColumn(title="RESTORED", cell=lambda item: item.get("restored")),
    TableColumn(title="EXECUTION", cell=lambda item: item.get("execution"), wide=True),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
ARTIFACTS: Final = (
    TableColumn(title="ID", cell=lambda item: item["id"]),
    TableColumn(title="NAME", cell=lambda item: item.get("name")),
    TableColumn(title="TYPE", cell=lambda item: item.get("mediaType")),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("bytes"))),
    TableColumn(title="TITLE", cell=lambda item: item.get("title")),
    TableColumn(title="LINK", cell=lambda item: item.get("url"), wide=True),
)
POOLS: Final = (
    TableColumn(title="NAME", cell=lambda item: item["name"]),
    TableColumn(title="WARM", cell=lambda item: item.get("warm", 0)),
    TableColumn(title="BUSY", cell=lambda item: item.get("busy", 0)),
    TableColumn(title="QUEUED", cell=lambda item: item.get("queued", 0)),
    TableColumn(title="RUNTIME", cell=lambda item: item.get("runtime"), wide=True),
    TableColumn(title="PYTHON", cell=lambda item: item.get("python")),
    TableColumn(title="LIBRARIES", cell=lambda item: list_libraries(item.get("libraries"))),
)
SKILLS: Final = (
    TableColumn(title="NAME", cell=lambda item: f"{item['name']}-v{item['version']}"),
    TableColumn(title="STATE", cell=lambda item: item.get("state")),
    TableColumn(title="AUTHOR", cell=lambda item: item.get("author")),
    TableColumn(title="USES", cell=lambda item: item.get("uses")),
    TableColumn(title="SUCCESSES", cell=lambda item: item.get("successes")),
    TableColumn(title="DESCRIPTION", cell=lambda item: first_line(item.get("description"))),
    TableColumn(title="IMPORT", cell=lambda item: item.get("import"), wide=True),
)
SKILL_VERSIONS: Final = (
    *SKILLS[:3],
    TableColumn(title="SOURCE", cell=lambda item: (item.get("provenance") or {}).get("source")),
    TableColumn(title="EXECUTION", cell=lambda item: (item.get("provenance") or {}).get("execution")),
    TableColumn(title="REVIEWED BY", cell=lambda item: item.get("reviewedBy")),
    *SKILLS[3:],
)
APPROVALS: Final = (
    TableColumn(title="EXECUTION", cell=lambda item: item.get("execution")),
    TableColumn(title="ID", cell=lambda item: item["id"]),
    TableColumn(title="STATE", cell=lambda item: item.get("state")),
    TableColumn(title="TOOL", cell=lambda item: item.get("tool")),
    TableColumn(title="EXPIRES", cell=lambda item: item.get("expiresAt")),
    TableColumn(title="DECIDED BY", cell=lambda item: item.get("decidedBy"), wide=True),
    TableColumn(title="ARGUMENTS", cell=lambda item: item.get("arguments")),
)
TOOLS: Final = (
    TableColumn(title="TOOL", cell=lambda item: tool_name(item)),
    TableColumn(title="DESCRIPTION", cell=lambda item: first_line(item.get("description"))),
    TableColumn(title="IMPORT", cell=lambda item: item.get("import"), wide=True),
)


def tool_name(item: Object) -> str:
    """Return SERVER.TOOL."""
    return f"{item.get('server')}.{item.get('name')}"


def list_libraries(libraries: Any) -> str:
    """Return names and versions of libraries. The last cell of a row has room for them."""
    return ", ".join(f"{library['name']} {library['version']}" for library in libraries or ())


def first_line(text: Any) -> str:
    """Return the first line of a description."""
    return str(text or "").strip().partition("\n")[0]


def format_bytes(count: Any) -> str:
    """Return a number of bytes for people: `48Mi`."""
    if not isinstance(count, int):
        return ""
    for size, unit in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 10 * size else f"{count / size:.0f}{unit}"
    return str(count)
