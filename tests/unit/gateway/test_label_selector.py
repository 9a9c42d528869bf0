"""Label selectors mean what they mean to kubectl."""

import pytest

from mcp_exec_gateway.core.executions.lists import parse_label_selector

LABELS = {"team": "x", "empty": "", "mcp-exec.dev/use-case": "polling"}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        (" ", True),
        ("team=x", True),
        ("team==x", True),
        ("team = x", True),
        ("team=y", False),
        ("team!=y", True),
        ("team!=x", False),
        ("absent!=x", True),
        ("absent=", False),
        ("empty=", True),
        ("empty", True),
        ("team", True),
        ("absent", False),
        ("!absent", True),
        ("! team", False),
        ("team in (x, y)", True),
        ("team in(y)", False),
        ("team notin (y,z)", True),
        ("team notin (x)", False),
        ("absent notin (x)", True),
        ("mcp-exec.dev/use-case=polling,team in (x,y),!absent", True),
        ("mcp-exec.dev/use-case=polling,team=y", False),
    ],
)
def test_a_selector_selects_as_kubectl_does(text: str, holds: bool) -> None:
    assert parse_label_selector(text).matches(LABELS) is holds


@pytest.mark.parametrize(
    "text",
    [
        "a=b=c",
        "a=b,",
        ",a",
        "a,,b",
        "a b",
        "-a",
        "a in x",
        "a in (x",
        "a in (x))",
        "a>1",
        "a in ((x))",
        "a=é",
        "a=-x",
        "!a=b",
        "A/b=c",
        "(a)",
        "a\n=b c",
    ],
)
def test_what_is_no_selector_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match="use KEY=VALUE"):
        parse_label_selector(text)


def test_a_selector_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 32"):
        parse_label_selector(",".join(f"k{number}" for number in range(33)))
    for text in ("(" * 2048, "a" * 2048 + "!", " in " * 512, "a in (" + "," * 2000, "a." * 1000 + "/", "a-" * 1000):
        with pytest.raises(ValueError, match="use KEY=VALUE"):
            parse_label_selector(text)
