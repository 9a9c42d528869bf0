"""Licences of everything that images contain: only those that a company can ship without asking its lawyers."""

import json
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).parents[3]
LOCKS = ("operator", "gateway", "broker", "servers", "sandbox", "libraries", "data")
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BlueOak-1.0.0", "CC0-1.0", "CNRI-Python", "ISC", "MIT",
    "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib",
}  # fmt: skip
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
UNCHANGED = {"python-stdnum"}
"""Packages of a licence like the LGPL's, which are shipped as they are, in files that can be replaced."""
READ = {f"@modelcontextprotocol/server-{name}" for name in ("everything", "filesystem", "memory")}
"""Packages that only refer to a file, which grants MIT or Apache-2.0."""


def split(expression: str) -> set[str]:
    """Return the licences of an SPDX expression: of alternatives, one that is allowed."""
    found = set()
    for part in re.sub(r"[()]", " ", expression).split(" AND "):
        choices = [choice.strip() for choice in part.split(" OR ")]
        found.add(next((choice for choice in choices if choice in ALLOWED), choices[0]))
    return found


def find_licences(name: str) -> set[str]:
    """Return the licences of an installed Python package; none if it is not for this platform."""
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return set()
    if expression := found.get("License-Expression"):
        return split(expression)
    classifiers = [text.rpartition(" :: ")[2] for text in found.get_all("Classifier", []) if "License ::" in text]
    named = {CLASSIFIERS.get(text, text) for text in classifiers if text != "OSI Approved"}
    return named or split(found.get("License") or "unknown")


def list_python() -> Iterator[tuple[str, set[str]]]:
    for lock in LOCKS:
        for match in re.finditer(r"(?m)^([a-z0-9][a-z0-9._-]*)==", (ROOT / "locks" / f"{lock}.txt").read_text()):
            yield match[1], find_licences(match[1])


def list_npm() -> Iterator[tuple[str, set[str]]]:
    packages = json.loads((ROOT / "servers_image" / "package-lock.json").read_text())["packages"]
    for path, package in packages.items():
        if path:
            yield path.rpartition("node_modules/")[2], split(package.get("license", "unknown"))


def test_every_package_of_an_image_has_an_allowed_licence() -> None:
    others = {name: found - ALLOWED for name, found in [*list_python(), *list_npm()] if found - ALLOWED}
    assert others.keys() - READ - UNCHANGED == set(), others
    assert others.keys() >= UNCHANGED
