"""The modules of CPython's tests that are compared, and the tests that end in another way inside a run, with reasons.

The page of values has the reasons: `make generate` writes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MODULES: Final = (
    "test_abc",
    "test_argparse",
    "test_array",
    "test_ast",
    "test_asyncgen",
    "test_asyncio.test_base_events",
    "test_asyncio.test_futures",
    "test_asyncio.test_locks",
    "test_asyncio.test_pep492",
    "test_asyncio.test_queues",
    "test_asyncio.test_runners",
    "test_asyncio.test_streams",
    "test_asyncio.test_taskgroups",
    "test_asyncio.test_tasks",
    "test_asyncio.test_timeouts",
    "test_atexit",
    "test_builtin",
    "test_class",
    "test_cmd_line",
    "test_code",
    "test_code_module",
    "test_codecs",
    "test_collections",
    "test_compile",
    "test_contextlib",
    "test_contextlib_async",
    "test_copy",
    "test_coroutines",
    "test_csv",
    "test_dataclasses",
    "test_decorators",
    "test_deque",
    "test_dict",
    "test_dis",
    "test_doctest",
    "test_dynamicclassattribute",
    "test_enum",
    "test_exception_group",
    "test_fileio",
    "test_fractions",
    "test_functools",
    "test_gc",
    "test_generators",
    "test_genericpath",
    "test_getpass",
    "test_glob",
    "test_grp",
    "test_hashlib",
    "test_heapq",
    "test_import",
    "test_importlib.test_api",
    "test_importlib.test_util",
    "test_inspect.test_inspect",
    "test_io",
    "test_itertools",
    "test_json.test_decode",
    "test_json.test_dump",
    "test_linecache",
    "test_list",
    "test_math",
    "test_module",
    "test_ntpath",
    "test_opcache",
    "test_operator",
    "test_pathlib",
    "test_pdb",
    "test_pkgutil",
    "test_posix",
    "test_posixpath",
    "test_pprint",
    "test_pwd",
    "test_resource",
    "test_rlcompleter",
    "test_shutil",
    "test_site",
    "test_sqlite3.test_dbapi",
    "test_statistics",
    "test_string",
    "test_struct",
    "test_super",
    "test_support",
    "test_symtable",
    "test_sys",
    "test_sys_setprofile",
    "test_sys_settrace",
    "test_sysconfig",
    "test_textwrap",
    "test_thread",
    "test_threading_local",
    "test_timeit",
    "test_trace",
    "test_traceback",
    "test_tracemalloc",
    "test_tty",
    "test_tuple",
    "test_type_aliases",
    "test_type_annotations",
    "test_type_cache",
    "test_type_comments",
    "test_type_params",
    "test_typechecks",
    "test_types",
    "test_typing",
    "test_ucn",
    "test_unary",
    "test_unicode_file",
    "test_unicode_file_functions",
    "test_unicode_identifiers",
    "test_unicodedata",
    "test_unittest.test_assertions",
    "test_unittest.test_async_case",
    "test_unittest.test_break",
    "test_unittest.test_case",
    "test_unittest.test_discovery",
    "test_unittest.test_functiontestcase",
    "test_unittest.test_loader",
    "test_unittest.test_program",
    "test_unittest.test_result",
    "test_unittest.test_runner",
    "test_unittest.test_setups",
    "test_unittest.test_skipping",
    "test_unittest.test_suite",
    "test_unittest.test_util",
    "test_univnewlines",
    "test_unpack",
    "test_unpack_ex",
    "test_unparse",
    "test_urllib",
    "test_urllib2",
    "test_urllib2_localnet",
    "test_urllib_response",
    "test_urlparse",
    "test_userdict",
    "test_userlist",
    "test_userstring",
    "test_utf8_mode",
    "test_utf8source",
    "test_uuid",
    "test_wait3",
    "test_wait4",
    "test_warnings",
    "test_wave",
    "test_weakref",
    "test_weakset",
    "test_webbrowser",
    "test_with",
    "test_wsgiref",
    "test_xml_dom_minicompat",
    "test_xml_dom_xmlbuilder",
    "test_xml_etree",
    "test_xml_etree_c",
    "test_xmlrpc",
    "test_xxlimited",
    "test_xxtestfuzz",
    "test_yield_from",
    "test_zipapp",
    "test_zipfile.test_core",
    "test_zipimport",
    "test_zipimport_support",
    "test_zlib",
    "test_zoneinfo.test_zoneinfo",
    "test_zoneinfo.test_zoneinfo_property",
)
"""Modules of the package `test`. Further ones that end alike are left out for their time."""

LEFT_OUT: Final[Mapping[str, tuple[str, ...]]] = {
    "Windows": ("test_winapi", "test_winconsoleio", "test_winreg", "test_wmi"),
    "Tk": (
        "test_ttk.test_extensions",
        "test_ttk.test_style",
        "test_ttk.test_widgets",
        "test_ttk_textonly",
        "test_turtle",
    ),
    "a network": ("test_urllib2net", "test_urllibnet"),
    "a sound device": ("test_winsound",),
    "gigabytes of files": ("test_zipfile64",),
    "files that Debian's package does not have": ("test_tools.test_sundry", "test_venv"),
}
"""Modules that can run in no sandbox, by what they need."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Tests whose outcome differs, and why that is meant."""

    reason: str
    """Sentences for the page of values."""
    tests: tuple[str, ...]
    """Names of the tests, without `test.`."""
    skipped: tuple[str, ...] = ()
    """Names of classes that have tests which are skipped in a run only."""


