"""README.md, as somebody reads it who looks for something to install."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "README.md").read_text()


def test_an_installation_comes_before_the_clusters_of_the_checkout() -> None:
    headings = re.findall(r"(?m)^## (.+)$", PAGE)
    assert headings[:2] == ["Install it on your cluster", "Try it"]
    assert PAGE.index("helm install mcp-exec") < PAGE.index("make demo")


def test_the_first_screen_says_what_state_the_project_is_in_and_what_it_lacks() -> None:
    first = PAGE.partition("\n## ")[0]
    assert "**Status:**" in first
    assert "](docs/not-here.md)" in first
    assert ("nothing is published" in first) == (not re.search(r"(?m)^## \[?\d", (ROOT / "CHANGELOG.md").read_text()))


def test_the_comparison_dates_its_claims_and_links_each_system() -> None:
    page = (ROOT / "docs/comparison.md").read_text()
    head = page.partition("\n## ")[0]
    assert re.search(r"As of \d{4}-\d\d-\d\d", head)
    for name in ("agent-sandbox", "Agent Substrate", "OpenSandbox", "ToolHive", "E2B"):
        assert f"| {name} |" in head, name
        assert f"**{name}**" in page, name
        part = page.partition(f"**{name}**")[2].partition("\n**")[0].partition("\n## ")[0]
        assert "](https://" in part, f"the claims about {name} have no source"
