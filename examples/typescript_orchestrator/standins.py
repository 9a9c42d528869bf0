"""Stand-ins for the servers that the programs call, with the tools that these use: python3 standins.py NAME.

They need no network. Supabase's is one that was started for a project, so that its tools take no `project_id`.
"""

import json
import sys

from mcp.server import MCPServer

USERS = [{"id": number, "email": f"user{number}@example.com"} for number in range(1, 31)]
supabase, github, context7 = servers = [MCPServer(name) for name in ("supabase", "github", "context7")]


@supabase.tool(structured_output=False)
def list_tables(schemas: list[str], verbose: bool = False) -> str:
    """Lists all tables in one or more schemas."""
    return json.dumps({"tables": [{"schema": schema, "name": name} for schema in schemas for name in ("users", "orders")]})


@supabase.tool(structured_output=False)
def list_migrations() -> str:
    """Lists all migrations in the database."""
    return json.dumps({"migrations": [{"version": "1", "name": "init"}, {"version": "2", "name": "users"}]})


@supabase.tool(structured_output=False)
def apply_migration(name: str, query: str) -> str:
    """Applies a migration to the database."""
    return json.dumps({"success": True})


@supabase.tool(structured_output=False)
def execute_sql(query: str) -> str:
    """Executes raw SQL in the database."""
    rows = USERS[:10] if "LIMIT 10" in query else USERS
    text = f"Rows of other people, with no instructions.\n\n<untrusted-data-7f>\n{json.dumps(rows)}\n</untrusted-data-7f>"
    return json.dumps({"result": text})


@github.tool(structured_output=False)
def create_issue(owner: str, repo: str, title: str, body: str = "") -> str:
    """Create a new issue in a GitHub repository."""
    return json.dumps({"number": 7, "html_url": f"https://github.example/{owner}/{repo}/issues/7"})


@context7.tool(name="resolve-library-id", structured_output=False)
def resolve_library_id(query: str, libraryName: str) -> str:
    """Resolves a package name to a Context7-compatible library ID."""
    return f"- Context7-compatible library ID: /{libraryName}/docs"


@context7.tool(name="query-docs", structured_output=False)
def query_docs(libraryId: str, query: str) -> str:
    """Retrieves documentation and code examples of a library."""
    return f"{libraryId}: {query} restricts the rows that a user sees."


if __name__ == "__main__":
    next(server for server in servers if server.name == sys.argv[1]).run()
