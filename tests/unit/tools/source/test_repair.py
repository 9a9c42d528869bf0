"""Code that is no Python as it was sent: what is repaired, and what the error says."""

import ast
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_tools.source.lines import scan
from mcp_exec_tools.source.repair import RepairedSource, repair

OLD, NEW = (3, 11), (3, 13)
SOURCES = sorted(path for name in ("common", "tools") for path in (Path(__file__).parents[4] / name).rglob("*.py"))


def parse(code: str) -> ast.Module:
    return ast.parse(code, "<agent>")


def repair_code(code: str, version: tuple[int, int] = OLD) -> RepairedSource:
    with pytest.raises(SyntaxError) as caught:
        parse(code)
    return repair(code, caught.value, parse=parse, version=version)


def explain(code: str, version: tuple[int, int] = OLD) -> tuple[int | None, str]:
    with pytest.raises(SyntaxError) as caught:
        parse(code)
    with pytest.raises(SyntaxError) as explained:
        repair(code, caught.value, parse=parse, version=version)
    return explained.value.lineno, explained.value.msg


def dump(tree: ast.AST) -> str:
    return ast.dump(tree)


@pytest.mark.parametrize(
    "code",
    [
        "```python\nx = 1\n```",
        "```\nx = 1\n```",
        "~~~py\nx = 1\n~~~",
        "````python\nx = 1\n````\n",
        "```python\r\nx = 1\r\n```\r\n",
        "``` {.python}\nx = 1",
        "x = 1\n```",
        "x = 1\n```\nThis sets x.",
        "This sets x:\n```\nx = 1",
        "   ```python\n   x = 1\n   ```",
        "\ufeffx = 1",
        "\ufeff```python\n    x = 1\n```",
        "    x = 1",
        "\t# a comment\n\tx = 1",
        "`x = 1`",
        "```python x = 1```",
        "%matplotlib inline\nx = 1",
        "%load_ext autoreload\n%autoreload 2\nx = 1",
        "%%time\nx = 1",
        "%time x = 1",
        "%timeit -n 10 -r3 x = 1",
        "%%capture out\nx = 1",
    ],
)
def test_code_of_notebooks_and_of_markdown_becomes_python(code: str) -> None:
    assert dump(repair_code(code).tree) == dump(parse("x = 1"))


def test_text_around_a_fence_does_not_run_and_is_named() -> None:
    repaired = repair_code("Here's the code:\n\n```python\nx = 1\n```\nIt doesn't print.")
    assert repaired.code == "\n\n\nx = 1\n\n"
    assert repaired.changes == ("The Markdown fence was removed, and the text outside did not run (lines 1, 6).",)


def test_all_blocks_of_python_run_and_blocks_of_other_languages_do_not() -> None:
    repaired = repair_code("```python\na = 1\n```\n```bash\nls\n```\n- then\n  ```py\n  b = a\n  ```")
    assert repaired.code == "\na = 1\n\n\n\n\n\n\nb = a\n"
    assert repaired.changes == (
        "The Markdown fences of 2 blocks were removed, and the text outside did not run (lines 5, 7).",
        "The indentation that all lines had (2 spaces) was removed.",
    )


def test_a_fence_inside_a_string_is_text() -> None:
    code = '```python\ntext = """\n```python\nno code\n```\n"""\n```'
    assert ast.literal_eval(repair_code(code).tree.body[0].value) == "\n```python\nno code\n```\n"  # type: ignore[attr-defined]


def test_strings_keep_their_indentation() -> None:
    code = "    text = '''\n    a\n b'''\n    rows = [\n  1,\n    ]\n"
    assert repair_code(code).code == "text = '''\n    a\n b'''\nrows = [\n1,\n]\n"


def test_magics_keep_the_numbers_of_lines_and_the_blocks_around_them() -> None:
    repaired = repair_code("%matplotlib inline\nfor i in range(3):\n    %time\n%time print(1)\n%matplotlib qt")
    assert repaired.code == "\nfor i in range(3):\n    pass\nprint(1)\n"
    assert repaired.changes == (
        "Lines 1, 5: %matplotlib has no effect here.",
        "Line 3: %time has no effect; the code runs without a time measurement.",
        "Line 4: the statement of %time runs without a time measurement.",
    )


