"""Tables of executions, approvals, tools and other objects."""

from typing import Any, Final

from mcp_exec_client.cli.options import Object
from mcp_exec_client.cli.output import TableColumn, age, fields

EXECUTIONS: Final = (
    *fields("name", "phase", "reason", "pool", "start", "duration"),
    *fields("caller", "description", wide=True),
    TableColumn(title="POD", cell=lambda item: item.get("podName"), wide=True),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
SESSIONS: Final = (
    *fields("name", "phase", "reason", "pool"),
    TableColumn(title="EXECUTIONS", cell=lambda item: item.get("executions", 0)),
    TableColumn(title="QUEUED", cell=lambda item: item.get("queued") or None, wide=True),
    TableColumn(title="MEMORY", cell=lambda item: format_bytes(item.get("memoryBytes"))),
    *fields("user", "caller", "description", wide=True),
    TableColumn(title="POD", cell=lambda item: item.get("podName"), wide=True),
    TableColumn(title="EXPIRES", cell=lambda item: item.get("expiresAt"), wide=True),
    TableColumn(title="USED", cell=lambda item: age(item.get("lastUsedAt"))),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
WORKSPACES: Final = (
    *fields("name", "version", "files"),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("bytes"))),
    TableColumn(title="LIMIT", cell=lambda item: format_bytes(item.get("maxBytes")), wide=True),
    *fields("description", wide=True),
    TableColumn(title="EXPIRES", cell=lambda item: item.get("expiresAt"), wide=True),
    TableColumn(title="USED", cell=lambda item: age(item.get("usedAt"))),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
FILES: Final = (
    *fields("path"),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("size"))),
    *fields("sha256", wide=True),
)
VERSIONS: Final = (
    *fields("version", "files"),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("bytes"))),
    TableColumn(title="CHANGED", cell=lambda item: item.get("changedFiles")),
    *fields("restored"),
    *fields("execution", wide=True),
    TableColumn(title="AGE", cell=lambda item: age(item.get("createdAt"))),
)
ARTIFACTS: Final = (
    *fields("id", "name"),
    TableColumn(title="TYPE", cell=lambda item: item.get("mediaType")),
    TableColumn(title="SIZE", cell=lambda item: format_bytes(item.get("bytes"))),
    *fields("title"),
    TableColumn(title="LINK", cell=lambda item: item.get("url"), wide=True),
)
POOLS: Final = (
    *fields("name"),
    TableColumn(title="WARM", cell=lambda item: item.get("warm", 0)),
    TableColumn(title="BUSY", cell=lambda item: item.get("busy", 0)),
    TableColumn(title="QUEUED", cell=lambda item: item.get("queued", 0)),
    *fields("runtime", wide=True),
    *fields("python"),
    TableColumn(title="LIBRARIES", cell=lambda item: list_libraries(item.get("libraries"))),
)
SKILLS: Final = (
    TableColumn(title="NAME", cell=lambda item: f"{item['name']}-v{item['version']}"),
    *fields("state", "author", "uses", "successes"),
    TableColumn(title="DESCRIPTION", cell=lambda item: first_line(item.get("description"))),
    *fields("import", wide=True),
)
SKILL_VERSIONS: Final = (
    *SKILLS[:3],
    TableColumn(title="SOURCE", cell=lambda item: (item.get("provenance") or {}).get("source")),
    TableColumn(title="EXECUTION", cell=lambda item: (item.get("provenance") or {}).get("execution")),
    TableColumn(title="REVIEWED BY", cell=lambda item: item.get("reviewedBy")),
    *SKILLS[3:],
)
APPROVALS: Final = (
    *fields("execution", "id", "state", "tool"),
    TableColumn(title="EXPIRES", cell=lambda item: item.get("expiresAt")),
    TableColumn(title="DECIDED BY", cell=lambda item: item.get("decidedBy"), wide=True),
    *fields("arguments"),
)
TOOLS: Final = (
    TableColumn(title="TOOL", cell=lambda item: tool_name(item)),
    TableColumn(title="DESCRIPTION", cell=lambda item: first_line(item.get("description"))),
    *fields("import", wide=True),
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
