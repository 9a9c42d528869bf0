"""GitHub's, Supabase's and Context7's own servers, with credentials: they get to the API, and never to the sandbox."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.support import NAMESPACE, ROOT, Cluster, Gateway
from tests.e2e.toolservers import HARDENED, IMAGE, RESOURCES, Agent, running, secret, statuses, stdio, tool_server
from tests.support.certificates import certificates_for

pytestmark = pytest.mark.timeout(900)
APIS = "apis"
PROJECT = "abcdefghijklmnopqrst"
FEATURES = "account,database,debugging,development,functions,branching,storage"
GITHUB = 'printf "%s" "$CA_CERTIFICATE" > /tmp/ca.pem; exec mcp-server-github'
"""GitHub's server takes no address: it goes through the proxy of its environment, whose authority it must know."""
SEARCH = (ROOT / "tests/e2e/searching.py").read_text()
GITHUB_CALLS = """
from servers.github import create_issue, list_issues, push_files, search_repositories
found = await search_repositories({"query": "demo"})
issue = await create_issue({"owner": "octo", "repo": "demo", "title": "It works"})
issues = await list_issues(owner="octo", repo="demo", state="open")
pushed = await push_files(
    owner="octo", repo="demo", branch="main", message="Two at once",
    files=[{"path": "a.txt", "content": "a"}, {"path": "b.txt", "content": "b"}],
)
answer = [
    found["items"][0]["full_name"], issue["number"], [each["title"] for each in issues], pushed["object"]["sha"],
]
"""
SUPABASE_CALLS = f"""
from servers.supabase import execute_sql, list_migrations, list_projects, list_tables
projects = await list_projects()
rows = await execute_sql(project_id="{PROJECT}", query="select 1")
migrations = await list_migrations(project_id="{PROJECT}")
tables = await list_tables(project_id="{PROJECT}")
answer = [
    projects[0]["name"], "select 1" in str(rows), migrations[0]["name"], tables[0]["name"],
]
"""
CONTEXT7_CALLS = """
from servers.context7 import compare_libraries, get_library_docs, query_docs, resolve_library_id
libraries = await resolve_library_id(query="a web framework", libraryName="flask")
docs = await query_docs(libraryId="/pallets/flask", query="route")
same = await get_library_docs(context7CompatibleLibraryID="/pallets/flask", topic="route")
texts = await compare_libraries(["Flask", "Quart"], topic="stream")
answer = ["/pallets/flask" in str(libraries), "How to route" in str(docs), same == docs, sorted(texts),
    all("How to stream" in text for text in texts.values())]
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One server."""

    code: str
    expected: list[Any]
    tools: int
    header: str = "Bearer {}"


CASES = {
    "github": Case(code=GITHUB_CALLS, expected=["octo/demo", 7, ["It works"], "after"], tools=26),
    "supabase": Case(code=SUPABASE_CALLS, expected=["demo", True, "first", "public.orders"], tools=31),
    "context7": Case(code=CONTEXT7_CALLS, expected=[True, True, True, ["Flask", "Quart"], True], tools=2),
}


@dataclass(frozen=True, kw_only=True)
class World:
    """The servers, what they talk to, and their credentials."""

    agent: Agent
    credentials: dict[str, str]

    def seen(self, api: str) -> list[dict[str, Any]]:
        """The requests that came to an API."""
        ask = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8000/seen').read().decode())"
        said = self.agent.cluster.kubectl("exec", APIS, "-n", NAMESPACE, "--", "python3", "-c", ask)
        return [each for each in json.loads(said) if each["api"] == api]


def apis(certificate: str) -> list[dict[str, Any]]:
    """The pod that speaks for the three APIs."""
    program = (ROOT / "tests/e2e/apis.py").read_text()
    mounts = [
        {"name": "program", "mountPath": "/apis"},
        {"name": "certificate", "mountPath": "/certificate"},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    container = {
        "name": "apis",
        "image": IMAGE,
        "command": ["python3", "/apis/apis.py"],
        "env": [{"name": "APIS_CERTIFICATE", "value": "/certificate/server.pem"}],
        "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 2},
        "resources": RESOURCES,
        "securityContext": HARDENED,
        "volumeMounts": mounts,
    }
    volumes = [
        {"name": "program", "configMap": {"name": APIS}},
        {"name": "certificate", "secret": {"secretName": APIS}},
        {"name": "tmp", "emptyDir": {}},
    ]
    metadata = {"name": APIS, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"apis.py": program}},
        secret(APIS, **{"server.pem": certificate}),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "labels": {"app": APIS}},
            "spec": {"automountServiceAccountToken": False, "containers": [container], "volumes": volumes},
        },
    ]


