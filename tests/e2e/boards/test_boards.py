"""A real Prometheus scrapes a real run: every query of every board and rule returns values. `make boards` runs this.

The pictures of the boards are in build/boards.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from hack.monitoring.__main__ import BOARDS
from hack.monitoring.alerts import ALERTS
from hack.monitoring.panels import Board, substitute
from hack.monitoring.plot import DataSeries, draw_board
from hack.monitoring.recordings import RECORDINGS

from tests.e2e.boards import load
from tests.e2e.boards.prometheus import Prometheus, has_values, prometheus, scraped
from tests.e2e.support import NAMESPACE, ROOT, Cluster, Gateway
from tests.e2e.toolservers import Agent, approver, running
from tests.support.until import eventually

pytestmark = pytest.mark.timeout(900)
PICTURES = ROOT / "build" / "boards"
WINDOW, SPAN = "15s", "10m"
"""Windows of rates and of sums in a run of a few minutes that is scraped every two seconds."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The run that all tests look at, which has ended."""

    prometheus: Prometheus
    start: float
    end: float

    def read(self, expr: str) -> list[DataSeries]:
        """Return the series of a query over the time of the run."""
        return self.prometheus.read_range(substitute(expr, window=WINDOW, span=SPAN), start=self.start, end=self.end)


@pytest.fixture(scope="module")
def run(
    installed: Cluster, gateway: Gateway, url: str, api_key: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("prometheus")
    agent = Agent(cluster=installed, gateway=gateway, pool="runc")
    image = installed.get("SandboxPool", "runc")["spec"]["image"]
    with (
        scraped(installed) as targets,
        prometheus(targets, folder) as found,
        running(installed, *load.SERVERS, load.ROLLOUT_OBJECT),
    ):
        everything = sum(map(len, targets.values()))
        eventually(lambda: len(found.query("up == 1")) == everything, what="all pods are scraped")
        start = found.now()
        refused = load.refuse_pods(installed, image)
        try:
            with approver(installed, url) as client:
                wait_for_rollout(client)
                done = load.produce(agent, client, url=url, api_key=api_key)
            assert {each["phase"] for each in done} == {"Succeeded", "Failed"}
        finally:
            installed.delete("SandboxPool", refused, namespace=NAMESPACE)
        yield Run(prometheus=found, start=start, end=found.now())


def wait_for_rollout(client: httpx.Client) -> None:
    """Wait until the rollout enrols units, whose outcomes count from then on."""
    path = f"/v1/rollouts/{load.ROLLOUT}"
    eventually(lambda: client.get(path).json().get("phase") == "Progressing", what="the rollout has begun")


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_every_query_of_a_board_returns_values_and_the_board_is_drawn(run: Run, board: Board) -> None:
    data = {expr: run.read(expr) for expr in board.list_queries()}
    PICTURES.mkdir(parents=True, exist_ok=True)
    draw_board(board, data, path=PICTURES / f"{board.name}.png")
    assert [expr for expr, found in data.items() if not has_values(found)] == []


def test_every_recording_rule_returns_values(run: Run) -> None:
    assert [each.name for each in RECORDINGS if not has_values(run.read(each.name))] == []


def test_every_alert_is_loaded_and_evaluated_without_an_error(run: Run) -> None:
    groups = run.prometheus.get("rules")["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert {alert.name for alert in ALERTS} <= rules.keys()
    assert {name: rule.get("lastError") for name, rule in rules.items() if rule["health"] != "ok"} == {}


def test_no_alert_fires_on_a_run_of_minutes(run: Run) -> None:
    assert [each["metric"]["alertname"] for each in run.prometheus.query('ALERTS{alertstate="firing"}')] == []
