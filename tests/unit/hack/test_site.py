"""The documentation site: its navigation, its pages and its versions, before a generator renders them."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from hack.reference.__main__ import build_site_pages
from hack.site.__main__ import build_settings
from hack.site.navigation import Section, read_navigation
from hack.site.sources import outside_fences, show_file, unhide
from hack.site.versions import Versions

ROOT = Path(__file__).parents[3]
SETTINGS = (ROOT / "hack/site/zensical.toml").read_text()


def test_the_navigation_has_every_page_of_the_documentation_once() -> None:
    made = build_site_pages()
    paths = [path for section in read_navigation(ROOT, made) for _, path in section.pages]
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert pages - set(paths) == set(), "docs/README.md lists the pages"
    assert len(paths) == len(set(paths))
    assert {path for path in paths if not (ROOT / path).is_file()} == made.keys()


def test_the_settings_have_the_navigation_and_no_address_of_a_repository_unless_it_is_given() -> None:
    sections = [Section("Start", (('A "page"', "docs/a.md"), ("Another", "docs/b.md")))]
    project = tomllib.loads(build_settings(SETTINGS, sections, repository=""))["project"]
    assert project["nav"] == [
        {"Home": "README.md"},
        {"Start": [{'A "page"': "docs/a.md"}, {"Another": "docs/b.md"}]},
    ]
    assert "repo_url" not in project
    known = tomllib.loads(build_settings(SETTINGS, sections, repository="https://git.example.com/mcp-exec"))
    assert known["project"]["repo_url"] == "https://git.example.com/mcp-exec"
    assert known["project"]["theme"] == project["theme"]


def test_links_change_only_outside_of_blocks_of_code() -> None:
    text = "[a](x)\n```python\n[a](x)\n```\n[a](x)\n"
    assert outside_fences(text, lambda part: part.replace("x", "y")) == "[a](y)\n```python\n[a](x)\n```\n[a](y)\n"


def test_the_page_of_a_file_shows_it_whole_even_if_it_has_fences() -> None:
    page = show_file("examples/a.py", 'TEXT = """\n```\n````\n"""\n')
    assert page.startswith("---\nsearch:\n  exclude: true\n---\n# examples/a.py\n")
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
        versions.add(version)
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [(entry["version"], entry["aliases"]) for entry in listed] == [
        ("0.11.0-rc.1", []),
        ("0.10.0", ["latest"]),
        ("0.2.0", []),
    ]
    assert 'url=0.10.0/index.html"' in (tmp_path / "index.html").read_text()
    (tmp_path / "0.10.0").rmdir()
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
