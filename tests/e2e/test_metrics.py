"""Metrics of the installed processes: all that the boards show is served."""

import re

import httpx
from hack.monitoring.__main__ import BOARDS
from hack.reference.metrics import build_registries

from tests.e2e.boards.prometheus import scraped
from tests.e2e.support import Cluster
from tests.support.metrics import series


def test_each_process_serves_the_metrics_that_the_boards_show(installed: Cluster) -> None:
    shown = set(re.findall(r"mcp_exec_\w+", " ".join(expr for board in BOARDS for expr in board.list_queries())))
    with scraped(installed) as targets:
        for process, registry in build_registries().items():
            texts = [httpx.get(f"http://{each}/metrics", trust_env=False).text for each in targets[process]]
            served = set(re.findall(r"^# TYPE (\w+)", texts[0], re.MULTILINE))
            needed = {re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in series(registry) if name in shown}
            assert texts, process
            assert needed - served == set(), process
