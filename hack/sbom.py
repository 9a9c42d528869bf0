"""List all packages of an image as a CycloneDX document: python3 sbom.py OUTPUT. It runs in the image, at its build.

It reads what package managers have recorded: Debian's database, the control files of packages that were unpacked apart,
the metadata of Python packages, and npm's record of its folder, or a lock file. Standard library only.
"""

import json
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

DEBIAN = (Path("/var/lib/dpkg/status"), Path("/usr/share/mcp-exec/debian-control"))
PYTHON = (Path("/opt/mcp-exec"), Path("/opt/mcp-exec/lib"), Path("/opt/packages"))
NPM = (
    Path("/opt/mcp-exec/npm/node_modules/.package-lock.json"),
    Path("/opt/mcp-exec/typescript_runner/vendor/package-lock.json"),
)


def list_debian(text: str) -> Iterator[tuple[str, str, str]]:
    """Return type, name and version of the installed packages in a Debian database."""
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if "Package" in fields and fields.get("Status", "install ok installed").endswith(" installed"):
            yield "deb", fields["Package"], fields["Version"]


def list_python(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Return type, name and version of the Python packages in a folder."""
    for each in distributions(path=[str(folder)]):
        yield "pypi", each.metadata["Name"].lower().replace("_", "-"), each.version


def list_npm(text: str) -> Iterator[tuple[str, str, str]]:
    """Return type, name and version of the npm packages in npm's record."""
    for path, each in json.loads(text)["packages"].items():
        if path and "version" in each:
            yield "npm", path.rpartition("node_modules/")[2], each["version"]


def list_packages() -> list[tuple[str, str, str]]:
    """Return type, name and version of every package of this image, sorted."""
    found = {("generic", "python", platform.python_version())}
    for path in DEBIAN:
        if path.exists():
            found |= set(list_debian(path.read_text()))
    for folder in PYTHON:
        found |= set(list_python(folder))
    for path in NPM:
        if path.exists():
            found |= set(list_npm(path.read_text()))
    return sorted(found)


def build_document(packages: list[tuple[str, str, str]]) -> dict[str, object]:
    """Return the CycloneDX document. It has no time and no serial number, so equal images have equal documents."""
    prefixes = {"deb": "deb/debian/"}
    components = [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:{prefixes.get(kind, kind + '/')}{name.replace('@', '%40')}@{version.replace('+', '%2B')}",
        }
        for kind, name, version in packages
    ]
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}


def main() -> None:
    """Write the document."""
    output = Path(sys.argv[1])
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(build_document(list_packages()), indent=1) + "\n")


if __name__ == "__main__":
    main()
