"""docs/platform/backup.md: what the CronJob writes."""

import base64
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

PAGE = (Path(__file__).parents[3] / "docs/platform/backup.md").read_text()
SECRET = "a-credential-of-this-test"
KUBECTL = f"""#!/bin/bash
echo "$@" >> "$CALLS"
echo '{{"items": [{{"data": {{"token": "{SECRET}"}}}}]}}'
"""
AGE = """#!/bin/bash
[ "$1 $2" = "-r age1test" ] || exit 1
base64
"""


def read_cron_job() -> Any:
    blocks = [yaml.safe_load(text) for text in re.findall(r"(?ms)^```yaml\n(.*?)^```$", PAGE)]
    [found] = [block for block in blocks if block["kind"] == "CronJob"]
    return found["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def run_backup(folder: Path, *, kubectl: str = KUBECTL) -> tuple[int, dict[str, str]]:
    """Run the container's command with other programs of the same names. Return its code, and its files."""
    [container] = read_cron_job()["containers"]
    programs, target = folder / "bin", folder / "backup"
    target.mkdir(exist_ok=True)
    programs.mkdir(exist_ok=True)
    for name, text in {"kubectl": kubectl, "age": AGE}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    environment = {
        **{each["name"]: each["value"] for each in container["env"]},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
        "FOLDER": str(target),
        "RECIPIENT": "age1test",
    }
    command = [*container["command"], *container["args"]]
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, timeout=60)
    return ended.returncode, {path.name: path.read_text() for path in target.iterdir()}


def test_the_backup_s_files_are_encrypted_and_none_is_not(tmp_path: Path) -> None:
    code, files = run_backup(tmp_path)
    assert (code, sorted(files)) == (0, ["keys.json.age", "objects.json.age", "secrets.json.age"])
    assert not [name for name, text in files.items() if SECRET in text]
    asked = (tmp_path / "calls").read_text()
    assert [kind for kind in ("codeexecutions", "sandboxsessions") if kind in asked] == []
    saved = base64.b64decode(files["secrets.json.age"])
    assert json.loads(saved)["items"] == [{"data": {"token": SECRET}}]


def test_a_failed_request_leaves_the_backup_of_the_day_before(tmp_path: Path) -> None:
    _, before = run_backup(tmp_path)
    code, after = run_backup(tmp_path, kubectl="#!/bin/bash\nexit 1\n")
    assert code != 0
    assert {name: text for name, text in after.items() if name in before} == before
