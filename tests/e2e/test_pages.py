"""Pages whose commands a reader types, run as they are printed."""

from pathlib import Path

import pytest

from tests.e2e.providers import Provider
from tests.e2e.support import NAMESPACE, Cluster, require_gvisor
from tests.e2e.toolservers import IMAGE
from tests.support.pages import Step, steps


def run(cluster: Cluster, step: Step) -> str:
    return cluster.run("bash", "-euc", step.command).stdout


@pytest.mark.parametrize("page", ["start/kind.md"])
def test_the_commands_of_a_page_print_what_it_shows(
    installed: Cluster, provider: Provider, runtimes: dict[str, str | None], page: str
) -> None:
    if "gvisor" not in runtimes:
        require_gvisor(installed, provider)
    found = steps(page)
    assert found
    for step in found:
        printed = run(installed, step)
        if step.columns:
            assert printed.splitlines()[0].split() == " ".join(step.columns).split(), step.command


def test_the_commands_for_a_team_give_rights_and_a_key_and_take_it_away(installed: Cluster, tmp_path: Path) -> None:
    try:
        for step in steps("platform/teams.md"):
            command = step.command.replace("-n team-a", f"-n {NAMESPACE}")
            command = command.replace("team-a:reports", f"{NAMESPACE}:reports").replace(
                "--namespace team-a", f"--namespace {NAMESPACE}"
            )
            done = installed.run("bash", "-euc", f"cd {tmp_path}; {command}")
            assert all(line in done.stdout.splitlines() for line in step.shown), (command, done.stdout)
    finally:
        installed.delete("RoleBinding", "mcp-exec-callers")
        installed.delete("ServiceAccount", "reports")


def test_a_server_of_ones_own_works_by_its_source_by_an_image_and_by_a_url(
    installed: Cluster, provider: Provider
) -> None:
    if provider.name == "existing":
        pytest.skip("its nodes pull images, and hack/own-image loads one")
    try:
        for step in steps("start/your-own-server.md"):
            command = step.command.replace("localhost/mcp-exec-servers:dev", IMAGE)
            printed = installed.run("bash", "-euc", command).stdout.splitlines()
            assert all(line in printed for line in step.shown), (command, printed)
    finally:
        installed.delete("CodeExecution", "roll")
        installed.delete("ToolServer", "dice-inline", "dice-image", "dice-url")
        for kind in ("Deployment", "Service", "ConfigMap"):
            installed.delete(kind, "dice")


def test_an_applications_functions_become_a_server_whose_tools_code_calls(installed: Cluster) -> None:
    try:
        for step in steps("coming-from/tool-loop.md"):
            command = step.command.replace("servers import", f"servers import --image {IMAGE}")
            printed = installed.run("bash", "-euc", command).stdout.splitlines()
            assert all(line in printed for line in step.shown), (command, printed)
    finally:
        installed.delete("CodeExecution", "unpaid")
        installed.delete("ToolServer", "shop")


def test_an_image_of_ones_own_is_built_loaded_and_runs_code_that_needs_it(
    installed: Cluster, provider: Provider
) -> None:
    if provider.name == "existing":
        pytest.skip("its nodes pull images, and hack/own-image loads one")
    try:
        for step in steps("platform/images.md"):
            printed = installed.run("bash", "-euc", step.command).stdout.splitlines()
            assert all(line in printed for line in step.shown), (step.command, printed)
    finally:
        installed.delete("CodeExecution", "table")
        installed.delete("SandboxPool", "tables")
