import base64
import json
import shlex
from datetime import timedelta

import pytest

from mcp_exec_api.meta import now
from mcp_exec_gateway.core.auth.api_keys import ApiKeyStore, parse_keys
from mcp_exec_gateway.create_key import main


def secret_of(patch: dict[str, dict[str, str]]) -> dict[str, object]:
    data = {name: base64.b64encode(value.encode()).decode() for name, value in patch["stringData"].items()}
    return {"metadata": {"name": "keys"}, "data": data}


def test_a_key_that_is_made_works_when_its_patch_is_applied(capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["--max-concurrent", "5", "--max-timeout-seconds", "60", "--pool", "default", "--pool", "big"]
    limits += ["--requests-per-minute", "90", "--max-priority", "Normal", "--tool", "github.*", "--tool", "fs.read"]
    limits += ["--user", "team-a/*", "--user", "u-42"]
    assert main(["team-a", "--namespace", "agents", *limits, "--output", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    keys = ApiKeyStore()
    keys.on_change(secret_of(made["patch"]), False)
    found = keys.find(made["key"])
    assert found is not None
    assert (found.name, found.entry.namespace) == ("team-a", "agents")
    assert found.entry.limits.to_api() == {
        "maxConcurrent": 5,
        "maxTimeoutSeconds": 60,
        "pools": ["default", "big"],
        "requestsPerMinute": 90,
        "maxPriority": "Normal",
        "tools": ["github.*", "fs.read"],
        "users": ["team-a/*", "u-42"],
    }
    assert not found.entry.approver
    assert made["key"] not in json.dumps(made["patch"])
    assert len(made["key"]) == len("mcpx_") + 43


def test_the_printed_command_holds_the_patch_and_the_key_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    main(["team-a", "--namespace", "agents", "--release-namespace", "system", "--secret", "keys"])
    text = capsys.readouterr().out
    lines = [line.strip() for line in text.splitlines()]
    key = next(line for line in lines if line.startswith("mcpx_"))
    assert text.count(key) == 1
    command = shlex.split(next(line for line in lines if line.startswith("kubectl")))
    assert command[:6] == ["kubectl", "--namespace", "system", "patch", "secret", "keys"]
    keys = parse_keys(secret_of(json.loads(command[-1])))
    assert [key.name for key in keys.values()] == ["team-a"]


def test_a_key_that_is_made_an_approver_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    main(["reviewers", "--namespace", "agents", "--approver", "--output", "json"])
    keys = parse_keys(secret_of(json.loads(capsys.readouterr().out)["patch"]))
    assert [(key.name, key.entry.approver) for key in keys.values()] == [("reviewers", True)]


def test_a_key_that_has_expired_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    main(["team-a", "--namespace", "agents", "--valid-days", "30", "--max-stored", "9", "--output", "json"])
    made = json.loads(capsys.readouterr().out)
    at = [now()]
    keys = ApiKeyStore(clock=lambda: at[0])
    keys.on_change(secret_of(made["patch"]), False)
    at[0] += timedelta(days=29)
    found = keys.find(made["key"])
    assert found is not None
    assert found.limits.max_stored == 9
    at[0] += timedelta(days=1, seconds=1)
    assert keys.find(made["key"]) is None


def test_a_key_that_ends_within_two_weeks_is_logged_by_its_name(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    main(["team-a", "--namespace", "agents", "--valid-days", "15", "--output", "json"])
    secret, at = secret_of(json.loads(capsys.readouterr().out)["patch"]), [now()]
    keys = ApiKeyStore(clock=lambda: at[0])
    keys.on_change(secret, False)
    assert "team-a" not in caplog.text
    at[0] += timedelta(days=1, seconds=1)
    keys.on_change(secret, False)
    assert "API key team-a of namespace agents ends at" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "sees_own_only"),
    [
        ([], False),
        (["--own"], True),
        (["--user", "ann"], True),
        (["--user", "ann", "--no-own"], False),
    ],
)
def test_a_key_with_users_sees_only_its_own_executions_unless_it_says_otherwise(
    arguments: list[str], sees_own_only: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["a", "--namespace", "n", *arguments, "--output", "json"])
    (key,) = parse_keys(secret_of(json.loads(capsys.readouterr().out)["patch"])).values()
    assert key.limits.sees_own_only is sees_own_only


def test_no_two_keys_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    made = set()
    for _ in range(5):
        main(["a", "--namespace", "n", "--output", "json"])
        made.add(json.loads(capsys.readouterr().out)["key"])
    assert len(made) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a b", "--namespace", "n"], "invalid name 'a b'"),
        (["system.x", "--namespace", "n"], "reserved for other callers"),
        (["k8s.alice", "--namespace", "n"], "reserved for other callers"),
        (["oidc.corp.alice", "--namespace", "n"], "reserved for other callers"),
        (["a", "--namespace", ""], "namespace"),
        (["a", "--namespace", "n", "--max-concurrent", "0"], "max_concurrent"),
        (["a", "--namespace", "n", "--requests-per-minute", "0"], "requests_per_minute"),
        (["a", "--namespace", "n", "--max-stored", "0"], "max_stored"),
        (["a", "--namespace", "n", "--valid-days", "0"], "--valid-days"),
        (["a", "--namespace", "n", "--max-priority", "Top"], "High"),
        (["a", "--namespace", "n", "--tool", "github"], "tools"),
        (["a", "--namespace", "n", "--user", "*-admin"], "users"),
        (["a"], "--namespace"),
        (["a", "--namespace", "n", "--what"], "--what"),
    ],
)
def test_what_can_not_be_made_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert said in capsys.readouterr().err


def test_an_empty_secret_has_no_keys() -> None:
    assert parse_keys({"metadata": {"name": "keys"}}) == {}
    assert parse_keys({"metadata": {"name": "keys"}, "data": None}) == {}
    assert parse_keys({"metadata": {"name": "keys"}, "data": {"a": None, "b": "%%%", "c": "/w=="}}) == {}
