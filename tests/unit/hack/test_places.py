"""Where releases are published has one declaration."""

import re
from pathlib import Path

import pytest
from hack.artifacts.places import read_places

ROOT = Path(__file__).parents[3]
PLACES = (ROOT / "hack/places.env").read_text()
NAMES = re.findall(r"(?m)^([A-Z_]+)=", PLACES)


def test_each_place_is_empty_or_an_address_of_its_form() -> None:
    for name, value in re.findall(r"(?m)^([A-Z_]+)=(.*)$", PLACES):
        form = r"[a-z0-9][a-z0-9._:/-]*[a-z0-9]" if name == "RELEASE_REGISTRY" else r"https://\S+"
        assert re.fullmatch(rf"({form})?", value), name


def test_the_environment_and_then_what_is_given_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELEASE_REGISTRY", "registry.example/a")
    monkeypatch.setenv("RELEASE_DOWNLOADS", "https://downloads.example/a/")
    assert read_places().images == "registry.example/a"
    assert read_places().downloads == "https://downloads.example/a"
    assert read_places("registry.example/b").images == "registry.example/b"


@pytest.mark.parametrize("name", NAMES)
def test_each_place_is_read_somewhere(name: str) -> None:
    paths = [*(ROOT / "hack").rglob("*"), *(ROOT / ".github/workflows").iterdir()]
    readers = [
        path
        for path in paths
        if path.is_file() and path.suffix in (".py", ".yml", "") and name in path.read_text(errors="ignore")
    ]
    assert readers
