"""Pages whose commands a reader types, run as they are printed."""

import pytest

from tests.e2e.providers import Provider
from tests.e2e.support import Cluster, require_gvisor
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
