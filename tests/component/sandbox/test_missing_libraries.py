"""A missing library is explained: which pools have it, or what this sandbox has."""

import importlib.util

import pytest

LIBRARIES = {
    "rarelib": [["data", "2.3.1"]],
    "sklearn": [["data", "1.5"], ["ml", "1.6"]],
    "opencv-python": [["vision", "4.10"]],
}


@pytest.fixture
def sandbox(reused):
    return reused


def test_an_import_names_the_pool_that_has_the_library(sandbox):
    run = sandbox.run("x = 1\nimport rarelib.part", libraries=LIBRARIES)
    assert (run.reason, run.error["type"], run.error["line"]) == ("UserError", "ModuleNotFoundError", 2)
    expected = "No module named 'rarelib': pool `data` has rarelib 2.3.1; set poolRef.name to data"
    assert run.error["message"] == expected


def test_an_import_names_several_pools(sandbox):
    code = """
import importlib, sys
sys.path[:] = []
try:
    importlib.import_module('sklearn')
except ImportError as error:
    text = str(error)
text
"""
    expected = "the pools `data` (1.5), `ml` (1.6) have scikit-learn; set poolRef.name to one of them"
    assert sandbox.run(code, libraries=LIBRARIES).result == f"No module named 'sklearn': {expected}"


def test_a_library_is_found_by_the_name_of_its_package(sandbox):
    run = sandbox.run("import cv2", libraries=LIBRARIES)
    assert "pool `vision` has opencv-python 4.10" in run.error["message"]


def test_an_unknown_library_is_answered_with_what_the_sandbox_has(sandbox):
    message = sandbox.run("import unknown_library").error["message"]
    assert message.startswith("No module named 'unknown_library': this sandbox has Python 3.")
    assert "nothing can be installed in a sandbox" in message


def test_code_can_handle_a_missing_library(sandbox):
    code = """
import importlib.util
try:
    import rarelib
except ModuleNotFoundError as error:
    name = error.name
try:
    from rarelib import part
except ImportError:
    found = importlib.util.find_spec("rarelib")
[name, found]
"""
    assert sandbox.run(code, libraries=LIBRARIES).result == ["rarelib", None]


def test_a_later_job_of_a_session_has_hints_of_its_own(make_sandbox):
    sandbox, owner = make_sandbox(), "a" * 32
    assert "data" in sandbox.run("import rarelib", libraries=LIBRARIES, owner=owner, session=True).error["message"]
    run = sandbox.run("import rarelib", id="uid-2", owner=owner, session=True)
    assert "data" not in run.error["message"].partition("(")[0].partition("with")[0]


INSTALLS = [
    'import subprocess\nsubprocess.run(["pip", "install", "rarelib"])',
    'import subprocess, sys\nsubprocess.check_call([sys.executable, "-m", "pip", "install", "-q", "rarelib==2"])',
    'import subprocess\nsubprocess.Popen("pip install rarelib > log", shell=True)',
    'import os\nos.system("python -m pip install rarelib")',
    'import os\nos.popen("uv pip install rarelib").read()',
    'import asyncio\nawait asyncio.create_subprocess_exec("pip3", "install", "rarelib")',
]


@pytest.mark.parametrize("code", INSTALLS)
def test_an_installation_fails_at_its_line_with_the_answer(sandbox, code):
    run = sandbox.run("import sys\nsys.modules['pip'] = None\n" + code, libraries=LIBRARIES)
    assert (run.error["type"], run.error["line"]) == ("ModuleNotFoundError", 4)
    assert "pool `data` has rarelib 2.3.1; set poolRef.name to data" in run.error["message"]


def test_an_installation_by_a_magic_names_the_pool(sandbox):
    run = sandbox.run("!pip install rarelib", libraries=LIBRARIES)
    assert (run.error["type"], run.error["line"]) == ("SyntaxError", 1)
    assert "pool `data` has rarelib 2.3.1" in run.error["message"]


def test_other_programs_run(sandbox):
    code = (
        'import os, subprocess\nrun = subprocess.run(["echo", "install"], capture_output=True, text=True)\n'
        '[run.stdout, os.system("true")]'
    )
    assert sandbox.run(code).result == ["install\n", 0]


