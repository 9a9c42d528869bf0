"""What is copied for the documentation site."""

from pathlib import Path

from hack.site.navigation import Entry
from hack.site.sources import Sources
from tests.component.site.conftest import ROOT


def test_pages_that_are_made_are_copied_with_the_others(tmp_path: Path) -> None:
    made = {"docs/reference/a.md": "# A\n\n[Index](../README.md), [code](../../hack/site/sources.py)\n"}
    entries = [Entry("A", "docs/reference/a.md", "the first")]
    Sources(root=ROOT, folder=tmp_path, entries=entries, made=made).copy()
    text = (
        '---\ndescription: "A: the first"\n---\n# A\n\n[Index](../README.md), [code](../../hack/site/sources.py.md)\n'
    )
    assert (tmp_path / "docs/reference/a.md").read_text() == text
    assert (tmp_path / "docs/README.md").is_file()
    assert (tmp_path / "hack/site/sources.py.md").is_file()
