"""hack/demo and hack/release.sh: the way to the gateway, proxies, and a release that does not become ready."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from tests.component.hack.shims import ROOT, Machine
from tests.support.pace import paced

PROXIES = {
    "HTTP_PROXY": "http://proxy:1", "http_proxy": "http://proxy:1", "HTTPS_PROXY": "http://proxy:1",
    "https_proxy": "http://proxy:1", "ALL_PROXY": "http://proxy:1", "NO_PROXY": "intranet", "no_proxy": "intranet",
}  # fmt: skip


@pytest.fixture
def release(machine: Machine) -> Machine:
    """Machine with a cluster of the kind in the file `kind`. Python prints its arguments and proxies."""
    (machine.folder / "kind").write_text("kind")
    (machine.folder / "forwarded").write_text("Forwarding from 127.0.0.1:45678 -> 8080\n")
    for name in ("images", "tools", "venv"):
        (machine.checkout / "hack" / name).write_text(f'#!/bin/bash\necho "hack/{name}" >> "{machine.folder}/calls"\n')
    (machine.checkout / "hack/cluster").write_text(
        f"#!/bin/bash\ncase $1 in up) cat {machine.folder}/kind;; kubeconfig) echo /kubeconfig;; esac\n"
    )
    machine.stand_in("helm")
    machine.stand_in("python3")
    machine.stand_in(
        "kubectl",
        f'case "$*" in port-forward*) cat {machine.folder}/forwarded; exec sleep 30;; '
        f'"wait sbp"*) [ ! -e {machine.folder}/unready ];; *clusterIP*) echo 10.96.0.7;; '
        f"*status.phase*) [ -e {machine.folder}/failed ] && echo Failed || echo Succeeded;; "
        f"*output.stdout*) [ -e {machine.folder}/silent ] || echo printed;; "
        f"*bytesKept*) [ -e {machine.folder}/uncalled ] || echo 6000;; "
        '*conditions*) echo "no node has the runtime";; esac',
    )
    machine.stand_in("python", 'echo "arguments $2"; env | grep -i _proxy= || echo "no proxies"')
    venv = machine.checkout / ".venv/bin"
    venv.mkdir(parents=True)
    (machine.folder / "bin/python").rename(venv / "python")
    (machine.checkout / "examples").mkdir()
    (machine.checkout / "examples/filter_rows.py").touch()
    return machine


@pytest.mark.parametrize(
    ("helm", "minor", "client_side"),
    [("v4.1.4", "20", True), ("v4.1.4", "25+", False), ("v4.1.4", "37", False), ("v3.17.2", "20", False)],
)
def test_helm_4_applies_on_the_client_if_the_server_refuses_the_crds_rules(
    release: Machine, helm: str, minor: str, client_side: bool
) -> None:
    release.stand_in("helm", f'[ "$1" != version ] || echo {helm}+g05fa379')
    script = (release.folder / "bin/kubectl").read_text().splitlines()[-1]
    version = f"""{{ "major": "1", "minor": "{minor}" }}"""
    release.stand_in("kubectl", f"""[ "$*" != "get --raw /version" ] || {{ echo '{version}'; exit; }}; {script}""")
    assert release.run("demo").returncode == 0
    (upgrade,) = [call for call in release.calls("helm") if call.startswith("upgrade")]
    assert ("--server-side=false" in upgrade) == client_side


def test_a_port_is_forwarded_to_a_cluster_of_other_machines_or_containers(release: Machine) -> None:
    done = release.run("demo")
    assert done.returncode == 0, done.stderr
    assert "arguments http://127.0.0.1:45678\n" in done.stdout
    assert "url=http://127.0.0.1:8080" in done.stdout


def test_a_devclusters_gateway_is_reached_by_its_services_address(release: Machine) -> None:
    (release.folder / "kind").write_text("devcluster")
    done = release.run("demo")
    assert "arguments http://10.96.0.7\n" in done.stdout
    assert not any("port-forward" in call for call in release.calls("kubectl"))


@pytest.mark.parametrize(("kind", "address"), [("kind", "http://127.0.0.1:8080"), ("devcluster", "http://10.96.0.7")])
def test_a_provider_where_people_sign_in_is_installed_on_demand_and_the_address_printed(
    release: Machine, kind: str, address: str
) -> None:
    (release.folder / "kind").write_text(kind)
    (release.checkout / ".venv/bin/python").write_text(
        f'#!/bin/bash\necho "python $*" >> "{release.folder}/calls"; [ "$3" != show ] || echo "Sign in at $4/mcp"\n'
    )
    values = f"--values {release.checkout}/.cache/identity/values.json"
    done = release.run("demo")
    assert done.returncode == 0, done.stderr
    assert values not in " ".join(release.calls("helm"))
    assert not any(call.startswith("-m hack.identity_provider") for call in release.calls("python"))
    for _ in range(2):
        done = release.run("demo", IDENTITY="yes")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == f"Sign in at {address}/mcp"
    lines = (release.folder / "calls").read_text().splitlines()
    (upgrade, _) = [number for number, line in enumerate(lines) if values in line]
    assert "python -m hack.identity_provider install" in lines[:upgrade]


def test_code_in_typescript_runs_only_if_it_is_asked_for(release: Machine) -> None:
    done = release.run("demo", LANGUAGE="typescript")
    assert done.returncode == 0, done.stderr
    assert "Code in TypeScript that called the same tool printed: printed" in done.stdout
    assert "--set typescriptPool.enabled=true" in " ".join(release.calls("helm"))
    assert any(call.startswith("wait sbp/typescript") for call in release.calls("kubectl"))


@pytest.mark.parametrize("language", ["", "en_US:en"])
def test_the_plain_demo_has_no_pool_for_typescript(release: Machine, language: str) -> None:
    done = release.run("demo", LANGUAGE=language)
    assert done.returncode == 0, done.stderr
    assert "TypeScript" not in done.stdout
    assert "typescriptPool" not in " ".join(release.calls("helm"))


@pytest.mark.parametrize("loaded", ["", "yes"])
def test_the_virtual_environment_is_fetched_while_the_cluster_starts(release: Machine, loaded: str) -> None:
    (release.checkout / "hack/venv").write_text(
        f'#!/bin/bash\n[ -n "{loaded}" ] || until [ -e {release.folder}/started ]; do sleep 0.1; done\n'
        f'echo "hack/venv" >> "{release.folder}/calls"\n'
    )
    script = (release.checkout / "hack/cluster").read_text()
    (release.checkout / "hack/cluster").write_text(script.replace("case", f"touch {release.folder}/started; case"))
    done = release.run("demo", IMAGES_LOADED=loaded)
    assert done.returncode == 0, done.stderr
    wanted = ["hack/tools", "hack/venv", *([] if loaded else ["hack/images"])]
    assert [line for line in (release.folder / "calls").read_text().splitlines() if line.startswith("hack/")] == wanted


@pytest.mark.parametrize("how", ["failed", "silent"])
def test_an_execution_that_fails_or_prints_nothing_ends_the_demo(release: Machine, how: str) -> None:
    (release.folder / how).touch()
    done = release.run("demo")
    assert done.returncode == 1
    assert "did not succeed, or it printed nothing" in done.stderr.splitlines()[-1]
    assert any("describe cex" in call for call in release.calls("kubectl"))


def test_an_execution_that_called_no_tool_ends_the_demo(release: Machine) -> None:
    (release.folder / "uncalled").touch()
    done = release.run("demo")
    assert done.returncode == 1
    assert "counted no result of a tool" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("status", "answer", "code"),
    [
        (200, {"phase": "Succeeded", "output": {"stdout": "5 rows\n"}}, 0),
        (200, {"phase": "Succeeded", "output": {"stdout": ""}}, 1),
        (200, {"phase": "Failed", "reason": "UserError", "output": {"stdout": "5 rows\n"}}, 1),
        (403, {"error": {"message": "no"}}, 1),
    ],
)
def test_code_through_the_gateway_must_succeed_and_print(status: int, answer: dict[str, Any], code: int) -> None:
    class Gateway(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        serving = Thread(target=server.handle_request)
        serving.start()
        done = subprocess.run(
            (sys.executable, str(ROOT / "hack/smoke.py"), f"http://127.0.0.1:{server.server_port}"),
            input="print(5)", env={**os.environ, "MCP_EXEC_API_KEY": "mcpx_a", "NO_PROXY": "*"},
            capture_output=True, text=True, timeout=paced(60), check=False,
        )  # fmt: skip
        serving.join(60)
    assert (done.returncode, done.stderr) == (code, "")
    assert json.loads(done.stdout).get("phase") == answer.get("phase")


def test_a_port_that_cannot_be_forwarded_ends_the_demo_with_the_reason(release: Machine) -> None:
    release.stand_in("kubectl", 'case $1 in port-forward) echo "error: no pods" >&2; exit 1;; esac')
    assert "did not start within 30 seconds: error: no pods" in release.run("demo").stderr


@pytest.mark.parametrize("kind", ["kind", "devcluster"])
def test_clients_reach_a_cluster_of_this_machine_without_the_proxies(release: Machine, kind: str) -> None:
    (release.folder / "kind").write_text(kind)
    done = release.run("demo", **PROXIES)
    assert "proxy:1" not in done.stdout
    assert "curl --noproxy '*'" in done.stdout


def test_clients_of_an_existing_cluster_keep_the_proxies_except_for_forwarded_ports(release: Machine) -> None:
    (release.folder / "kind").write_text("existing")
    printed = release.run("demo", **PROXIES).stdout
    assert "HTTPS_PROXY=http://proxy:1" in printed
    assert "NO_PROXY=intranet,127.0.0.1,localhost,::1" in printed
    assert "no_proxy=intranet,127.0.0.1,localhost,::1" in printed


def test_a_pool_that_does_not_become_ready_ends_the_demo_with_its_reason(release: Machine) -> None:
    (release.folder / "unready").touch()
    done = release.run("demo")
    assert done.stderr.splitlines()[-1].endswith("no sandbox became ready within 3 minutes: no node has the runtime")


@pytest.mark.parametrize("tool", ["kubectl", "helm"])
def test_the_next_steps_name_the_folder_of_a_tool_that_was_fetched(release: Machine, tool: str) -> None:
    assert "export PATH=" not in release.run("demo").stdout
    release.stand_in("cksum", "echo 42 7")
    fetched = release.folder / "home/.cache/mcp-exec/tools/42"
    fetched.mkdir(parents=True)
    (release.folder / "bin" / tool).rename(fetched / tool)
    assert f"  export PATH=$PATH:{fetched}\n" in release.run("demo").stdout


def test_a_second_key_may_approve_and_is_made_once(release: Machine) -> None:
    script = (release.folder / "bin/kubectl").read_text().splitlines()[-1]
    made = release.folder / "made"
    answer = json.dumps({"name": "approver", "key": "mcpx_a", "patch": {"stringData": {"approver": "{}"}}})
    release.stand_in(
        "kubectl",
        f"case \"$*\" in exec*create_key*) echo '{answer}'; touch {made}; exit;; "
        f"*.data.approver*) [ ! -e {made} ] || echo x; exit;; "
        f'"apply --namespace mcp-exec-system"*) cat > {made}; exit;; '
        f"esac; {script}",
    )
    (release.checkout / ".venv/bin/python").write_text(
        f'#!/bin/bash\n[ "$1" = -c ] || {{ echo "arguments $2"; exit; }}\nexec {sys.executable} "$@"\n'
    )
    for _ in range(2):
        done = release.run("demo")
        assert done.returncode == 0, done.stderr
    calls = release.calls("kubectl")
    (create,) = [call for call in calls if call.startswith("exec ")]
    assert create.endswith("create_key approver --namespace agents --approver --output json")
    (patch,) = [call for call in calls if call.startswith("patch secret mcp-exec-api-keys ")]
    assert patch.endswith('{"stringData": {"approver": "{}"}}')
    secret = json.loads(made.read_text())
    assert (secret["metadata"]["name"], secret["stringData"]) == ("mcp-exec-approver-api-key", {"api-key": "mcpx_a"})
    assert "get secret mcp-exec-approver-api-key -n mcp-exec-system" in done.stdout
