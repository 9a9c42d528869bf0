"""What the images contain, as they list it themselves."""

import json
import re
from typing import Any

import pytest

from tests.e2e.support import RELEASE, ROOT, SYSTEM, Cluster, Gateway

LIST = "/usr/share/mcp-exec/sbom.cdx.json"


def locked(name: str) -> set[str]:
    """The packages of a lock file without those of other platforms."""
    text = (ROOT / "locks" / f"{name}.txt").read_text()
    found = re.findall(r"^([\w.-]+)==([^\s;]+)(?= \\| ; sys_platform == 'linux')", text, re.MULTILINE)
    return {f"pkg:pypi/{package.lower().replace('_', '-')}@{version}" for package, version in found}


def urls(document: dict[str, Any]) -> set[str]:
    return {component["purl"] for component in document["components"]}


@pytest.mark.parametrize("component", ["operator", "gateway", "broker"])
def test_an_image_lists_the_packages_of_its_lock_file_and_of_debian(installed: Cluster, component: str) -> None:
    text = installed.kubectl("exec", "-n", SYSTEM, f"deployment/{RELEASE}-{component}", "--", "cat", LIST)
    found = urls(json.loads(text))
    assert locked(component) - found == set()
    assert [each for each in found if each.startswith("pkg:deb/debian/libc6@")]


def test_the_sandbox_image_lists_its_packages(gateway: Gateway) -> None:
    code = f"import json\n[each['purl'] for each in json.load(open('{LIST}'))['components']]"
    found = set(gateway.run(code)["output"]["result"])
    assert (locked("sandbox") | locked("libraries")) - found == set()
    assert [each for each in found if each.startswith("pkg:generic/python@3.13.")]
