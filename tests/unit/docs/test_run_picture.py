"""docs/run.svg, the picture on the first screen of README.md: its code is the demo's, and it needs no other file."""

import re
import xml.etree.ElementTree as ET

from tests.support.pages import DOCS

ROOT = DOCS.parent
PICTURE = (DOCS / "run.svg").read_text()
TEXTS = ["".join(element.itertext()) for element in ET.fromstring(PICTURE).iter("{http://www.w3.org/2000/svg}text")]


def test_the_code_of_the_picture_is_what_the_demo_runs() -> None:
    demo = (ROOT / "hack/demo").read_text().replace("\\$", "$")
    code = [line.strip() for line in re.findall(r"(?m)^    (.*)$", demo.partition('tools: ["expenses.*"]')[2])][:4]
    assert len(code) == 4
    assert all(line in TEXTS for line in code), code


def test_the_picture_loads_nothing_and_has_colours_for_a_dark_page() -> None:
    assert "href" not in PICTURE
    assert "@media (prefers-color-scheme: dark)" in PICTURE
    classes = set(re.findall(r"\.(\w+)[ ,]", PICTURE.partition("@media")[2]))
    assert set(re.findall(r'class="(\w+)"', PICTURE)) - {"head", "label"} <= classes


def test_the_readme_shows_the_picture_before_its_first_heading() -> None:
    assert "](docs/run.svg)" in (ROOT / "README.md").read_text().partition("\n## ")[0]
