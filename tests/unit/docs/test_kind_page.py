"""docs/start/kind.md: what it says of the scripts is in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/start/kind.md").read_text()
SCRIPTS = "\n".join(
    path.read_text()
    for folder in ("hack", "hack/providers", "hack/kind")
    for path in (ROOT / folder).glob("*")
    if path.is_file()
)
MESSAGES = [
    message
    for line in PAGE.partition("\n## If it does not start\n")[2].splitlines()
    if line.startswith("| `")
    for message in re.findall(r"`([^`]+)`", line.split("|")[1])
]


def test_the_page_has_messages() -> None:
    assert len(MESSAGES) > 5


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_the_page_is_one_of_the_scripts(message: str) -> None:
    # The page shows an example where a script has a variable.
    words = [re.escape(word) if word not in ("N", "mcp-exec", "kind") else r"\S+" for word in message.split()]
    assert re.search(" ".join(words), SCRIPTS), f"no script says: {message}"


def test_the_targets_and_variables_of_the_page_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^    )make ([a-z0-9]+)", PAGE, re.MULTILINE)) <= targets
    variables = set(re.findall(r"`([A-Z][A-Z_]+)(?:=[A-Z]+)?`", PAGE)) - {"NO_PROXY", "HTTP_PROXY", "HTTPS_PROXY"}
    assert {name for name in variables if name not in SCRIPTS} == set()
