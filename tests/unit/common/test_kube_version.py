"""Versions of Kubernetes, and what says which are supported."""

from pathlib import Path

import pytest
import yaml

from mcp_exec_common.kube.version import (
    MISSING,
    NEWEST_SUPPORTED,
    OLDEST_ACCEPTED,
    OLDEST_SUPPORTED,
    KubernetesVersion,
    describe_support,
)

ROOT = Path(__file__).parents[3]
RANGE = f"{OLDEST_SUPPORTED} to {NEWEST_SUPPORTED}"
PAGE = (ROOT / "docs" / "platform" / "versions.md").read_text().partition("\n## Kubernetes\n")[2].partition("\n## ")[0]


def test_every_supported_version_is_described_by_nothing() -> None:
    versions = [KubernetesVersion(1, minor) for minor in range(OLDEST_SUPPORTED.minor, NEWEST_SUPPORTED.minor + 1)]
    assert versions
    assert [describe_support(version) for version in versions] == [""] * len(versions)


@pytest.mark.parametrize(("minor", "count"), [(29, 1), (25, 1), (24, 2), (22, 3), (9, 3)])
def test_an_older_version_is_described_with_all_that_it_lacks(minor: int, count: int) -> None:
    text = describe_support(KubernetesVersion(1, minor))
    assert text.startswith(f"Kubernetes 1.{minor} is older than {OLDEST_SUPPORTED}, the oldest version")
    assert [what for what in MISSING.values() if what in text] == list(MISSING.values())[:count]


def test_a_newer_version_is_described_as_newer() -> None:
    text = describe_support(NEWEST_SUPPORTED._replace(minor=NEWEST_SUPPORTED.minor + 1))
    assert text.endswith(f"is newer than {NEWEST_SUPPORTED}, the newest version that this release supports")


def test_the_page_has_the_versions_and_what_older_ones_lack() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")
    ]
    first = {row[0]: row[1] for row in rows if len(row) == 2}
    older = f"{OLDEST_ACCEPTED} to {OLDEST_SUPPORTED._replace(minor=OLDEST_SUPPORTED.minor - 1)}"
    assert {RANGE, older, f"before {OLDEST_ACCEPTED}"} <= first.keys()
    assert {str(version): what for version, what in MISSING.items()}.items() <= first.items()


@pytest.mark.parametrize("path", ["README.md", "charts/mcp-exec/README.md"])
def test_a_page_for_installers_has_the_range(path: str) -> None:
    assert f"supports Kubernetes {RANGE}" in " ".join((ROOT / path).read_text().split())


def test_helm_refuses_what_is_older_than_the_accepted_versions() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "mcp-exec" / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={OLDEST_ACCEPTED}.0-0"
