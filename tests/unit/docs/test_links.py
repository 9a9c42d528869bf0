"""Links between the pages of the documentation, those that only the site has included."""

import re
from pathlib import Path

import pytest
from hack.reference.__main__ import build_site_pages

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "charts/mcp-exec/README.md",
    ROOT / "servers/README.md",
]
SITE_PAGES = {ROOT / path: text for path, text in build_site_pages().items()}


def read(page: Path) -> str:
    return SITE_PAGES.get(page) or page.read_text()


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *SITE_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for path, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", read(page)):
        if path.startswith(("http:", "https:")):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists() or (page in SITE_PAGES and target in SITE_PAGES), f"{path} does not exist"
        assert not anchor or anchor in anchors(target), f"{path or page.name} has no heading #{anchor}"


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()
