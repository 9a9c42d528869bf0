"""The documentation site: its navigation, its pages and its versions, before a generator renders them."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hack.reference.__main__ import build_site_pages
from hack.site.__main__ import build_settings
from hack.site.navigation import Entry, Section, describe, list_entries, read_navigation
from hack.site.sources import name_pages, outside_fences, show_file, unhide
from hack.site.versions import FOUND_AT_THE_ROOT, Versions

ROOT = Path(__file__).parents[3]
MADE = build_site_pages()
SETTINGS = (ROOT / "hack/site/zensical.toml").read_text()


def test_the_navigation_has_every_page_of_the_documentation_once() -> None:
    paths = [entry.path for entry in list_entries(read_navigation(ROOT, MADE))]
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert pages - set(paths) == set(), "docs/README.md lists the pages"
    assert len(paths) == len(set(paths))
    assert {path for path in paths if not (ROOT / path).is_file()} == MADE.keys()


def test_each_page_of_the_navigation_has_a_title_and_a_description_of_its_own() -> None:
    entries = list_entries(read_navigation(ROOT, MADE))
    assert [entry.path for entry in entries if not entry.description] == [], "docs/README.md says what each page has"
    for attribute in ("title", "description"):
        found = [getattr(entry, attribute) for entry in entries]
        assert sorted({name for name in found if found.count(name) > 1}) == [], attribute


def test_pages_for_platform_teams_are_grouped_by_what_the_team_does() -> None:
    (section,) = [section for section in read_navigation(ROOT, MADE) if section.title == "Platform teams"]
    assert [group.title for group in section.groups] == ["Install", "Tenants", "Operate", "Secure", "Release"]
    assert all(2 < len(group.pages) < 12 for group in section.groups)
    assert section.pages == ()


SECTIONS = [
    Section("Start", (Entry('A "page"', "docs/a.md", "the first"), Entry("Another", "docs/b.md", "the second"))),
    Section("Teams", (), (Section("Install", (Entry("Deep", "docs/c.md", "the third"),)),)),
]


def test_the_settings_have_the_navigation_and_no_address_of_a_repository_unless_it_is_given() -> None:
    project = read_settings()
    assert project["nav"] == [
        {"Home": "README.md"},
        {"Start": [{'A "page"': "docs/a.md"}, {"Another": "docs/b.md"}]},
        {"Teams": [{"Install": [{"Deep": "docs/c.md"}]}]},
    ]
    assert "repo_url" not in project
    known = read_settings(repository="https://git.example.com/mcp-exec")
    assert known["repo_url"] == "https://git.example.com/mcp-exec"
    assert known["theme"] == project["theme"]


def test_the_settings_list_all_pages_for_readers_of_plain_text_those_outside_of_the_navigation_last() -> None:
    project = read_settings(address="https://docs.example.com/x", others=["examples/a.py.md"])
    assert project["site_url"] == "https://docs.example.com/x/0.2.0/"
    sections = project["plugins"]["llmstxt"]["sections"]
    assert list(sections) == ["Start", "Teams: install", "Optional"]
    assert sections["Start"] == [
        {"README.md": project["site_description"]}, {"docs/a.md": "the first"}, {"docs/b.md": "the second"},
    ]  # fmt: skip
    assert sections["Optional"] == ["examples/a.py.md"]


def read_settings(
    *, repository: str = "", address: str = "http://localhost:8000", others: list[str] | None = None
) -> dict[str, Any]:
    text = build_settings(
        SETTINGS, SECTIONS, repository=repository, address=address, version="0.2.0", others=others or []
    )
    project: dict[str, Any] = tomllib.loads(text)["project"]
    return project


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[pools.md](../platform/pools.md)", "[Pools](../platform/pools.md)"),
        ("[pools.md](../platform/pools.md#health)", "[Pools](../platform/pools.md#health)"),
        ("[`pools.md`](../platform/pools.md)", "[Pools](../platform/pools.md)"),
        ("[docs/platform/pools.md](../platform/pools.md)", "[Pools](../platform/pools.md)"),
        ("[warm pods](../platform/pools.md)", "[warm pods](../platform/pools.md)"),
        ("[unknown.md](unknown.md)", "[unknown.md](unknown.md)"),
    ],
)
def test_a_link_whose_text_is_the_name_of_a_file_gets_the_title_of_its_page(link: str, shown: str) -> None:
    titles = {"docs/platform/pools.md": "Pools"}
    assert name_pages("docs/kubectl/a.md", link, titles.get) == shown


@pytest.mark.parametrize(
    ("page", "described"),
    [
        ("# A\n\nIt keeps `pods`\nwarm ([pools](p.md)).\n\nMore.\n", "It keeps pods warm (pools)."),
        ("<!-- Generated -->\n# A\n\n| a | b |\n|---|---|\n\nText.\n", "Text."),
        ("# A\n\n" + "One sentence. " * 30, ("One sentence. " * 14).strip()),
        ("# A\n\n" + "word " * 100, ("word " * 39).strip() + " …"),
        ("# Only a heading\n", "Only a heading"),
    ],
)
def test_a_page_outside_of_the_navigation_is_described_by_its_first_sentences(page: str, described: str) -> None:
    assert describe(page) == described


def test_links_change_only_outside_of_blocks_of_code() -> None:
    text = "[a](x)\n```python\n[a](x)\n```\n[a](x)\n"
    assert outside_fences(text, lambda part: part.replace("x", "y")) == "[a](y)\n```python\n[a](x)\n```\n[a](y)\n"


def test_the_page_of_a_file_shows_it_whole_even_if_it_has_fences() -> None:
    page = show_file("examples/a.py", 'TEXT = """\n```\n````\n"""\n')
    head, _, body = page.removeprefix("---\n").partition("---\n")
    described = "The file examples/a.py of the repository"
    assert yaml.safe_load(head) == {"description": described, "search": {"exclude": True}}
    assert body.startswith("# examples/a.py\n")
    assert '```````python\nTEXT = """\n```\n````\n"""\n```````\n' in page
    assert len(show_file("lock.txt", "a" * 1_000_000)) < 300_000


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("../../.github/workflows/kind.yml.md", "../../github/workflows/kind.yml.md"),
        (".ci/run.md", "ci/run.md"),
        ("../a.b/c.py.md", "../a.b/c.py.md"),
    ],
)
def test_files_that_a_dot_hides_have_a_page(path: str, shown: str) -> None:
    assert unhide(path) == shown


def test_versions_are_listed_newest_first_and_the_root_leads_to_the_newest_release(tmp_path: Path) -> None:
    versions = Versions(tmp_path)
    for version in ("0.2.0", "0.10.0", "0.11.0-rc.1", "0.2.0"):
        (tmp_path / version).mkdir(exist_ok=True)
        for name in FOUND_AT_THE_ROOT:
            (tmp_path / version / name).write_text(version)
        versions.add(version)
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [(entry["version"], entry["aliases"]) for entry in listed] == [
        ("0.11.0-rc.1", []),
        ("0.10.0", ["latest"]),
        ("0.2.0", []),
    ]
    assert 'url=0.10.0/index.html"' in (tmp_path / "index.html").read_text()
    assert {(tmp_path / name).read_text() for name in FOUND_AT_THE_ROOT} == {"0.10.0"}
    shutil.rmtree(tmp_path / "0.10.0")
    versions.add("0.2.0")
    assert [entry["version"] for entry in json.loads((tmp_path / "versions.json").read_text())] == [
        "0.11.0-rc.1",
        "0.2.0",
    ]
    assert 'url=0.2.0/index.html"' in (tmp_path / "index.html").read_text()


def test_the_workflow_adds_a_version_to_the_folder_that_make_docs_fills() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/docs.yml").read_text())["jobs"].values()
    before, build, after = [step["run"] for step in job["steps"] if "run" in step]
    assert build == "make docs"
    assert "git worktree add build/site site" in before
    assert "cd build/site" in after
    assert 'ROOT / "build/site"' in (ROOT / "hack/site/__main__.py").read_text()
    used = [step["uses"] for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in used)
