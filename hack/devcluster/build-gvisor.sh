#!/usr/bin/env bash
# Build gVisor's runsc and its containerd shim from Debian 13's source package: build-gvisor.sh FOLDER (about 1 minute)
#
# Debian's binary package has no shim, and its runsc refuses kernels 6.11 and later.
set -euo pipefail
bin=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
# shellcheck source=hack/devcluster/apt.sh
. "$here/apt.sh"

apt_install gcc g++ libc6-dev make patch dpkg-dev golang-gvisor-gvisor-dev golang-github-containerd-containerd-dev
cd "$work"
# The shim needs the libraries of containerd 1.4 (Debian 11); the rest needs Debian 13's libraries and Go.
apt_unpack bullseye bullseye golang-github-containerd-{containerd,go-runc,typeurl,fifo,ttrpc,console,continuity}-dev
apt_unpack trixie trixie golang-1.24-{go,src} golang-golang-x-{exp,sys,mod,time,sync}-dev \
  golang-github-vishvananda-{netlink,netns}-dev golang-github-opencontainers-specs-dev golang-github-cilium-ebpf-dev \
  golang-gocapability-dev golang-github-mohae-deepcopy-dev golang-google-protobuf-dev \
  golang-github-coreos-go-systemd-dev golang-github-google-{btree,subcommands}-dev \
  golang-github-bits-and-blooms-bitset-dev golang-github-cenkalti-backoff-dev golang-github-gofrs-flock-dev \
  golang-github-kr-pty-dev golang-github-creack-pty-dev
apt_source trixie golang-gvisor-gvisor
src=$work/gopath/src/gvisor.dev/gvisor
mkdir -p "$src"
tar xf golang-gvisor-gvisor_*.orig.tar.gz -C "$src" --strip-components=1
tar xf golang-gvisor-gvisor_*.debian.tar.xz -C "$src"
cd "$src"
while read -r patch; do patch -sp1 < "debian/patches/$patch"; done < debian/patches/series

# Kernels 6.11 and later have rmem_default in every network namespace; dev_weight is only in the root namespace.
sed -i 's#/proc/sys/net/core/rmem_default#/proc/sys/net/core/dev_weight#' runsc/sandbox/network.go
# Without CAP_SYS_RESOURCE the shim cannot lower its OOM score. It does not need to.
sed -i 's/shim.SetScore(cmd.Process.Pid); err != nil {/shim.SetScore(cmd.Process.Pid); err != nil \&\& !os.IsPermission(err) {/' \
  pkg/shim/service.go

g++ -I. -O2 -std=c++11 -fPIC -fno-sanitize=all -fno-stack-protector -shared -nostdlib -Wl,-soname=linux-vdso.so.1 \
  -Wl,--hash-style=sysv -Wl,--no-undefined -Wl,-Bsymbolic -Wl,-z,max-page-size=4096 -Wl,-z,common-page-size=4096 \
  -Wl,-Tvdso/vdso_amd64.lds -o pkg/sentry/loader/vdsodata/vdso_amd64.so vdso/vdso.cc vdso/vdso_time.cc
sysmsg=pkg/sentry/platform/systrap/sysmsg
make -C $sysmsg -f "$src/debian/sysmsg.makefile" ARCH=amd64 all clean
rm $sysmsg/*.c $sysmsg/*.S
# XDP is not used: empty programs satisfy Go's embed directives.
touch runsc/sandbox/bpf/{af_xdp,tunnel_veth}_ebpf.o
touch tools/xdp/cmd/bpf/{drop,pass,redirect_host,tcpdump,tunnel_host,tunnel_veth}_ebpf.o

export GOPATH=$work/gopath:$work/trixie/usr/share/gocode:$work/bullseye/usr/share/gocode:/usr/share/gocode
export GOCACHE=$work/go-cache GO111MODULE=off CGO_ENABLED=0 GOFLAGS=
go=$work/trixie/usr/lib/go-1.24/bin/go
mkdir -p "$bin"
$go build -ldflags "-s -w" -o "$bin/containerd-shim-runsc-v1" gvisor.dev/gvisor/shim
# runsc is built last: if it exists, the build is complete.
$go build -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=20240729" -o "$bin/runsc" gvisor.dev/gvisor/runsc
