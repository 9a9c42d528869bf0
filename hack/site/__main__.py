"""Build the documentation site: one version of it, next to those that the folder has already.

python -m hack.site --zensical PROGRAM --mermaid FOLDER [--folder FOLDER]

PROJECT_URL of hack/places.env, or of the environment, is the address that pages link to for their source. SITE_URL is
where the site is published: its sitemap, llms.txt and page for missing addresses name it.

The build is strict: a link to a page or a heading that does not exist ends it. It uses no network, and neither do the
pages: fonts are those of the reader, and scripts are part of the site.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from hack.artifacts.places import read_places
from hack.reference.__main__ import build_site_pages
from hack.site.navigation import Entry, Section, list_entries, list_groups, read_navigation
from hack.site.sources import HOME, MERMAID, SCRIPT, Sources
from hack.site.versions import Versions

from mcp_exec_api.wire.version import RELEASE

ROOT: Final = Path(__file__).parents[2]
STYLE: Final = "extra.css"
THEME: Final = "theme"
LOCAL: Final = "http://localhost:8000"
"""Where `python3 -m http.server --directory build/site` serves a site that is published nowhere."""
_TABLE: Final = "[project]\n"
_LIMIT_SECONDS: Final = 300


def build_settings(
    text: str, sections: list[Section], *, repository: str, address: str, version: str, others: list[str]
) -> str:
    """Return the settings with the navigation, the site's address, and links to the repository if its address is known.

    `others` are pages outside of the navigation, which llms.txt lists last.
    """
    settings = tomllib.loads(text)["project"]
    home = Entry("Home", HOME, settings["site_description"])
    nav = [{home.title: home.path}, *(_build_nav(section) for section in sections)]
    lines = [f"nav = {_format_value(nav)}", f"site_url = {_format_value(f'{address}/{version}/')}"]
    if repository:
        lines += [f"repo_url = {_format_value(repository)}", 'edit_uri = "edit/main/"']
    head, _, rest = text.partition(_TABLE)
    (first, pages), *groups = list_groups(sections)
    listed = {
        title: [{entry.path: entry.description} for entry in entries]
        for title, entries in ((first, (home, *pages)), *groups)
    }
    plugin = f"[project.plugins.llmstxt]\nsections = {_format_value(listed | {'Optional': others})}\n"
    return head + _TABLE + "\n".join(lines) + "\n" + rest + plugin


def _build_nav(section: Section) -> dict[str, object]:
    pages = [{entry.title: entry.path} for entry in section.pages]
    return {section.title: [*pages, *map(_build_nav, section.groups)]}


def _format_value(value: object) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {_format_value(each)}" for key, each in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_format_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def main() -> None:
    """Build the site, and print its folder."""
    parser = argparse.ArgumentParser(prog="hack.site", description="Builds the documentation site.")
    parser.add_argument("--zensical", required=True, help="the program that renders pages")
    parser.add_argument("--mermaid", required=True, type=Path, help="folder of the npm package @mermaid-js/tiny")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/site", help="folder of the site with all versions")
    arguments = parser.parse_args()
    site = arguments.folder.absolute()
    work = ROOT / "build/site-sources"
    for old in (work, site / RELEASE):
        shutil.rmtree(old, ignore_errors=True)
    pages = work / "pages"
    made = build_site_pages()
    sections = read_navigation(ROOT, made)
    others = Sources(root=ROOT, folder=pages, entries=list_entries(sections), made=made).copy()
    (pages / MERMAID).mkdir(parents=True)
    for name in (f"dist/{SCRIPT}", "LICENSE"):
        shutil.copy(arguments.mermaid / name, pages / MERMAID)
    shutil.copy(Path(__file__).parent / STYLE, pages / "assets")
    shutil.copytree(Path(__file__).parent / THEME, work / THEME)
    places = read_places()
    if not places.site:
        print(f"SITE_URL is not set: the sitemap, llms.txt and 404.html name {LOCAL}.", file=sys.stderr)
    settings = build_settings(
        (Path(__file__).parent / "zensical.toml").read_text(),
        sections,
        repository=places.source.rstrip("/"),
        address=places.site or LOCAL,
        version=RELEASE,
        others=others,
    )
    (work / "zensical.toml").write_text(settings)
    done = subprocess.run([arguments.zensical, "build", "--strict", "--clean"], cwd=work, timeout=_LIMIT_SECONDS)
    if done.returncode:
        sys.exit(f"the site has errors; the lines above name pages below {pages}")
    site.mkdir(parents=True, exist_ok=True)
    shutil.move(work / "site", site / RELEASE)
    Versions(site).add(RELEASE)
    print(site)


if __name__ == "__main__":
    main()