@pytest.mark.parametrize(
    "libraries",
    [
        [],
        {"a b": []},
        {"a": [["pool"]]},
        {"a": [["Pool", "1"]]},
        {"a": [["pool", "1\n2"]]},
        {"a": [["pool", 1]]},
        {"a": [["pool", "1"]] * 9},
        {f"m{number}": [] for number in range(65)},
        {"a" * 101: []},
    ],
)
def test_invalid_hints_are_refused(sandbox, libraries):
    response = sandbox.start("1", libraries=libraries)
    response.read()
    assert response.status_code == 400
    assert response.json()["error"].startswith("libraries")


IMPORT = "try:\n    import rarelib\nexcept ImportError as e:\n    "
OPTIONAL = {
    "as its cause": IMPORT + "raise ImportError('Use pip or conda.') from e",
    "as its context": IMPORT + "raise ImportError('Use pip, conda.') from None",
    "of another type": IMPORT + "raise AttributeError('needs more') from e",
    "two errors up": (
        "try:\n    try:\n        import rarelib\n    except ImportError as e:\n        raise KeyError('x') from e\n"
        "except KeyError:\n    raise RuntimeError('no')"
    ),
    "named in its text": (
        "import importlib\ntry:\n    importlib.import_module('rarelib')\nexcept ImportError:\n    pass\n"
        "raise ImportError(\"Unable to find a usable engine; tried using: 'RareLib', 'other'.\")"
    ),
    "in a group": IMPORT + "raise ExceptionGroup('g', [ValueError(1), e])",
}


@pytest.mark.parametrize("name", OPTIONAL)
def test_an_error_that_a_missing_library_has_caused_ends_with_the_way_out(sandbox, name):
    run = sandbox.run(OPTIONAL[name], libraries=LIBRARIES)
    message = "`rarelib` is missing: pool `data` has rarelib 2.3.1; set poolRef.name to data."
    assert run.error["message"].endswith(f"\n{message}")
    assert message in run.error["traceback"]
    assert "notes" not in run.end


def test_an_error_that_a_library_of_no_pool_has_caused_ends_with_the_way_out(sandbox):
    code = IMPORT + "raise ImportError('Use pip or conda.') from e"
    run = sandbox.run(code)
    hint = "`rarelib` is missing: packages come with the image of the pool, and nothing can be installed in a sandbox."
    assert run.error["message"] == f"Use pip or conda.\n{hint}"
    assert run.error["traceback"].endswith(f"ImportError: Use pip or conda.\n{hint}\n")


@pytest.mark.parametrize("library", ["requests", "httpx", "boto3"])
def test_a_missing_library_for_networks_says_that_there_is_none(sandbox, library):
    hide = f"import sys\nsys.path[:] = []\nsys.modules.pop({library!r}, None)\n"
    message = sandbox.run(f"{hide}import {library}").error["message"]
    assert message.endswith("; a sandbox has no network; call a tool instead")
    message = sandbox.run(f"{hide}import {library}", libraries={library: [["web", "2.0"]]}).error["message"]
    assert message.endswith("set poolRef.name to web; a sandbox has no network; call a tool instead")


@pytest.mark.parametrize(
    "code",
    [
        "import rarelib",
        "try:\n    import rarelib\nexcept ImportError:\n    pass\nraise ValueError('no')",
        "try:\n    import rarelib\nexcept ImportError:\n    pass\n1",
    ],
)
def test_an_error_that_says_it_and_one_of_another_cause_have_no_such_hint(sandbox, code):
    run = sandbox.run(code, libraries=LIBRARIES)
    assert run.error is None or "`rarelib` is missing" not in run.error["message"]


PANDAS = {
    "tabulate": "pd.DataFrame({'a': [1]}).to_markdown()",
    "fastparquet": "pd.DataFrame({'a': [1]}).to_parquet('x', engine='fastparquet')",
}


@pytest.mark.parametrize("library", PANDAS)
def test_what_pandas_needs_is_in_its_error(sandbox, library):
    pytest.importorskip("pandas")
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is here")
    run = sandbox.run(f"import pandas as pd\n{PANDAS[library]}", timeoutSeconds=60)
    assert run.error["message"].rpartition("\n")[2].startswith(f"`{library}` is missing: ")


@pytest.mark.parametrize("statement", ["import rarelib", "from rarelib import part", "import servers.nowhere"])
def test_the_traceback_of_a_failed_import_has_no_frame_of_the_import_system(sandbox, statement):
    code = f"""
import traceback
try:
    {statement}
except ImportError as error:
    frames = traceback.extract_tb(error.__traceback__)
[frame.filename for frame in frames]
"""
    assert sandbox.run(code).result == ["<agent>"]
