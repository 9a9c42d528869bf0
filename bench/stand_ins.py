"""What the token benchmark needs next to the demo servers: a repository, and two servers without an account.

As a program, `python3 -c SOURCE NAME`, it serves `github-official`, `supabase`, or `git` with its repository in /data.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

GIT_SECONDS = 60


def make_up(server: str, tool: str, arguments: Mapping[str, Any]) -> Any:
    """Return a result in the shape of a server that needs an account."""
    if tool == "list_issues":
        return {"issues": [make_issue(number) for number in range(60)], "totalCount": 60}
    if tool == "issue_write":
        number = arguments["issue_number"]
        return {"id": str(9_100_000 + number), "url": f"https://github.com/octo/site/issues/{number}"}
    if tool == "list_projects":
        return {"projects": [
            {"id": f"{name}{'abcdefghijklmnopqrst'[len(name):]}" if name != "shop" else "abcdefghijklmnopqrst",
             "organization_id": "org", "name": name, "region": "eu-central-1", "status": "ACTIVE_HEALTHY",
             "created_at": "2026-03-02T09:10:11Z"} for name in ("shop", "blog", "tests")]}  # fmt: skip
    if tool == "list_tables":
        names = ("users", "products", "orders", "sessions", "audit", "prices")
        return {"tables": [{"schema": "public", "name": name, "rls_enabled": name not in ("sessions", "audit"),
                            "rows": 100 * len(name)} for name in names]}  # fmt: skip
    return {"lints": [{"name": "rls_disabled_in_public", "level": "ERROR", "categories": ["SECURITY"],
                       "detail": f"Table public.{name} is public, but RLS has not been enabled.",
                       "remediation": "https://supabase.com/docs/guides/database/database-linter"}
                      for name in ("sessions", "audit")]}  # fmt: skip


def make_issue(number: int) -> dict[str, Any]:
    """Return one of the issues of octo/site."""
    parts = ("Search", "Cart", "Login", "Checkout", "Profile", "Menu")
    part = parts[number % 6]
    return {
        "number": 1200 - number, "title": f"{part}: page {number} does not load after the update", "state": "OPEN",
        "user": {"login": f"user-{number % 9}"}, "labels": ["stale"] if number % 10 == 7 else ["bug"],
        "comments": number % 4, "created_at": f"2026-0{number % 9 + 1}-11T08:00:00Z",
        "body": f"Since the last release the part {part} shows an empty page in some browsers. Steps: open the page, "
        f"log in, choose item {number}, press back twice. Expected: the list. Actual: an empty page and an error.",
    }  # fmt: skip


def make_repository(site: Path) -> None:
    """Make the repository that the tasks read, the same each time."""
    site.mkdir()
    git = ["git", "-C", str(site), "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q"], check=True, timeout=GIT_SECONDS)
    people = ("Ana Ruiz", "Bo Chen", "Carla Meyer", "Dan Okoye")
    for index in range(70):
        person = people[index * index % 4 if index % 3 else index % 4]
        who = {"NAME": person, "EMAIL": person.split()[0].lower() + "@example.com"}
        at = (datetime(2026, 9, 1, tzinfo=UTC) + timedelta(hours=7 * index)).isoformat()
        environment = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
        environment |= {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        message = f"site: change page {index % 13} of part {index % 5}"
        command = [*git, "commit", "-q", "--allow-empty", "-m", message]
        subprocess.run(command, check=True, env=os.environ | environment, timeout=GIT_SECONDS)


def make_readings() -> str:
    """Return the file of readings that the tasks read."""
    lines = [f"2026-10-{i % 28 + 1:02},room-{i % 7},{18 + i * 7 % 50 / 10:.1f},{40 + i * 3 % 30}" for i in range(80)]
    return "date,room,temperature,humidity\n" + "\n".join(lines) + "\n"


def serve_github() -> None:
    """Serve two of GitHub's tools; closed issues stay closed until they are opened again."""
    from mcp.server import MCPServer

    server = MCPServer("github-official")
    closed: set[int] = set()

    @server.tool()
    def list_issues(
        owner: str,
        repo: str,
        state: str = "OPEN",
        labels: list[str] | None = None,
        perPage: int = 30,  # noqa: N803 - the parameter of GitHub
    ) -> dict[str, Any]:
        """List issues of a repository."""
        found = [
            issue | {"state": "CLOSED" if issue["number"] in closed else "OPEN"}
            for issue in make_up("github-official", "list_issues", {})["issues"]
        ]
        kept = [each for each in found if each["state"] == state and set(labels or ()) <= set(each["labels"])]
        return {"issues": kept[:perPage], "totalCount": len(kept)}

    @server.tool()
    def issue_write(method: str, owner: str, repo: str, issue_number: int, state: str) -> dict[str, Any]:
        """Create a new issue or update an existing issue in a GitHub repository: its state is `open` or `closed`."""
        (closed.add if state == "closed" else closed.discard)(issue_number)
        return dict(make_up("github-official", "issue_write", {"issue_number": issue_number}))

    server.run()


def serve_supabase() -> None:
    """Serve three of Supabase's tools, which only read."""
    from mcp.server import MCPServer

    server = MCPServer("supabase")

    @server.tool()
    def list_projects() -> dict[str, Any]:
        """List all projects of the account."""
        return dict(make_up("supabase", "list_projects", {}))

    @server.tool()
    def list_tables(project_id: str, schemas: list[str] | None = None, verbose: bool = False) -> dict[str, Any]:
        """List the tables of one or more schemas."""
        return dict(make_up("supabase", "list_tables", {}))

    @server.tool()
    def get_advisors(project_id: str, type: str) -> dict[str, Any]:
        """List advisory notices of a project, of the type `security` or `performance`."""
        return dict(make_up("supabase", "get_advisors", {}))

    server.run()


def serve_git() -> None:
    """Serve the repository of the tasks at /data/site."""
    site = Path("/data/site")
    if not site.exists():
        make_repository(site)
    os.execvp("python3", ["python3", "-m", "mcp_server_git"])


if __name__ == "__main__":
    {"github-official": serve_github, "supabase": serve_supabase, "git": serve_git}[sys.argv[1]]()
