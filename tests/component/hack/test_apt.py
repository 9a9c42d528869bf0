"""hack/devcluster/apt.sh: Debian's packages of any suite, by the mirror and the proxy of the machine's apt."""

import subprocess
from pathlib import Path

import pytest
from tests.component.hack.shims import Machine, refusal


@pytest.fixture
def debian(machine: Machine) -> Machine:
    """Machine whose apt installs from a mirror, by a proxy."""
    machine.stand_in("apt-get", "[ $1 != indextargets ] || echo http://mirror.example/debian/")
    machine.stand_in("apt-config", "echo \"proxy='http://proxy.example:3142'\"")
    machine.stand_in("debootstrap", f'echo "$http_proxy" > {machine.folder}/proxy')
    return machine


def run(machine: Machine, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a function of the file, with a folder `work` inside the machine's."""
    (machine.folder / "work").mkdir(exist_ok=True)
    script = machine.checkout / "hack/script"
    script.write_text(
        f'set -euo pipefail\n. "$(dirname "$0")/lib.sh"\n. "$root/hack/devcluster/apt.sh"\n'
        f"work={machine.folder}/work\n{command}\n"
    )
    script.write_text("#!/usr/bin/env bash\n" + script.read_text())
    script.chmod(0o755)
    return machine.run("script", **environment)


def sources(machine: Machine) -> list[str]:
    return Path(machine.folder / "work/apt/sid/sources.list").read_text().splitlines()


def test_other_suites_come_from_the_machines_mirror(debian: Machine) -> None:
    assert run(debian, "apt_suite sid").returncode == 0
    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    assert sources(debian) == [
        f"deb {key} http://mirror.example/debian sid main",
        f"deb-src {key} http://mirror.example/debian sid main",
    ]


def test_the_archive_is_found_by_what_its_release_files_say(debian: Machine) -> None:
    run(debian, "apt_mirror")
    (asked, *_) = [call for call in debian.calls("apt-get") if call.startswith("indextargets")]
    assert "Origin: Debian Label: Debian Component: main" in asked


def test_package_lists_are_fetched_if_apt_has_none_yet(debian: Machine) -> None:
    known = debian.folder / "known"
    debian.stand_in(
        "apt-get",
        f'case "$*" in *update*) touch {known} ;; *) [ ! -e {known} ] || echo http://mirror.example/d/ ;; esac',
    )
    assert run(debian, "apt_mirror").stdout == "http://mirror.example/d\n"


@pytest.mark.parametrize("command", ["apt_suite sid", "apt_bootstrap bookworm folder python3"])
def test_a_machine_without_an_archive_of_debian_is_told_so(debian: Machine, command: str) -> None:
    debian.stand_in("apt-get")
    assert "apt has no archive of Debian on this machine" in refusal(run(debian, command))


def test_a_new_system_is_installed_from_the_mirror_by_apts_proxy(debian: Machine) -> None:
    assert run(debian, "apt_bootstrap bookworm folder python3,git").returncode == 0
    assert debian.calls("debootstrap") == [
        "--variant=minbase --include=python3,git bookworm folder http://mirror.example/debian"
    ]
    assert (debian.folder / "proxy").read_text() == "http://proxy.example:3142\n"


@pytest.mark.parametrize("configured", ["echo \"proxy='DIRECT'\"", ""])
def test_without_a_proxy_of_apt_the_environments_counts(debian: Machine, configured: str) -> None:
    debian.stand_in("apt-config", configured)
    run(debian, "apt_bootstrap bookworm folder python3", http_proxy="http://other.example:1")
    assert (debian.folder / "proxy").read_text() == "http://other.example:1\n"


def test_the_first_of_a_list_of_mirrors_is_used(debian: Machine) -> None:
    mirrors = debian.folder / "mirrors"
    mirrors.write_text("# mirrors\nhttps://first.example/debian priority:1\nhttps://second.example/debian\n")
    debian.stand_in("apt-get", f"[ $1 != indextargets ] || echo mirror+file:{mirrors}")
    run(debian, "apt_bootstrap bookworm folder python3")
    assert debian.calls("debootstrap")[0].endswith(" bookworm folder https://first.example/debian")


def test_a_failed_installation_ends_with_its_log(debian: Machine) -> None:
    debian.stand_in("debootstrap", "echo 'E: no such suite'; exit 1")
    done = run(debian, "apt_bootstrap bookworm folder python3")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["E: no such suite", "hack/script: debootstrap failed; see its log above."]


MADISON = """
    [ "${*: -1}" = lost ] || echo " git | 1:2.47.3-1 | http://mirror.example/debian sid/main amd64 Packages
       git | 1:2.39.5-0 | http://mirror.example/debian sid/main amd64 Packages
       git | 1:2.47.3-1 | http://mirror.example/debian sid/main Sources"
    echo "     runc | 1.1.15 | http://mirror.example/debian sid/main amd64 Packages"
"""


def test_packages_of_another_suite_are_fetched_together_each_in_the_first_version_that_it_has(debian: Machine) -> None:
    debian.stand_in("apt-cache", MADISON)
    mirror = "echo http://mirror.example/d/"
    debian.stand_in("apt-get", f"case $1 in indextargets) {mirror} ;; *) touch git.deb runc.deb ;; esac")
    debian.stand_in("dpkg")
    assert run(debian, "apt_unpack sid folder git runc").returncode == 0
    assert len(debian.calls("apt-cache")) == 1
    (downloads,) = [call for call in debian.calls("apt-get") if " download " in call]
    assert downloads.endswith(" download git=1:2.47.3-1 runc=1.1.15")
    assert [call.split("/")[-1] for call in debian.calls("dpkg")] == ["git.deb folder", "runc.deb folder"]


def test_a_package_that_the_suite_lacks_is_named(debian: Machine) -> None:
    debian.stand_in("apt-cache", MADISON)
    assert refusal(run(debian, "apt_unpack sid folder runc lost")) == "hack/script: Debian's sid has no package lost."