_PATHS: Final = ("PathSubclassTest", "PathTest", "PosixPathTest")
DIFFERENCES: Final = (
    Difference(
        reason="""`asyncio.run`, `Runner.run` and `run_until_complete` work inside a running loop, as with
`nest_asyncio`. In the main thread `asyncio.run` uses the loop of the run each time, and leaves it in place.""",
        tests=(
            "test_asyncio.test_runners.RunTests.test_asyncio_run_debug",
            "test_asyncio.test_runners.RunTests.test_asyncio_run_from_running_loop",
            "test_asyncio.test_runners.RunTests.test_asyncio_run_set_event_loop",
            "test_asyncio.test_runners.RunnerTests.test_recursive_run",
        ),
    ),
    Difference(
        reason="""SIGINT is the signal of the time limit: it raises a `KeyboardInterrupt` at the line that runs, also in
tasks of asyncio, which would otherwise be cancelled.""",
        tests=(
            "test_asyncio.test_runners.RunTests.test_asyncio_run_without_uncancel",
            "test_asyncio.test_runners.RunnerTests.test_interrupt_cancelled_task",
            "test_asyncio.test_runners.RunnerTests.test_interrupt_wait",
            "test_pdb.test_pdb_issue_20766",
        ),
    ),
    Difference(
        reason="""`sys.setrecursionlimit` has an upper bound by memory and is a Python function, so the lowest limit
that it takes is one more than CPython's.""",
        tests=(
            "test_support.TestSupport.test_recursion",
            "test_sys.SysModuleTest.test_setrecursionlimit_to_depth",
        ),
    ),
    Difference(
        reason="""`pwd` and `grp` know the user of a run; in child processes they do not.""",
        tests=(
            *(f"test_pathlib.test_pathlib.{name}.test_expanduser_posix" for name in _PATHS),
            *(f"test_pathlib.test_pathlib.{name}.test_group" for name in _PATHS),
            *(f"test_pathlib.test_pathlib.{name}.test_home" for name in _PATHS),
            *(f"test_pathlib.test_pathlib.{name}.test_owner" for name in _PATHS),
            "test_posix.PosixTester.test_getgrouplist",
            "test_posix.PosixTester.test_initgroups",
            "test_posixpath.PosixPathTest.test_expanduser_pwd",
        ),
    ),
    Difference(
        reason="""The interpreter of a run uses UTF-8 by its locale, and child processes also by
`sys.flags.utf8_mode`.""",
        tests=(
            "test_builtin.BuiltinTest.test_open_default_encoding",
            "test_codecs.LocaleCodecTest.test_decode_surrogatepass",
            "test_codecs.LocaleCodecTest.test_encode_surrogatepass",
            "test_io.CTextIOWrapperTest.test_default_encoding",
            "test_io.PyTextIOWrapperTest.test_default_encoding",
            "test_sys.SysModuleTest.test_ioencoding_nonascii",
        ),
    ),
    Difference(
        reason="""The interpreter of a run starts with `-P` (`sys.flags.safe_path`) and puts the working directory at
the start of `sys.path` itself. CPython skips tests of start files under this flag.""",
        tests=("test_cmd_line.CmdLineTest.test_empty_PYTHONPATH_issue16309",),
        skipped=("test_pdb.PdbTestCase",),
    ),
    Difference(
        reason="""Each coroutine has the line that made it, for notes on a forgotten `await`:
`sys.get_coroutine_origin_tracking_depth()` is 4 in a run.""",
        tests=("test_asyncio.test_pep492.CoroutineTests.test_debug_mode_manages_coroutine_origin_tracking",),
    ),
    Difference(
        reason="""`threading.excepthook` and `sys.unraisablehook` are functions of the runner, for notes on the errors
that they report.""",
        tests=("test_inspect.test_inspect.TestSignatureDefinitions.test_threading_module_has_signatures",),
    ),
    Difference(
        reason="""The runner calls the code, so that the stack is some frames deeper than that of a script.""",
        tests=("test_tracemalloc.TestTracemallocEnabled.test_snapshot",),
    ),
    Difference(
        reason="""`call_mcp_tool`, `display`, `progress`, `search_tools` and `show` are names of `__main__` without an
import.""",
        tests=("test_rlcompleter.TestRlcompleter.test_global_matches",),
    ),
)


def find_problems(module: str, inside: Mapping[str, str], child: Mapping[str, str]) -> list[str]:
    """Return the tests of a module whose outcomes differ without a reason, or have a reason and do not differ.

    The outcomes are those of a run and of a child process: `ok`, `skipped` or a text that begins with `failed`.
    """
    known = {test for difference in DIFFERENCES for test in difference.tests}
    classes = {name for difference in DIFFERENCES for name in difference.skipped if name.startswith(f"{module}.")}
    seen = set()
    problems = []
    for test in sorted({*inside, *child}):
        name = test.removeprefix("test.")
        outcomes = [found.get(test, "missing") for found in (inside, child)]
        differs = outcomes[0].partition(":")[0] != outcomes[1].partition(":")[0]
        owner = name.rpartition(".")[0]
        if outcomes == ["skipped", "ok"] and owner in classes:
            seen.add(owner)
        elif differs and name not in known:
            problems.append(f"{name}: in a run {outcomes[0]}; in a child process {outcomes[1]}")
        elif name in known and not differs:
            problems.append(f"{name}: ends alike ({outcomes[0]}), so it is no known difference")
    missing = {name for name in known if name.startswith(f"{module}.") and f"test.{name}" not in {*inside, *child}}
    problems += [f"{name}: there is no such test" for name in sorted(missing)]
    return problems + [f"{name}: no test of it is skipped in a run only" for name in sorted(classes - seen)]
