"""Addresses of resources: `skill://`, `workspace://`, `artifact://` and `tool://`."""

from dataclasses import dataclass
from typing import Final, Literal, get_args
from urllib.parse import quote, unquote

from mcp import MCPError
from mcp_types import INVALID_PARAMS, ResourceTemplate

Scheme = Literal["skill", "workspace", "artifact", "tool"]
SCHEMES: Final = get_args(Scheme)
MAX_ADDRESS: Final = 4096
"""Characters of an address. A path has 1,024, and an address may have three for each of them."""
TEMPLATES: Final = (
    ResourceTemplate(
        name="skill-file",
        title="File of a skill",
        uri_template="skill://{name}/{+file}",
        description="SKILL.md or the code, such as scripts/run.py, of the newest approved version of a skill.",
    ),
    ResourceTemplate(
        name="workspace-file",
        title="File of a workspace",
        uri_template="workspace://{workspace}/{+path}",
        description="A file that code has left in a workspace.",
    ),
    ResourceTemplate(
        name="artifact",
        title="Artifact of an execution",
        uri_template="artifact://{execution}/{id}",
        description="What code has shown or written; the result of the execution lists the ids.",
    ),
    ResourceTemplate(
        name="tool",
        title="Tool that code may call",
        uri_template="tool://{server}/{tool}",
        description="Import line and schemas of a tool, as describe_tools returns them.",
        mime_type="application/json",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Address:
    """An address in its two parts: `workspace://report/data/a.csv` has the name `report` and the path `data/a.csv`."""

    scheme: Scheme
    name: str
    path: str

    @classmethod
    def parse(cls, uri: str) -> "Address":
        """Return the parts of an address. Raises MCPError if it is not one of these."""
        scheme, separator, rest = uri[:MAX_ADDRESS].partition("://")
        found = next((each for each in SCHEMES if each == scheme), None)
        name, _, path = rest.partition("/")
        if found is None or not separator or not name or not path or len(uri) > MAX_ADDRESS:
            allowed = ", ".join(template.uri_template for template in TEMPLATES)
            raise MCPError(INVALID_PARAMS, f"there is no resource {uri[:200]!r}; resources are {allowed}")
        return cls(scheme=found, name=unquote(name), path=unquote(path))

    def __str__(self) -> str:
        """Return the address."""
        return f"{self.scheme}://{quote(self.name, safe='')}/{quote(self.path, safe='/')}"


def build_unknown_error(address: Address) -> MCPError:
    """Return the error of a resource that does not exist, or that the caller may not read."""
    return MCPError(INVALID_PARAMS, f"there is no resource {str(address)[:200]!r}", {"uri": str(address)[:MAX_ADDRESS]})
