"""The documentation site, built strictly by `hack/docs`: a broken link or anchor ends the build."""

import functools
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hack.reference.__main__ import build_site_pages
from hack.site.navigation import list_entries, read_navigation
from hack.site.versions import FOUND_AT_THE_ROOT
from tests.component.site.conftest import ADDRESS, REPOSITORY, ROOT

from mcp_exec_api.wire.version import RELEASE

CACHE = Path(os.environ.get("MCP_EXEC_CACHE", Path.home() / ".cache/mcp-exec"))
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
"""Elements that make a browser load something, and the attribute that names it."""
NAMED = ("alternate", "canonical", "describedby", "next", "prev")
"""What a page names without loading it."""


class Page(HTMLParser):
    """What a page links to and loads, the places that links may name, and what its head says of it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.places: set[str] = set()
        self.description = ""
        self.twin = ""
        """Address of the page as Markdown."""
        self.texts: list[str] = []
        """Texts of links."""
        self._in_link = False
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places |= {name for name in (found.get("id"), found.get("name")) if name}
        if tag == "a" and (link := found.get("href")):
            self.links.add(link)
            self.texts.append("")
        self._in_link = tag == "a" or self._in_link
        if tag == "meta" and found.get("name") == "description":
            self.description = found.get("content") or ""
        if tag == "link" and found.get("type") == "text/markdown":
            self.twin = found.get("href") or ""
        if (link := found.get(LOADED.get(tag, ""))) and found.get("rel") not in NAMED:
            self.loaded.add(link)

    def handle_endtag(self, tag: str) -> None:
        self._in_link = self._in_link and tag != "a"

    def handle_data(self, data: str) -> None:
        if self._in_link and self.texts:
            self.texts[-1] += data


@functools.cache
def read(pages: Path) -> dict[Path, Page]:
    found = {path.resolve(): Page(path) for path in pages.rglob("*.html") if path.name != "404.html"}
    assert len(found) > 60
    return found


def test_every_page_of_the_navigation_is_rendered(pages: Path) -> None:
    for entry in list_entries(read_navigation(ROOT, build_site_pages())):
        name = re.sub(r"README\.html$", "index.html", entry.path.removesuffix(".md") + ".html")
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


def test_the_page_for_missing_addresses_works_at_each_depth(site: Path, pages: Path) -> None:
    page = Page(pages / "404.html")
    own = {link for link in page.links | page.loaded if not urlsplit(link).scheme and not link.startswith("#")}
    root = urlsplit(ADDRESS).path
    assert {link for link in own if not link.startswith(f"{root}/{RELEASE}/")} == set()
    files = {site / unquote(urlsplit(link).path).removeprefix(f"{root}/") for link in own}
    assert {str(file) for file in files if not file.is_file()} == set()
    assert f"{root}/{RELEASE}/index.html" in own


def test_hosts_and_models_find_at_the_root_what_they_look_for_there(site: Path, pages: Path) -> None:
    assert FOUND_AT_THE_ROOT == ("404.html", "llms.txt", "sitemap.xml")
    for name in FOUND_AT_THE_ROOT:
        assert (site / name).read_text() == (pages / name).read_text(), name


def test_each_page_has_a_description_of_its_own(pages: Path) -> None:
    described = {path: page.description for path, page in read(pages).items()}
    assert [str(path) for path, text in described.items() if not 10 < len(text) <= 250] == []
    texts = list(described.values())
    assert sorted({text for text in texts if texts.count(text) > 1}) == []


def test_the_sitemap_has_each_page_at_its_published_address(pages: Path) -> None:
    listed = re.findall(r"<loc>([^<]+)</loc>", (pages / "sitemap.xml").read_text())
    found = {f"{ADDRESS}/{RELEASE}/{path.relative_to(pages.resolve())}" for path in read(pages)}
    assert {link.replace("/index.html", "/").rstrip("/") for link in listed} == {
        link.replace("/index.html", "/").rstrip("/") for link in found
    }


def test_each_page_has_a_twin_in_markdown_which_llms_txt_lists(pages: Path) -> None:
    base = f"{ADDRESS}/{RELEASE}/"
    listed = re.findall(r"\]\(<?([^)>]+)>?\)", (pages / "llms.txt").read_text())
    assert all(link.startswith(base) and (pages / link.removeprefix(base)).is_file() for link in listed)
    assert len(listed) == len(set(listed))
    twins = {
        str((path.parent / page.twin).resolve().relative_to(pages.resolve())) for path, page in read(pages).items()
    }
    assert twins == {link.removeprefix(base) for link in listed}
    pool = (pages / "docs/platform/pools.md").read_text()
    assert pool.startswith("# Pools\n")
    assert "```yaml\n" in pool


def test_no_link_has_the_name_of_a_markdown_file_as_its_text(pages: Path) -> None:
    named = {
        text for page in read(pages).values() for text in page.texts if re.fullmatch(r"[\w./-]+\.md", text.strip())
    }
    assert named == set()


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
    shutil.copytree(ROOT / "hack/site/theme", tmp_path / "theme")
    program = CACHE / "docs/bin/zensical"
    done = subprocess.run([program, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "1 issue found" in done.stdout + done.stderr
