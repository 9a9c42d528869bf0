#!/usr/bin/env bash
# Build Kubernetes' binaries from Debian 12's source package: build-kubernetes.sh FOLDER COMMAND... (about 3 minutes for
# the five of a server; each command is installed when all are built)
set -euo pipefail
bin=$1
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
# shellcheck source=hack/devcluster/apt.sh
. "$here/apt.sh"
version=1.20.2
export GOCACHE=$work/go-cache

apt_install golang-go golang-github-modern-go-reflect2-dev rsync jq make gcc libc6-dev dpkg-dev
cd "$work"
apt_source bookworm kubernetes
tar xf kubernetes_*.orig.tar.gz
mkdir -p gopath/src/k8s.io
ln -s "$work/kubernetes-$version" gopath/src/k8s.io/kubernetes

# The vendored reflect2 fails with Go 1.18 and later; Debian's package has a fixed version.
reflect2=kubernetes-$version/vendor/github.com/modern-go/reflect2
rm "$reflect2"/*.go "$reflect2"/*.s
cp /usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} "$reflect2"

cat > git-version <<V
KUBE_GIT_COMMIT='debian'
KUBE_GIT_TREE_STATE='archive'
KUBE_GIT_VERSION='v$version'
KUBE_GIT_MAJOR='1'
KUBE_GIT_MINOR='20'
V
cd gopath/src/k8s.io/kubernetes
GOPATH=$work/gopath CGO_ENABLED=0 GOFLAGS=-tags=providerless,dockerless KUBE_GIT_VERSION_FILE=$work/git-version \
  make WHAT="${*/#/cmd/}"
# The first is installed last: if it exists, the build is complete.
for command in "${@:2}" "$1"; do install -D -t "$bin" "_output/local/bin/linux/amd64/$command"; done
