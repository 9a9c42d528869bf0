"""A Prometheus of Debian that scrapes the pods of a release every two seconds, by forwarded ports."""

import math
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from hack.monitoring.plot import DataSeries

from tests.e2e.support import ROOT, SYSTEM, Cluster
from tests.support.pace import paced
from tests.support.ports import free_port
from tests.support.until import eventually

PORTS = {"operator": 8081, "gateway": 8085, "broker": 8084}
"""Ports of the metrics of each process."""
RULES = ROOT / "charts/mcp-exec/rules/mcp-exec.yaml"


@dataclass(frozen=True, kw_only=True)
class Prometheus:
    """A running Prometheus."""

    client: httpx.Client

    def get(self, path: str, **params: str) -> Any:
        response = self.client.get(f"/api/v1/{path}", params=params)
        assert response.status_code == 200, response.text
        return response.json()["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return what a query returns now."""
        return list(self.get("query", query=expr)["result"])

    def now(self) -> float:
        """Return the time by Prometheus' own clock."""
        return float(self.get("query", query="time()")["result"][0])

    def read_range(self, expr: str, *, start: float, end: float) -> list[DataSeries]:
        """Return the series of a query over a time span, a value each second."""
        found = self.get("query_range", query=expr, start=str(start), end=str(end), step="1")["result"]
        return [
            DataSeries(labels=each["metric"], points=[(float(at), float(value)) for at, value in each["values"]])
            for each in found
        ]


def has_values(found: list[DataSeries]) -> bool:
    """Return whether a query returned a number at any time."""
    return any(not math.isnan(value) for each in found for _, value in each.points)


RELEASE = {"release": f"{SYSTEM}.mcp-exec"}
"""The label that the chart's ServiceMonitor sets."""


@contextmanager
def forwarded(cluster: Cluster, pod: str, port: int) -> Iterator[str]:
    """Forward a port of this machine to a pod's, and yield its address."""
    process = subprocess.Popen(
        ["kubectl", "port-forward", "-n", SYSTEM, f"pod/{pod}", f":{port}"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = re.match(r"Forwarding from (127\.0\.0\.1:\d+)", process.stdout.readline())
        assert found, f"kubectl forwards no port to {pod}"
        yield found[1]
    finally:
        process.terminate()
        process.wait(timeout=paced(10))
        process.stdout.close()


@contextmanager
def scraped(cluster: Cluster) -> Iterator[dict[str, list[str]]]:
    """Forward a port to each pod of operator, gateway and broker; yields their addresses."""
    with ExitStack() as stack:
        found: dict[str, list[str]] = {}
        for component, port in PORTS.items():
            labels = f"app.kubernetes.io/component={component}"
            pods = sorted(pod["metadata"]["name"] for pod in cluster.live_pods(labels, namespace=SYSTEM))
            found[component] = [stack.enter_context(forwarded(cluster, pod, port)) for pod in pods]
        yield found


@contextmanager
def prometheus(targets: dict[str, list[str]], folder: Path) -> Iterator[Prometheus]:
    """Run Prometheus, with the chart's rules evaluated every two seconds."""
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        group["interval"] = "2s"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    jobs = [
        {"job_name": name, "honor_labels": True, "static_configs": [{"targets": addresses, "labels": RELEASE}]}
        for name, addresses in targets.items()
    ]
    settings = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus", f"--config.file={folder / 'prometheus.yaml'}", f"--web.listen-address={address}",
                f"--storage.tsdb.path={folder / 'data'}",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=paced(30), trust_env=False) as client:
            found = Prometheus(client=client)
            eventually(lambda: is_ready(client), what="Prometheus is ready")
            yield found
    finally:
        process.terminate()
        process.wait(timeout=paced(30))


def is_ready(client: httpx.Client) -> bool:
    """Return whether Prometheus answers queries."""
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.HTTPError:
        return False
