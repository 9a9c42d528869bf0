"""What `mcp-exec` imports before it runs a command, and interrupts meanwhile."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pace import paced
from tests.support.processes import write_kubeconfig

OWN = ("mcp_exec_api", "mcp_exec_common", "mcp_exec_tools")
LIGHT = {
    "mcp_exec_api",
    "mcp_exec_api.constants",
    "mcp_exec_api.wire",
    "mcp_exec_api.wire.execution_options",
    "mcp_exec_common",
    "mcp_exec_common.key_options",
}
"""Modules of the packages above that import only the standard library."""
LIBRARIES = ("aiohttp", "httpx", "pydantic", "mcp", "anthropic", "kubernetes", "yaml", "urllib.request", "http.client")
HEAVY = ("asyncio", "concurrent.futures", "decimal", "ssl", "subprocess", "tarfile", "tempfile", "tomllib")
"""Modules of the standard library that commands need, and neither help nor completion of their words."""
PARSER = "import sys, mcp_exec_client.cli.main as cli; cli.build_parser(); print(*sys.modules)"


def test_the_parser_imports_no_library_before_a_command_runs(tmp_path: Path) -> None:
    """Libraries take longer to import than most commands run."""
    loaded = subprocess.run(
        [sys.executable, "-c", PARSER],
        check=True, capture_output=True, text=True, timeout=paced(60), env={"HOME": str(tmp_path)},
    )  # fmt: skip
    modules = set(loaded.stdout.split())
    assert {module for module in modules if module.startswith(OWN)} == LIGHT
    assert not modules & {*LIBRARIES, *HEAVY}


WORDS = """
import sys
from mcp_exec_client.cli.start import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [["--help"], ["run", "--help"], ["completion", "bash"], ["__complete", ""], ["__complete", "run", "--"]],
    ids=" ".join,
)
def test_help_and_completion_of_words_import_nothing_that_only_commands_need(words: list[str], tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WORDS, *words],
        check=True, capture_output=True, text=True, timeout=paced(60), env={"HOME": str(tmp_path)},
    )  # fmt: skip
    assert ended.stdout
    assert not set(ended.stderr.split()) & {*LIBRARIES, *HEAVY}


def test_the_programs_import_little_before_they_handle_an_interrupt() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import mcp_exec_client.cli.start; print(*sys.modules)"
    folder = str(Path(__file__).parents[3] / "client")
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", code, folder], check=True, capture_output=True, text=True, timeout=paced(60)
    )
    assert not {"typing", "re", "contextlib"} & set(loaded.stdout.split())


LISTING = """
import sys
from mcp_exec_client.cli.backends.cluster import ClusterBackend
print(*sys.modules)
"""


def test_a_command_of_the_plugin_imports_only_the_models_that_it_shows() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", LISTING], check=True, capture_output=True, text=True, timeout=paced(60)
    )
    assert not {"mcp_exec_api.execution_rollout", "mcp_exec_api.wire.rollouts"} & set(loaded.stdout.split())


INTERRUPTED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

for name in [each for each in sys.modules if each in ("argparse", "asyncio")]:
    del sys.modules[name]
sys.meta_path.insert(0, Interrupt())
from mcp_exec_client.cli.start import kubectl_main
kubectl_main(["get", "--kubeconfig", sys.argv[2]])
"""


@pytest.mark.parametrize(
    "module",
    [
        "mcp_exec_client.cli.main",
        "argparse",
        "asyncio",
        "mcp_exec_client.cli.commands.run",
        "aiohttp",
        "pydantic",
        "yaml",
    ],
)
def test_an_interrupt_while_the_plugin_starts_prints_no_traceback(module: str, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, str(kubeconfig)],
        check=False, capture_output=True, text=True, timeout=paced(60),
    )  # fmt: skip
    assert ended.stdout == ""
    assert ended.stderr in ("", "kubectl mcp-exec: interrupted\n")
    assert ended.returncode in (-2, 130)


@pytest.mark.parametrize("command", ["get", "doctor"])
def test_a_refused_connection_to_the_api_server_is_named_in_words(command: str, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    program = "import sys; from mcp_exec_client.cli.start import kubectl_main; kubectl_main(sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", program, command, "--kubeconfig", str(kubeconfig)],
        check=False, capture_output=True, text=True, timeout=paced(60),
    )  # fmt: skip
    assert "Connection refused" in ended.stdout + ended.stderr
    assert "Connect call failed" not in ended.stdout + ended.stderr
