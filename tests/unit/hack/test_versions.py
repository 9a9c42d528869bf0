"""The version of the release has one declaration, and everything else follows it."""

import re
from pathlib import Path

import pytest
import yaml
from hack.new_release import ReleaseError, find_notes, order

from mcp_exec_api.__main__ import build_files
from mcp_exec_api.wire.version import RELEASE

ROOT = Path(__file__).parents[3]
CHARTS = ("charts/mcp-exec/Chart.yaml", "charts/mcp-exec-cluster/Chart.yaml")
VALUES = ("charts/mcp-exec/values.yaml", "charts/mcp-exec-cluster/values.yaml")


def test_the_charts_and_their_images_have_the_version() -> None:
    for name in CHARTS:
        chart = yaml.safe_load((ROOT / name).read_text())
        assert (chart["version"], chart["appVersion"]) == (RELEASE, RELEASE)
    for name in VALUES:
        assert yaml.safe_load((ROOT / name).read_text())["defaultsOf"] == RELEASE


def test_no_other_file_declares_the_version() -> None:
    allowed = (
        "crds/mcp_exec_api/wire/version.py", *CHARTS, *VALUES, "docs/reference/openapi.json",
        # made of the values
        "charts/mcp-exec/README.md", "charts/mcp-exec/files/defaults.json",
    )  # fmt: skip
    generated = {ROOT / name for name in build_files()}  # the CRDs name their release
    others = [
        path
        for folder in ("broker", "charts", "client", "common", "crds", "docs", "gateway", "hack", "operator", "tools")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".yaml", ".tpl", ".json", ".sh", "") and path.is_file()
        if str(path.relative_to(ROOT)) not in allowed and path not in generated and "node_modules" not in path.parts
        if re.search(rf"(?<![\d.]){re.escape(RELEASE)}(?![\d.])", path.read_text(errors="ignore"))
    ]
    assert others == []


def test_versions_are_ordered_as_semver_says() -> None:
    versions = ["0.1.0", "0.2.0-alpha.1", "0.2.0-alpha.2", "0.2.0-beta.1", "0.2.0-rc.1", "0.2.0", "0.10.0", "1.0.0"]
    assert sorted(sorted(versions), key=order) == versions


def test_the_notes_of_a_version_are_its_part_of_the_changelog() -> None:
    text = "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n### Added\n\n- tasks\n\n## 0.1.1 (2026-11-01)\n\n- old\n"
    assert find_notes(text, "0.2.0") == "## 0.2.0 (2026-12-01)\n\n### Added\n\n- tasks\n"
    assert find_notes(text, "0.1.1") == "## 0.1.1 (2026-11-01)\n\n- old\n"
    with pytest.raises(ReleaseError, match=r"has no section of 0\.1"):
        find_notes(text, "0.1")
