"""hack/devcluster/build-gvisor.sh: Debian's runsc with one path replaced, and its shim."""

import pytest
from tests.component.hack.shims import Machine, refusal

THEIRS, OURS = b"/proc/sys/net/core/rmem_default", b"/proc/sys/net/core/./dev_weight"
GO = '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho shim > "$2"\nchmod +x "$2"\n'


@pytest.fixture
def debian(machine: Machine) -> Machine:
    """Machine whose packages have a runsc, which the tests write, and a stand-in for Go."""
    (machine.folder / "go").write_text(GO)
    for name in ("tar", "dpkg-query"):
        machine.stand_in(name, "echo installed")
    machine.stand_in("wc", 'exec /usr/bin/wc "$@"')
    machine.stand_in("apt-cache", 'for name; do echo "$name | 1 | http://mirror.example/d main amd64 Packages"; done')
    machine.stand_in(
        "apt-get",
        'case "$*" in indextargets*) echo http://mirror.example/d/ ;; *download*) touch all.deb ;;'
        " *source*) d=gopath/src/gvisor.dev/gvisor; mkdir -p $d/pkg/shim $d/runsc/specutils;"
        " touch $d/pkg/shim/service.go $d/runsc/specutils/specutils.go ;; esac",
    )
    machine.stand_in(
        "dpkg",
        'mkdir -p "$3/usr/bin" "$3/usr/lib/go-1.24/bin"; '
        f'cp {machine.folder}/runsc "$3/usr/bin/runsc"; install {machine.folder}/go "$3/usr/lib/go-1.24/bin/go"',
    )
    return machine


def test_runsc_looks_for_a_file_that_only_the_root_network_namespace_has_on_every_kernel(debian: Machine) -> None:
    program = b"\x7fELF\0" + THEIRS + b"failed\n\xff\0" + THEIRS + b"\0end"
    (debian.folder / "runsc").write_bytes(program)
    done = debian.run("devcluster/build-gvisor.sh", str(debian.folder / "built"))
    assert done.returncode == 0, done.stderr
    assert (debian.folder / "built/runsc").read_bytes() == program.replace(THEIRS, OURS)
    assert (debian.folder / "built/containerd-shim-runsc-v1").read_text() == "shim\n"


def test_a_runsc_that_does_not_read_the_file_is_another_version(debian: Machine) -> None:
    (debian.folder / "runsc").write_bytes(b"\x7fELF\0" + THEIRS + b"\0end")
    said = refusal(debian.run("devcluster/build-gvisor.sh", str(debian.folder / "built")))
    assert said == f"build-gvisor.sh: Debian's runsc does not read {THEIRS.decode()} as version 20240729 does."
    assert not (debian.folder / "built").exists()
