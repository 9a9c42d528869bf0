"""Small APIs in place of those of GitHub, Supabase and Context7, which record every request.

Runs in a pod with nothing but Python. Plain HTTP on port 8000 speaks for Supabase's management API and Context7's.
Port 3128 is a proxy that takes every CONNECT for its own: GitHub's server has its API's address built in, and so comes
to https://api.github.com through the proxy that its environment names, with a certificate of the test's own authority.
`GET /seen` returns all requests with their credentials.
"""

import json
import os
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

REPOSITORY = {
    "id": 1,
    "node_id": "R_1",
    "name": "demo",
    "full_name": "octo/demo",
    "private": False,
    "owner": {"login": "octo", "id": 2, "node_id": "U_2", "avatar_url": "", "url": "", "html_url": "", "type": "User"},
    "html_url": "https://github.com/octo/demo",
    "description": "A repository of the tests",
    "fork": False,
    "url": "https://api.github.com/repos/octo/demo",
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
    "pushed_at": "2026-01-01T00:00:00Z",
    "git_url": "",
    "ssh_url": "",
    "clone_url": "",
    "default_branch": "main",
}
PROJECT = {
    "id": "abcdefghijklmnopqrst",
    "ref": "abcdefghijklmnopqrst",
    "organization_id": "org-1",
    "organization_slug": "org-1",
    "name": "demo",
    "region": "eu-central-1",
    "created_at": "2026-01-01T00:00:00Z",
    "status": "ACTIVE_HEALTHY",
    "database": {"host": "db", "version": "15", "postgres_engine": "15", "release_channel": "ga"},
}
TABLE = {
    "id": 1,
    "schema": "public",
    "name": "orders",
    "rls_enabled": True,
    "rls_forced": False,
    "replica_identity": "DEFAULT",
    "bytes": 8192,
    "size": "8 kB",
    "live_rows_estimate": 3,
    "dead_rows_estimate": 0,
    "comment": None,
    "primary_keys": [],
    "relationships": [],
}
AUTHOR = {"name": "octo", "email": "octo@example.com", "date": "2026-01-01T00:00:00Z"}
LIBRARY = {
    "id": "/pallets/flask",
    "title": "Flask",
    "description": "A web framework",
    "branch": "main",
    "lastUpdateDate": "2026-01-01",
    "state": "finalized",
    "totalTokens": 1000,
    "totalSnippets": 10,
    "stars": 1,
    "trustScore": 9,
    "versions": [],
}
SEEN: list[dict[str, Any]] = []


def branch(commit: str) -> dict[str, Any]:
    """Return GitHub's reference of the branch `main`."""
    return {
        "ref": "refs/heads/main",
        "node_id": "R_2",
        "url": "",
        "object": {"sha": commit, "type": "commit", "url": ""},
    }


def git(method: str, path: str, body: Any) -> Any:
    """Return GitHub's answers while files are pushed: a tree, its commit, the branch."""
    match method, path:
        case "GET", "refs/heads/main":
            return branch("before")
        case "POST", "trees":
            tree = [{**each, "sha": "blob", "url": ""} for each in body["tree"]]
            return {"sha": "tree", "url": "", "tree": tree, "truncated": False}
        case "POST", "commits":
            known = {"message": body["message"], "author": AUTHOR, "committer": AUTHOR}
            parents = [{"sha": each, "url": ""} for each in body["parents"]]
            tree = {"sha": body["tree"], "url": ""}
            return {"sha": "after", "node_id": "C_1", "url": "", "tree": tree, "parents": parents, **known}
        case "PATCH", "refs/heads/main":
            return branch(body["sha"])
    return None


def answer(api: str, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
    """Return an API's answer as JSON or text, or None if it has no such path."""
    match api, method, path:
        case "github", "GET", "/search/repositories":
            return {"total_count": 1, "incomplete_results": False, "items": [REPOSITORY]}
        case "github", "POST", "/repos/octo/demo/issues":
            return {
                "number": 7,
                "title": body["title"],
                "state": "open",
                "html_url": f"{REPOSITORY['html_url']}/issues/7",
            }
        case "github", "GET", "/repos/octo/demo/issues":
            return [{"number": 7, "title": "It works", "state": query.get("state", ["open"])[0]}]
        case "supabase", "GET", "/v1/projects":
            return [PROJECT]
        case "supabase", "POST", "/v1/projects/abcdefghijklmnopqrst/database/query":
            # tables are listed by a query, too, whose parameters are schemas
            return [TABLE] if body.get("parameters") == ["public"] else [{"id": 1, "query": body["query"]}]
        case "supabase", "GET", "/v1/projects/abcdefghijklmnopqrst/database/migrations":
            return [{"version": "20260101000000", "name": "first"}]
        case "context7", "GET", "/v2/libs/search":
            return {"results": [LIBRARY], "searchFilterApplied": False}
        case "context7", "GET", "/v2/context":
            return f"# Flask\n\nHow to {query['query'][0]}: see the tutorial."
    return git(method, path.removeprefix("/repos/octo/demo/git/"), body) if api == "github" else None


class Api(BaseHTTPRequestHandler):
    """Answers for the API that a request is meant for."""

    protocol_version = "HTTP/1.1"
    host = ""

    def do_GET(self) -> None:
        self.serve()

    def do_POST(self) -> None:
        self.serve()

    def do_PATCH(self) -> None:
        self.serve()

    def do_CONNECT(self) -> None:
        """The end of the tunnel is here."""
        self.send_response(200, "Connection established")
        self.end_headers()
        self.wfile.flush()
        with TLS.wrap_socket(self.connection, server_side=True) as inside:
            tunnelled = type("Tunnelled", (Api,), {"host": self.path.partition(":")[0]})
            tunnelled(inside, self.client_address, self.server)
        self.close_connection = True

    def serve(self) -> None:
        url = urlsplit(self.path)
        size = int(self.headers.get("content-length") or 0)
        text = self.rfile.read(size).decode()
        if url.path == "/seen":
            return self.say(200, SEEN)
        api, path = self.meant(url.path)
        SEEN.append({"api": api, "method": self.command, "path": path, "headers": dict(self.headers), "body": text})
        said = answer(api, self.command, path, parse_qs(url.query), json.loads(text) if text else None)
        return self.say(*((404, {"message": f"{api} has no {path}"}) if said is None else (200, said)))

    def meant(self, path: str) -> tuple[str, str]:
        if self.host == "api.github.com":
            return "github", path
        return ("context7", path.removeprefix("/context7")) if path.startswith("/context7/") else ("supabase", path)

    def say(self, code: int, what: Any) -> None:
        body = what.encode() if isinstance(what, str) else json.dumps(what).encode()
        self.send_response(code)
        self.send_header("content-type", "text/plain" if isinstance(what, str) else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def main() -> None:
    TLS.load_cert_chain(os.environ["APIS_CERTIFICATE"])
    proxy = ThreadingHTTPServer(("", int(os.environ.get("APIS_PROXY_PORT", "3128"))), Api)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    ThreadingHTTPServer(("", int(os.environ.get("APIS_PORT", "8000"))), Api).serve_forever()


if __name__ == "__main__":
    main()
