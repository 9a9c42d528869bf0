"""A stand-in for GitHub's MCP server, with a few of its tools, and one repository in memory."""

from typing import Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

TITLES = (
    "Login fails on Safari",
    "Typo on the start page",
    "Export takes minutes",
    "login fails on safari ",
    "Dark mode",
)
TASKS = ("Keep the login for a week", "Write a page about exports", "Test the site with a screen reader")
OWNERS = ("ana", "ben", "chi")
server = MCPServer("github")
issues: list[dict[str, Any]] = []


def fill() -> None:
    """Forget all changes."""
    issues[:] = [
        {"number": number, "title": TITLES[number % len(TITLES)] + f" ({number // 10})", "state": "open",
         "body": "Steps to reproduce: open the page, wait, look. " * 12, "comments": []}
        for number in range(1, 61)
    ]  # fmt: skip


def find(number: int) -> dict[str, Any]:
    """Return an issue."""
    for issue in issues:
        if issue["number"] == number:
            return issue
    raise ToolError(f"there is no issue {number}")


def write_minutes() -> str:
    """Return the minutes of a year's meetings, with the tasks that somebody took on."""
    talk = "The team looked at the numbers of the week and at what customers said, and talked about it at length. " * 8
    meetings = []
    for week in range(1, 53):
        done = f"- [x] Send the minutes of week {week} (@ana)"
        task = f"- [ ] {TASKS[week // 10 % len(TASKS)]} (@{OWNERS[week % 3]})" if week % 10 == 0 else ""
        meetings.append("\n".join(filter(None, (f"## Week {week}", talk, done, task, talk))))
    return "# Minutes\n\n" + "\n".join(meetings) + "\n"


@server.tool()
def get_file_contents(owner: str, repo: str, path: str) -> dict[str, Any]:
    """Get the contents of a file."""
    if path != "docs/minutes.md":
        raise ToolError(f"there is no file {path[:200]}")
    content = write_minutes()
    return {"path": path, "size": len(content.encode()), "content": content}


@server.tool()
def list_issues(
    owner: str, repo: str, state: Literal["open", "closed", "all"] = "open", page: int = 1, per_page: int = 30
) -> list[dict[str, Any]]:
    """List the issues of a repository, newest first."""
    found = [issue for issue in reversed(issues) if state in ("all", issue["state"])]
    return found[(page - 1) * per_page : page * per_page]


@server.tool()
def create_issue(owner: str, repo: str, title: str, body: str = "") -> dict[str, Any]:
    """Create an issue."""
    issue = {"number": len(issues) + 1, "title": title, "state": "open", "body": body, "comments": []}
    issues.append(issue)
    return issue


@server.tool()
def update_issue(owner: str, repo: str, issue_number: int, state: Literal["open", "closed"]) -> dict[str, Any]:
    """Open or close an issue."""
    find(issue_number)["state"] = state
    return find(issue_number)


@server.tool()
def add_issue_comment(owner: str, repo: str, issue_number: int, body: str) -> dict[str, Any]:
    """Add a comment to an issue."""
    find(issue_number)["comments"].append(body)
    return {"issue": issue_number, "body": body}


fill()
if __name__ == "__main__":
    server.run()
