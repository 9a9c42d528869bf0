"""The tools package imports the standard library only, because the sandbox image contains it."""

import subprocess
import sys
from pathlib import Path

from tests.support.pace import paced

import mcp_exec_tools

FOLDER = Path(mcp_exec_tools.__file__).parent

IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import mcp_exec_tools
for module in pkgutil.walk_packages(mcp_exec_tools.__path__, "mcp_exec_tools."):
    importlib.import_module(module.name)
foreign = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"mcp_exec_tools", "__main__"}
print(sorted(foreign), sorted(name for name in sys.modules if name.startswith("mcp_exec_")))
"""


def test_tools_import_the_standard_library_and_each_other_alone():
    command = [sys.executable, "-I", "-S", "-c", IMPORT_ALL, str(FOLDER.parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=paced(120), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[] ['mcp_exec_tools', ")
    assert "mcp_exec_api" not in done.stdout