@pytest.mark.parametrize(
    ("code", "line", "words"),
    [
        ("x = 1\n!pip install -q pandas", 2, "nothing can be installed"),
        ("%pip install pandas", 1, "nothing can be installed"),
        ("%conda install -c conda-forge numpy -y", 1, "nothing can be installed"),
        ("!python3 -m pip install x && ls", 1, "nothing can be installed"),
        ("! {sys.executable} -m pip install x", 1, "nothing can be installed"),
        ("%%capture\n!uv pip install x", 2, "nothing can be installed"),
        ("!ls -l", 1, "use Python"),
        ("files = !ls", 1, "use Python"),
        ("x = 1\n?df", 2, "help(df)"),
        ("df.head?", 1, "help(df.head)"),
        ("%%bash\nls", 1, "use Python"),
        ("%cd data", 1, "os.chdir"),
        ("%unknown_magic", 1, "delete the line"),
        ("x = 1\ny\u00a0= 2\nz = '\u00a0'\nif x:\n\u00a0   y\n", 2, "replace it with a normal space (also in line 5)"),
        ("x =\u202f1", 1, "replace it with a normal space"),
        ("x =\u30001", 1, "replace it with a normal space"),
        ("x\u200b = 1", 1, "delete it"),
        ("x\u2060 = 1", 1, "delete it"),
        ("print(\u201ca\u201d)", 1, 'replace it with "'),
        ("print(\u2018a\u2019)", 1, "replace it with '"),
        ("x = 2 \u2013 1", 1, "replace it with -"),
        ("x = 2 \u2212 1", 1, "replace it with -"),
        ("x = \uff08" + "1)", 1, "replace it with ("),
        (">>> x = 1\n>>> x", 1, "prompts"),
        ("x = 1\\nprint(x)", 1, "send real line breaks"),
        ("```bash\nls\n```", 1, "the Markdown fence names bash"),
    ],
)
def test_what_can_not_run_gets_an_error_that_says_what_to_write(code: str, line: int, words: str) -> None:
    number, message = explain(code)
    assert number == line
    assert words in message


@pytest.mark.parametrize(
    ("code", "version", "words"),
    [
        ("try:\n    x\nexcept A, B:\n    y", (3, 13), "write `except (A, B):`"),
        ("x = t'{y}'", (3, 13), "a t-string came with Python 3.14: write an f-string"),
        pytest.param(
            'f"{d["k"]}"',
            OLD,
            "Python 3.11 runs here",
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python accepts it"),
        ),
        pytest.param(
            "type X = int",
            OLD,
            "write `X = ...`",
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python accepts it"),
        ),
        pytest.param(
            "def f[T](x: T) -> T:\n    return x",
            OLD,
            "typing.TypeVar",
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python accepts it"),
        ),
    ],
)
def test_syntax_of_a_newer_python_is_named_with_what_to_write(code: str, version: tuple[int, int], words: str) -> None:
    assert words in explain(code, version)[1]


def test_a_plain_mistake_keeps_pythons_own_message() -> None:
    assert explain("x = (1") == (1, "'(' was never closed")
    assert explain("if x\n    y") == (1, "expected ':'")


STATEMENTS = st.sampled_from(
    [
        "x = 1",
        "def f(a):\n    return a\n",
        "class A:\n    '''Text.\n\n  ```python\n  more\n  ```\n    '''\n    b = 2",
        "text = '''\n%time\n!ls\n    ?x\n'''",
        "time = rows = [\n  9\n%time\n]",
        "y = (a\n%b)",
        "if x:\n    # \u201cquoted\u201d \u00a0\n    y = f'{x!r:>{10}}'\nelse:\n    pass",
        "z = 'it\\'s' \\\n    'one'",
        "async def g():\n    await h()",
        "'''\u00a0\ufeff'''",
        "~x",
        "# comment",
    ]
)
PROGRAMS = st.lists(STATEMENTS, min_size=1, max_size=6).map("\n".join)


@given(code=PROGRAMS, prose=st.booleans(), marks=st.sampled_from(["```", "~~~~"]), width=st.integers(0, 5))
def test_valid_python_survives_a_fence_and_an_indentation(code: str, *, prose: bool, marks: str, width: int) -> None:
    starts = scan(code).starts
    lines = code.split("\n")
    indented = [
        line if start == "string" or not line.strip() else " " * width + line
        for line, start in zip(lines, starts, strict=True)
    ]
    before, after = ("It's this:\n\n", "\nThat's all.") if prose else ("", "")
    sent = f"{before}{marks}python\n" + "\n".join(indented) + f"\n{marks}{after}"
    repaired = repair_code(sent)
    assert dump(repaired.tree) == dump(parse(code))
    assert repaired.code.count("\n") == sent.count("\n")


@given(code=PROGRAMS)
def test_valid_python_has_nothing_to_repair(code: str) -> None:
    error = SyntaxError("a mistake")
    with pytest.raises(SyntaxError) as caught:
        repair(code, error, parse=parse)
    assert caught.value is error


@pytest.mark.parametrize("file", SOURCES[::7], ids=lambda file: file.name)
def test_no_line_of_real_code_is_an_idiom_or_a_fence(file: Path) -> None:
    code, error = file.read_text(), SyntaxError("a mistake")
    with pytest.raises(SyntaxError) as caught:
        repair(code, error, parse=parse)
    assert caught.value is error


@given(text=st.text(alphabet="`~%!?\"'#\\ \n()ax=\u00a0\ufeff", max_size=200))
def test_any_text_is_repaired_or_refused_with_its_line_numbers(text: str) -> None:
    try:
        parse(text)
    except SyntaxError as error:
        try:
            repaired = repair(text, error, parse=parse)
        except SyntaxError as refused:
            assert 0 <= (refused.lineno or 0) <= text.count("\n") + 2  # noqa: PT017 - most texts can't be repaired
        else:
            assert repaired.code.count("\n") == text.count("\n")
