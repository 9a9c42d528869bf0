"""docs/platform/backup.md: its commands save what a team has made, and bring it back after somebody deleted it."""

import os
from pathlib import Path

import pytest

from tests.e2e.support import NAMESPACE, Cluster, Gateway, pool_manifest
from tests.e2e.toolservers import approver, secret, stdio, tool_server
from tests.support.pages import Step, steps
from tests.support.until import eventually

pytestmark = pytest.mark.timeout(600)

STEPS = [step for step in steps("platform/backup.md") if "copier" not in step.command]
SKILL = {
    "name": "backup-double",
    "description": "Doubles a number.",
    "code": "def run(n: int) -> int:\n    return 2 * n",
}
MADE = [*((kind, "backed-up") for kind in ("ToolServer", "SandboxPool", "Secret")), ("Skill", "backup-double-v1")]


def test_objects_and_keys_come_back_from_a_backup(
    installed: Cluster, gateway: Gateway, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*wanted: Step) -> None:
        assert wanted
        for step in wanted:
            installed.run("bash", "-euc", f"cd {tmp_path}; {step.command}")

    def state() -> str:
        return str((installed.get("Skill", "backup-double-v1").get("status") or {}).get("state"))

    image = os.environ.get("SANDBOX_IMAGE", "localhost/mcp-exec-sandbox:dev")
    monkeypatch.setenv("GATEWAY", url)
    try:
        installed.apply(
            secret("backed-up", folder="/data"),
            tool_server("backed-up", stdio=stdio("mcp-server-filesystem", "/data", dataSize="16Mi")),
            pool_manifest(name="backed-up", runtime=None, image=image, warm=1),
        )
        with approver(installed, url) as client:
            monkeypatch.setenv("APPROVER_KEY", client.headers["Authorization"].removeprefix("Bearer "))
            saved = gateway.client.post("/v1/skills", json=SKILL)
            assert saved.status_code == 201, saved.text
            decided = client.post(
                "/v1/skills/backup-double/versions/1/approve", json={"digest": saved.json()["digest"]}
            )
            assert decided.status_code == 200, decided.text
            eventually(lambda: state() == "Approved", what="the skill is approved")
            run(*(step for step in STEPS if "kubectl apply" not in step.command and "curl" not in step.command))
            for kind, name in MADE:
                installed.delete(kind, name)
            run(*(step for step in STEPS if "kubectl apply" in step.command))
            eventually(lambda: state() == "Draft", what="the restored skill is a draft")
            run(*(step for step in STEPS if "curl" in step.command))
        eventually(lambda: state() == "Approved", what="the restored skill is approved again")
        installed.wait_for("Available", "ToolServer", "backed-up", seconds=120)
        installed.wait_for("Ready", "SandboxPool", "backed-up", seconds=120)
        code = (
            "from servers.backed_up import list_allowed_directories\nfrom skills.backup_double import run\n"
            "print(await list_allowed_directories())\nrun(n=21)"
        )
        ran = gateway.run(code, poolRef={"name": "backed-up"}, tools=["backed-up.*"])
        assert ran["phase"] == "Succeeded", str(ran)
        assert ran["output"]["result"] == 42
        assert installed.get("Secret", "backed-up", namespace=NAMESPACE)["data"]["folder"] == "L2RhdGE="
    finally:
        for kind, name in MADE:
            installed.delete(kind, name, wait=False)
