"""The documentation site, built strictly by `hack/docs`: a broken link or anchor ends the build."""

import json
import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hack.reference.__main__ import build_site_pages
from hack.site.navigation import read_navigation
from tests.component.site.conftest import REPOSITORY, ROOT

from mcp_exec_api.wire.version import RELEASE

CACHE = Path(os.environ.get("MCP_EXEC_CACHE", Path.home() / ".cache/mcp-exec"))
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
"""Elements that make a browser load something, and the attribute that names it."""


class Page(HTMLParser):
    """What a page links to and loads, and the places that links may name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.places: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places |= {name for name in (found.get("id"), found.get("name")) if name}
        if tag == "a" and (link := found.get("href")):
            self.links.add(link)
        if (link := found.get(LOADED.get(tag, ""))) and found.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.add(link)


def read(pages: Path) -> dict[Path, Page]:
    found = {path.resolve(): Page(path) for path in pages.rglob("*.html") if path.name != "404.html"}
    assert len(found) > 60
    return found


def test_every_page_of_the_navigation_is_rendered(pages: Path) -> None:
    for section in read_navigation(ROOT, build_site_pages()):
        for _, path in section.pages:
            name = re.sub(r"README\.html$", "index.html", path.removesuffix(".md") + ".html")
            assert (pages / name).is_file(), name


def test_every_link_leads_to_a_file_and_a_place_of_the_site(pages: Path) -> None:
    rendered, broken = read(pages), []
    for path, page in rendered.items():
        for link in page.links | page.loaded:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = rendered.get(target)
            if not target.is_file() or (parts.fragment and known and unquote(parts.fragment) not in known.places):
                broken.append((str(path.relative_to(pages)), link))
    assert broken == []


def test_pages_load_nothing_from_elsewhere(pages: Path) -> None:
    loaded = {link for page in read(pages).values() for link in page.loaded}
    assert {link for link in loaded if urlsplit(link).netloc} == set()
    styles = [path.read_text() for path in pages.rglob("*.css")]
    assert [found for style in styles for found in re.findall(r"url\([\"']?https?:[^)]*", style)] == []


def test_a_page_links_to_its_source_in_the_repository_that_was_named(pages: Path) -> None:
    assert f"{REPOSITORY}/edit/main/docs/platform/pools.md" in Page(pages / "docs/platform/pools.html").links
    assert f"{REPOSITORY}/edit/main/charts/mcp-exec/README.md" in Page(pages / "charts/mcp-exec/index.html").links


def test_the_version_is_added_to_those_that_the_folder_has(site: Path) -> None:
    listed = json.loads((site / "versions.json").read_text())
    assert [entry["version"] for entry in listed] == [RELEASE, "0.0.1"]
    assert f"url={RELEASE}/index.html" in (site / "index.html").read_text()


def test_a_link_to_a_heading_that_does_not_exist_ends_the_build(site: Path, tmp_path: Path) -> None:
    assert site.is_dir()  # its build has installed the program
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/README.md").write_text("# Home\n\n[a](#home) [b](#missing)\n")
    settings = (ROOT / "hack/site/zensical.toml").read_text()
    (tmp_path / "zensical.toml").write_text(settings)
    program = CACHE / "docs/bin/zensical"
    done = subprocess.run([program, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "1 issue found" in done.stdout + done.stderr
