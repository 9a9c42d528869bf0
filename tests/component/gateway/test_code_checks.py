"""Code that its pool rejects is rejected before anything is created."""

from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tests.component.gateway.conftest import SBP, Gateway, pool
from tests.component.gateway.test_refusals import assert_problem
from tests.support.until import until

from mcp_exec_api.code_findings import CodeCheck

BAD = "import json\nimport os\nos.system('ls')\nexec('1')\n"


async def checked(gateway: Gateway, **given: Any) -> None:
    """Set the code check of the default pool."""
    made = pool("default", 60)
    made["spec"]["codeCheck"] = given
    gateway.api.put(SBP, made)
    wanted = CodeCheck.model_validate(given)
    pools = gateway.dependencies.pools
    await until(lambda: (found := pools.find("agents", "default")) is not None and found.code_check == wanted)


async def test_a_strict_pools_findings_are_the_answer_and_nothing_is_created(gateway: Gateway) -> None:
    await checked(gateway, mode="Strict")
    problem = assert_problem(await gateway.post({"code": BAD}), 422, "code", "code")
    assert (problem.type, problem.title) == (
        "urn:mcp-exec:problem:code-refused",
        "The pool rejects this code",
    )
    assert [error.message for error in problem.errors] == [
        "line 3: os.system: starts a process; use Python or a tool instead (Subprocess)",
        "line 4: exec: executes text as code; write the code itself (DynamicCode)",
    ]
    assert problem.detail.startswith("pool default rejects the code: line 3: os.system")
    assert gateway.executions == {}
    text = await gateway.read_metrics()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    counted = {s.labels["rule"]: s.value for s in samples if s.name == "mcp_exec_gateway_code_findings_total"}
    assert counted == {"Subprocess": 1, "DynamicCode": 1}


async def test_a_list_of_imports_is_kept(gateway: Gateway) -> None:
    await checked(gateway, mode="Strict", allowedImports=["math"])
    problem = assert_problem(await gateway.post({"code": "import math, json"}), 422, "code")
    assert problem.errors[0].message == "line 1: import of json: the pool allows math (ImportNotAllowed)"
    assert (await gateway.post({"code": "import math"}, "?wait=0")).status == 202


async def test_a_pool_that_warns_takes_the_code_and_leaves_the_telling_to_the_operator(gateway: Gateway) -> None:
    await checked(gateway, mode="Warn")
    found = [{"rule": "Subprocess", "severity": "High", "line": 3, "message": "os.system"}]
    gateway.finish_all(codeFindings=found)
    answer = await gateway.post({"code": BAD})
    assert (answer.status, answer.json["codeFindings"]) == (200, found)


async def test_code_that_is_no_python_is_for_the_run_to_tell(gateway: Gateway) -> None:
    await checked(gateway, mode="Strict")
    assert (await gateway.post({"code": "exec('"}, "?wait=0")).status == 202
