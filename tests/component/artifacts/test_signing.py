"""What a release in a registry is verified by, with the commands of docs/platform/releases.md."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hack.artifacts import chart
from tests.component.artifacts.conftest import IMAGES, RELEASED, ROOT, SBOM, Release, write_image

from mcp_exec_api.wire.version import RELEASE

PAGE = (ROOT / "docs/platform/releases.md").read_text()
COMMANDS = re.findall(r"^    (cosign verify.*)$", PAGE, re.M)
pytestmark = pytest.mark.timeout(300)


def verify(release: Release, command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    return release.run("sh", "-c", f"cd {release.folder} && {command}", check=check)


def read_predicate(release: Release, kind: str, name: str) -> Any:
    command = f"cosign verify-attestation --key cosign.pub --insecure-ignore-tlog --type {kind}"
    (line,) = verify(release, f"{command} $REGISTRY/mcp-exec-{name}:$VERSION").stdout.splitlines()
    return json.loads(base64.b64decode(json.loads(line)["payload"]))["predicate"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_verify_a_release(release: Release, command: str) -> None:
    verify(release, command)


@pytest.mark.parametrize("command", COMMANDS)
def test_another_key_verifies_nothing(release: Release, command: str, tmp_path: Path) -> None:
    release.run("sh", "-c", f"cd {tmp_path} && cosign generate-key-pair")
    assert verify(release, command.replace("cosign.pub", f"{tmp_path}/cosign.pub"), check=False).returncode != 0


@pytest.mark.parametrize("name", RELEASED)
def test_every_image_has_its_packages_and_what_it_was_built_from(release: Release, name: str) -> None:
    assert read_predicate(release, "cyclonedx", name) == SBOM
    definition = read_predicate(release, "slsaprovenance1", name)["buildDefinition"]
    assert definition["externalParameters"] == {"image": name}
    hashes = release.run(ROOT / "hack/images", "sources").stdout.split()
    assert definition["internalParameters"]["sources"] == hashes[hashes.index(name) + 1]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert [each["digest"] for each in definition["resolvedDependencies"]] == [{"gitCommit": head.strip()}]


def test_another_image_under_the_tag_is_not_verified(release: Release, tmp_path: Path) -> None:
    signed = release.copy(release.folder / "gateway.tar", "gateway")
    release.copy(write_image(tmp_path / "other.tar"), "gateway")
    command = "cosign verify --key cosign.pub --insecure-ignore-tlog $REGISTRY/mcp-exec-gateway"
    assert "no signatures found" in verify(release, f"{command}:$VERSION", check=False).stderr
    verify(release, f"{command}@{signed}")
    release.copy(release.folder / "gateway.tar", "gateway")


def test_the_chart_in_the_registry_takes_its_images_from_there_by_digest(release: Release, tmp_path: Path) -> None:
    release.run("helm", "pull", f"oci://{release.registry}/mcp-exec", "--version", RELEASE, "--destination", tmp_path)
    shown = release.run("helm", "template", "mcp-exec", tmp_path / f"mcp-exec-{RELEASE}.tgz").stdout
    images = set(re.findall(r"[\w.:/-]*/mcp-exec-[a-z]+:[\w.@:-]+", shown))
    assert {image.partition("@")[0] for image in images} == {
        f"{release.registry}/mcp-exec-{name}:{RELEASE}" for name in IMAGES
    }
    for image in images:
        name, _, digest = image.partition("@")
        place = f"docker://{name.rpartition(':')[0]}@{digest}"
        release.run("skopeo", "inspect", "--tls-verify=false", "--raw", place)


@pytest.mark.parametrize(
    ("arguments", "environment", "reason"),
    [
        (["a/b:1"], {}, "a/b:1: add @sha256:... because a tag can move"),
        (["a/b@sha256:1"], {"COSIGN_KEY": ""}, "COSIGN_KEY is not set"),
        (["127.0.0.1:1/b@sha256:" + 64 * "1"], {}, "cosign sign failed: "),
        (["127.0.0.1:1/b@sha256:" + 64 * "1"], {"PATH": "/none"}, "`hack/tools cosign` gets it on Debian"),
    ],
)
def test_what_is_not_signed_is_an_error(
    release: Release, arguments: list[str], environment: dict[str, str], reason: str
) -> None:
    python = release.environment["PYTHON"]
    done = release.run(python, "-m", "hack.artifacts.signing", *arguments, check=False, **environment)
    assert (done.returncode != 0, reason in done.stderr) == (True, True), done.stderr


def test_an_image_without_its_packages_is_an_error(release: Release, tmp_path: Path) -> None:
    archive = write_image(tmp_path / "operator.tar", packages=False)
    digest = release.copy(archive, "odd")
    with pytest.raises(AssertionError, match=r"has no /usr/share/mcp-exec/sbom\.cdx\.json"):
        release.sign(digest, archive, "operator")


def copy_release(release: Release, source: str | Path, target: str | Path) -> None:
    release.run(ROOT / "hack/mirror", FROM=str(source), TO=str(target))


@pytest.mark.parametrize("carried", [False, True], ids=["at once", "by a folder"])
def test_a_mirror_has_everything_by_the_same_digests(release: Release, tmp_path: Path, carried: bool) -> None:
    mirror = f"{release.registry}-mirror-{carried}".lower()
    if carried:
        copy_release(release, release.registry, tmp_path / "disk")
        copy_release(release, tmp_path / "disk", mirror)
        shutil.rmtree(tmp_path / "disk")
    else:
        copy_release(release, release.registry, mirror)
    for name in (*chart.NAMES, *(f"mcp-exec-{name}" for name in RELEASED)):
        raw = [
            release.run("skopeo", "inspect", "--tls-verify=false", "--raw", f"docker://{place}/{name}:{RELEASE}").stdout
            for place in (release.registry, mirror)
        ]
        assert raw[0] == raw[1]
        for command in COMMANDS:
            # the chart has no attestations
            if f"$REGISTRY/{name}:" in command:
                verify(release, command.replace("$REGISTRY", mirror))
    platforms = json.loads(
        release.run(
            "skopeo", "inspect", "--tls-verify=false", "--raw", f"docker://{mirror}/mcp-exec-sandbox:{RELEASE}"
        ).stdout
    )
    assert [each["platform"]["architecture"] for each in platforms["manifests"]] == ["amd64", "arm64"]


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        (
            {"FROM": ""},
            "such as registry.example.com/mcp-exec, or a folder: no release is published",
        ),
        ({"TO": ""}, "needs TO=REGISTRY"),
        ({"VERSION": ""}, "needs VERSION=1.2.3"),
        ({"VERSION": "9.9.9"}, "skopeo can't copy docker://"),
    ],
)
def test_a_mirror_says_what_it_needs(release: Release, environment: dict[str, str], reason: str) -> None:
    complete = {"FROM": release.registry, "TO": f"{release.registry}-none", **environment}
    assert reason in release.run(ROOT / "hack/mirror", check=False, **complete).stderr


def test_a_release_without_signatures_is_mirrored_only_if_that_is_asked_for(release: Release) -> None:
    source = f"{release.registry}-unsigned"
    release.copy(release.folder / "gateway.tar", "sandbox", source)
    places = {"FROM": source, "TO": f"{source}-mirror"}
    refused = release.run(ROOT / "hack/mirror", check=False, **places)
    assert f"mcp-exec-sandbox:{RELEASE} has no signature in {source} that can be copied" in refused.stderr
    asked = release.run(ROOT / "hack/mirror", check=False, **places, UNSIGNED="yes")
    assert "Copying mcp-exec-operator" in asked.stderr + asked.stdout
