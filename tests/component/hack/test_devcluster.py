"""devcluster's error messages on an unsupported machine and for an unknown command."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.component.hack.shims import Machine, refusal
from tests.support.pace import paced

ROOT = Path(__file__).parents[3]


def test_a_debian_12_on_x86_64_with_root_will_do(machine: Machine) -> None:
    done = machine.run("devcluster/devcluster", "check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("command", ["build", "up", "down", "status"])
def test_every_command_needs_root(machine: Machine, command: str) -> None:
    machine.stand_in("id", "echo 1000")
    assert "needs root" in refusal(machine.run("devcluster/devcluster", command))


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ('ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n', "Ubuntu 24.04 LTS"),
        ('ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n', "Debian GNU/Linux 13 (trixie)"),
        ("", "an unknown system"),
    ],
)
def test_another_system_is_refused_by_its_name(machine: Machine, release: str, name: str) -> None:
    machine.release(release)
    said = refusal(machine.run("devcluster/devcluster", "up"))
    assert said == f"devcluster: needs Debian 12, because it uses its packages; this is {name}."


def test_another_processor_is_refused_by_its_name(machine: Machine) -> None:
    machine.stand_in("uname", "echo aarch64")
    assert "needs an x86-64 machine; this one is aarch64" in refusal(machine.run("devcluster/devcluster", "up"))


@pytest.mark.parametrize("arguments", [(), ("start",), ("load",), ("up", "--fast"), ("status", "kubelet")])
def test_unknown_commands_and_arguments_get_the_usage(machine: Machine, arguments: tuple[str, ...]) -> None:
    done = machine.run("devcluster/devcluster", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: devcluster build | up | down")


def builds(machine: Machine, **scripts: str) -> subprocess.CompletedProcess[str]:
    """Run `devcluster build` with these lines of shell in place of its builds."""
    for name in ("gvisor", "kubernetes", "pause"):
        script = machine.checkout / f"hack/devcluster/build-{name}.sh"
        script.write_text(f"#!/usr/bin/env bash\ncd {machine.folder}\n{scripts.get(name, '')}\n")
    machine.stand_in("dpkg-query", "echo installed")
    return machine.run("devcluster/devcluster", "build")


def test_gvisor_is_fetched_while_kubernetes_compiles(machine: Machine) -> None:
    mutual = "touch {}; for ((i = 0; i < 300; i++)); do [ ! -e {} ] || exit 0; sleep 0.1; done; exit 1"
    done = builds(
        machine, gvisor=mutual.format("gvisor", "kubernetes"), kubernetes=mutual.format("kubernetes", "gvisor")
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["gvisor", "kubernetes", "pause"])
def test_a_build_fails_with_each_of_its_parts(machine: Machine, name: str) -> None:
    assert builds(machine, **{name: "exit 3"}).returncode == 3


def executables(machine: Machine, *, version: str) -> Path:
    """A folder with all that KUBERNETES_BINARIES needs, whose kubelet is of this version."""
    folder = machine.folder / "binaries"
    folder.mkdir()
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "etcd"):
        (folder / name).write_text(f"#!/bin/sh\necho {version}\n")
        (folder / name).chmod(0o755)
    return folder


def test_another_kubernetes_needs_a_folder(machine: Machine) -> None:
    said = refusal(machine.run("devcluster/devcluster", "up", KUBERNETES_BINARIES="nowhere"))
    assert said == "devcluster: KUBERNETES_BINARIES must be a folder, and there is none at nowhere."


@pytest.mark.parametrize("name", ["kube-apiserver", "kubelet", "etcd"])
def test_an_executable_that_another_kubernetes_lacks_is_named(machine: Machine, name: str) -> None:
    folder = executables(machine, version="Kubernetes v1.36.2")
    (folder / name).unlink()
    said = refusal(machine.run("devcluster/devcluster", "up", KUBERNETES_BINARIES=str(folder)))
    assert said == f"devcluster: there is no executable {name} in the folder {folder} of KUBERNETES_BINARIES."


def test_a_folder_with_a_part_of_containerd_lacks_the_rest(machine: Machine) -> None:
    folder = executables(machine, version="Kubernetes v1.36.2")
    shutil.copy(folder / "etcd", folder / "containerd")
    said = refusal(machine.run("devcluster/devcluster", "up", KUBERNETES_BINARIES=str(folder)))
    assert "there is no executable containerd-shim-runc-v2 in" in said


@pytest.mark.parametrize(("version", "called"), [("Kubernetes v1.30.9", "1.30"), ("none", "of an unknown version")])
def test_a_kubernetes_that_is_too_old_is_refused(machine: Machine, version: str, called: str) -> None:
    folder = executables(machine, version=version)
    said = refusal(machine.run("devcluster/devcluster", "up", KUBERNETES_BINARIES=str(folder)))
    assert said == f"devcluster: KUBERNETES_BINARIES needs Kubernetes 1.31 or later; {folder}/kubelet is {called}."


@pytest.mark.parametrize(
    ("version", "policy"),
    [("v1.31.0", None), ("v1.34.9", None), ("v1.35.0", "NeverVerify"), ("v1.36.2", "NeverVerify")],
)
def test_a_kubelet_that_would_pull_loaded_images_again_is_told_not_to(
    machine: Machine, version: str, policy: str | None
) -> None:
    folder = executables(machine, version=f"Kubernetes {version}")
    script = """
        set -euo pipefail
        fail() { echo "$@" >&2; exit 1; }
        for part in binaries configs; do . "hack/devcluster/$part.sh"; done
        run=/run/cluster pki=/pki cgroup=cluster
        find_binaries
        write_kubelet_config
    """
    done = subprocess.run(
        ("bash", "-c", script),
        cwd=ROOT, env={**os.environ, "KUBERNETES_BINARIES": str(folder)}, capture_output=True, text=True,
        timeout=paced(30),
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    config = yaml.safe_load(done.stdout)
    assert config["kind"] == "KubeletConfiguration"
    assert config.get("imagePullCredentialsVerificationPolicy") == policy


def test_settings_that_a_killed_cluster_changed_count_as_they_will_be_after_it(machine: Machine) -> None:
    (machine.folder / "sysctls").write_text("net.ipv4.ip_forward = 0\nkernel.panic = 1234\nkernel.panic_on_oops = 0\n")
    found = machine.run("devcluster/traces", str(machine.folder)).stdout.splitlines()
    assert "kernel/panic 1234" in found
    now = machine.run("devcluster/traces", str(machine.folder / "nothing")).stdout.splitlines()
    assert "kernel/panic 1234" not in now
    assert [line for line in now if line.startswith("kernel/panic ")]


@pytest.mark.parametrize(
    ("argument", "counts"), [("--data-dir=/run/devcluster/etcd", True), ("--data-dir=/tmp/another-etcd", False)]
)
def test_a_process_is_a_trace_only_if_it_is_one_of_the_cluster(
    machine: Machine, argument: str, *, counts: bool
) -> None:
    program = machine.folder / f"etcd-{os.getpid()}"
    program.symlink_to("/bin/sh")
    with subprocess.Popen([program, "-c", "read line", "etcd", argument], stdin=subprocess.PIPE) as process:
        found = machine.run("devcluster/traces").stdout.splitlines()
        process.communicate(timeout=paced(30))
    assert (program.name in found) is counts
