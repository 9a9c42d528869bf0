"""What the number of a namespace's tools costs: catalogs, search, wrappers, and the broker. Needs no cluster."""

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from capacity_stored import Measurement
from figures import Row
from harness import percentile
from processes import ProcessMemory
from queries import make_tools
from tools import NAMESPACE, run_broker, run_tool_server
from waits import within

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_gateway.features.tools.catalogs import NamespaceTools
from mcp_exec_tools.languages import LANGUAGES
from mcp_exec_tools.wrappers import build_files, format_catalog

QUERIES: Final = ("list all", "create one with a name", "delete", "which are overdue", "search by text", "send it")
LIST_SECONDS: Final = 120.0
_KB: Final = 1000


def measure_catalog(count: int) -> Row:
    """Return what catalogs of so many tools take in a gateway and for wrappers. Memory is this process's growth."""
    made = make_tools(count)
    text = json.dumps({"hash": "", "servers": [{"server": name, "tools": tools} for name, tools in made.items()]})
    before = ProcessMemory.read(multiprocessing.current_process().pid or 0).resident
    started = time.process_time()
    found = NamespaceTools.from_answer("1", json.loads(text), {})
    indexed = time.process_time() - started
    row: Row = {"catalog kB": round(len(text) / _KB, 1), "indexed ms": round(1000 * indexed, 1)}
    row["index MB"] = round(ProcessMemory.read(multiprocessing.current_process().pid or 0).resident - before, 1)
    index, samples = found.get_index("python"), []
    for query in QUERIES * 5:
        started = time.process_time()
        index.search(query, limit=10)
        samples.append(1000 * (time.process_time() - started))
    row["search ms"] = round(percentile(samples, 0.5), 2)
    catalogs = list(found.catalogs.values())
    for language in LANGUAGES:
        started = time.process_time()
        files = {**build_files(catalogs, language=language), "catalog.json": format_catalog(catalogs)}
        row[f"{language} s"] = round(time.process_time() - started, 3)
        row[f"{language} kB"] = round(len(json.dumps(files)) / _KB, 1)
    return row


async def measure_broker(count: int, folder: Path) -> Row:
    """Return what one server with so many tools takes in a broker, and the seconds until its tools are listed."""
    async with run_tool_server(folder, tools=count) as url:
        started = time.perf_counter()
        async with run_broker(folder, tools=url) as broker:
            servers = broker.api.collections[custom_resource_path(TOOL_SERVERS, namespace=NAMESPACE)]
            status: dict[str, Any] = {}
            async with within(LIST_SECONDS, f"the list of {count} tools", state=lambda: status):
                while status.get("available") is not True:
                    await asyncio.sleep(0.05)
                    status = servers["bench"].get("status") or {}
            listed = time.perf_counter() - started
            return {"broker MB": ProcessMemory.read(broker.pid).resident, "broker lists s": round(listed, 2)}


async def measure_tools(options: argparse.Namespace) -> Measurement:
    """Measure each number of tools in processes of its own."""
    steps: dict[int, Row] = {}
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="mcp-exec-bench-") as name:
        for count in options.sizes:
            with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
                row = await asyncio.get_running_loop().run_in_executor(pool, measure_catalog, count)
            (folder := Path(name) / str(count)).mkdir()
            steps[count] = row | await measure_broker(count, folder)
            print(f"{count} tools: {steps[count]}", flush=True)
    return Measurement(steps=steps, after={}, more={})
