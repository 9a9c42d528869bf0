#!/usr/bin/env bash
# Make gVisor's runsc of Debian 13's package, and build its containerd shim from the source package:
# build-gvisor.sh FOLDER (half a minute)
#
# Debian's runsc refuses kernels 6.11 and later, and Debian has no package of the shim.
set -euo pipefail
bin=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
fail() {
  echo "build-gvisor.sh: $*" >&2
  exit 1
}
# shellcheck source=hack/devcluster/apt.sh
. "$here/apt.sh"

patch_runsc() {  # FROM TO
  local theirs=/proc/sys/net/core/rmem_default ours=/proc/sys/net/core/./dev_weight
  # Kernels 6.11 and later have rmem_default in every network namespace; dev_weight is only in the root namespace. Both
  # paths have the same length, so the program stays as it is otherwise.
  [ "$(LC_ALL=C grep -aoF "$theirs" "$1" | wc -l)" = 2 ] || fail "Debian's runsc does not read $theirs as version 20240729 does."
  LC_ALL=C sed "s#$theirs#$ours#g" "$1" > "$2"
  chmod 755 "$2"
}

apt_install dpkg-dev
cd "$work"
# The shim needs the libraries of containerd 1.4 (Debian 11); the rest needs Debian 13's libraries and Go.
apt_unpack bullseye bullseye golang-github-containerd-{console,containerd,continuity,fifo,go-runc,ttrpc,typeurl}-dev
apt_unpack bookworm bookworm golang-github-{burntsushi-toml,containerd-cgroups,docker-go-units,gogo-protobuf}-dev \
  golang-github-{golang-protobuf-1-3,hashicorp-errwrap,hashicorp-go-multierror,opencontainers-go-digest,pkg-errors}-dev \
  golang-github-sirupsen-logrus-dev golang-dbus-dev golang-google-{genproto,grpc}-dev
apt_unpack trixie trixie runsc golang-1.24-{go,src} golang-golang-x-{exp,sys,time}-dev golang-github-cilium-ebpf-dev \
  golang-github-{coreos-go-systemd,opencontainers-specs}-dev
patch_runsc trixie/usr/bin/runsc runsc
apt_source trixie golang-gvisor-gvisor
src=$work/gopath/src/gvisor.dev/gvisor
mkdir -p "$src"
tar xf golang-gvisor-gvisor_*.orig.tar.gz -C "$src" --strip-components=1
cd "$src"

# Without CAP_SYS_RESOURCE the shim cannot lower its OOM score. It does not need to.
sed -i 's/shim.SetScore(cmd.Process.Pid); err != nil {/shim.SetScore(cmd.Process.Pid); err != nil \&\& !os.IsPermission(err) {/' \
  pkg/shim/service.go
# Of the module of specifications, the shim needs the kinds of containers and one function. The rest needs all of gVisor.
spec=runsc/specutils
sed -n '/^\/\/ ChangeMountType /,/^}/p' $spec/specutils.go >> $spec/cri.go
find $spec -maxdepth 1 -name '*.go' ! -name cri.go -delete

export GOPATH=$work/gopath:$work/trixie/usr/share/gocode:$work/bullseye/usr/share/gocode:$work/bookworm/usr/share/gocode
export GOCACHE=$work/go-cache GO111MODULE=off CGO_ENABLED=0 GOFLAGS=
mkdir -p "$bin"
# Nothing reads the information for debuggers, which `-s -w` would remove again.
"$work/trixie/usr/lib/go-1.24/bin/go" build -gcflags=all=-dwarf=false -ldflags '-s -w' -o "$bin/containerd-shim-runsc-v1" \
  gvisor.dev/gvisor/shim
# runsc is installed last: if it exists, the build is complete.
install "$work/runsc" "$bin/runsc"