def servers(address: str, authority: str, runtime: str | None) -> list[dict[str, Any]]:
    """The three, which may reach the APIs' pod and nothing else."""
    peer = {"podSelector": {"matchLabels": {"app": APIS}}}
    egress = [{"to": [peer], "ports": [{"protocol": "TCP", "port": port} for port in (8000, 3128)]}]
    key = {"name": "credentials"}
    commands = {
        "github": stdio(
            "sh", "-c", GITHUB, runtime=runtime, egress=egress,
            env={
                "GITHUB_PERSONAL_ACCESS_TOKEN": {**key, "key": "github"},
                "CA_CERTIFICATE": authority,
                "NODE_EXTRA_CA_CERTS": "/tmp/ca.pem",
                "NODE_USE_ENV_PROXY": "1",
                "HTTPS_PROXY": f"http://{address}:3128",
            },
        ),
        "supabase": stdio(
            "mcp-server-supabase", "--api-url", f"http://{address}:8000", f"--features={FEATURES}",
            runtime=runtime, egress=egress, env={"SUPABASE_ACCESS_TOKEN": {**key, "key": "supabase"}},
        ),
        "context7": stdio(
            "context7-mcp", runtime=runtime, egress=egress,
            env={
                "CONTEXT7_API_KEY": {**key, "key": "context7"},
                "CONTEXT7_API_URL": f"http://{address}:8000/context7",
            },
        ),
    }  # fmt: skip
    free = {"rules": [{"tools": ["*"], "action": "Allow"}]}
    return [tool_server(name, stdio=command, policy=free) for name, command in commands.items()]


@pytest.fixture(scope="module")
def world(installed: Cluster, gateway: Gateway, runtimes: dict[str, str | None]) -> Iterator[World]:
    credentials = {
        "github": f"ghp_{secrets.token_hex(18)}",
        "supabase": f"sbp_{secrets.token_hex(20)}",
        "context7": f"ctx7sk-{secrets.token_hex(18)}",
    }
    authority, certificate = certificates_for("api.github.com")
    installed.delete("Pod", APIS)
    with running(installed, *apis(certificate), secret("credentials", **credentials)):
        installed.wait_for("Ready", "Pod", APIS, seconds=120)
        address = installed.get("Pod", APIS)["status"]["podIP"]
        with running(installed, *servers(address, authority, runtimes.get("gvisor"))):
            pool = "gvisor" if "gvisor" in runtimes else "default"
            yield World(agent=Agent(cluster=installed, gateway=gateway, pool=pool), credentials=credentials)


@pytest.mark.parametrize("server", CASES)
def test_the_real_server_lists_its_tools_with_credentials_that_nobody_checks(world: World, server: str) -> None:
    assert statuses(world.agent.cluster)[server]["tools"] == CASES[server].tools


@pytest.mark.parametrize("server", CASES)
def test_a_credential_reaches_the_api_and_nothing_in_the_sandbox(world: World, server: str) -> None:
    case, credential = CASES[server], world.credentials[server]
    middle = len(credential) // 2
    # never in one piece: what is searched for must not be what is found
    context = {"halves": [credential[:middle], credential[middle:]]}
    done = world.agent.run(
        f"{SEARCH}\n{case.code}search(halves, answer)\n", f"{server}.*", context=context, timeoutSeconds=280
    )
    assert done["phase"] == "Succeeded", str(done)
    answer, places, looked = done["output"]["result"]
    assert answer == case.expected
    # the control: it was put there on purpose, and is found
    assert places == ["control"]
    assert all(looked[place] > 0 for place in ("environment", "files", "memory", "answers")), looked
    requests = world.seen(server)
    assert requests
    assert all(request["headers"]["Authorization"] == case.header.format(credential) for request in requests)
    assert credential not in json.dumps(done)


def test_no_pod_of_a_pool_has_a_credential_in_its_spec(world: World) -> None:
    pods = json.dumps(world.agent.cluster.select("Pod", labels="app.kubernetes.io/name=mcp-exec-sandbox"))
    assert "containers" in pods
    assert not [server for server, credential in world.credentials.items() if credential in pods]
