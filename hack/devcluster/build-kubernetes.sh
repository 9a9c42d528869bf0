#!/usr/bin/env bash
# Build Kubernetes' binaries from Debian 12's source package: build-kubernetes.sh FOLDER COMMAND... (about 3 minutes for
# the five of a server; each command is installed when all are built)
#
# Go compiles the commands directly: Kubernetes' own build generates files that the source package already has. Left out
# are drivers of clouds' storage, registries and metadata, and a debugging page of the garbage collector.
set -euo pipefail
bin=$1
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
# shellcheck source=hack/devcluster/apt.sh
. "$here/apt.sh"
# Nothing reads the information for debuggers, which `-s -w` below would remove again.
quick=(-trimpath -gcflags=all=-dwarf=false)
version=1.20.2

apt_install golang-go golang-github-modern-go-reflect2-dev dpkg-dev
cd "$work"
apt_source bookworm kubernetes
mkdir -p gopath/src/k8s.io
tar xf kubernetes_*.orig.tar.gz -C gopath/src/k8s.io
cd gopath/src/k8s.io
mv "kubernetes-$version" kubernetes
cd kubernetes

# The vendored reflect2 fails with Go 1.18 and later; Debian's package has a fixed version.
reflect2=vendor/github.com/modern-go/reflect2
rm "$reflect2"/*.go "$reflect2"/*.s
cp /usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} "$reflect2"

# What no cluster of this project uses is a tenth of the code to compile.
sed -i -E '/\<(cephfs|flocker|glusterfs|portworx|quobyte|rbd|scaleio|storageos)\>|credentialprovider\/(aws|azure|gcp)"/d' \
  cmd/kube{let,-controller-manager}/app/plugins.go cmd/kubelet/app/options/globalflags.go
sed -i '/cadvisor\/utils\/cloudinfo\//d' pkg/kubelet/cadvisor/cadvisor_linux.go
sed -i '/client-go\/plugin\/pkg\/client\/auth"/d' pkg/kubeapiserver/authenticator/config.go
cat > pkg/controller/garbagecollector/dump.go <<'G'
package garbagecollector

import "net/http"

// NewDebugHandler serves no graph, which would need libraries for graphs.
func NewDebugHandler(*GarbageCollector) http.Handler { return http.NotFoundHandler() }
G

# openapi-gen reads Go's own sources, and -trimpath removes their place from it.
GOROOT=$(go env GOROOT)
export GOROOT GOPATH=$work/gopath GOCACHE=$work/go-cache GO111MODULE=off GOFLAGS=-tags=providerless,dockerless CGO_ENABLED=0
# The API server's schemas are the only generated code that the source package lacks.
go build "${quick[@]}" -o "$work/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
types=$(grep -rlE --include='*.go' '^// *\+k8s:openapi-gen=' pkg staging/src/k8s.io \
  | sed -nE '/\/(code-generator|sample-apiserver)\//!{s#/[^/]*$##; s#^staging/src/#vendor/#; s#^#k8s.io/kubernetes/#; p}' \
  | LC_ALL=C sort -u | paste -sd,)
"$work/openapi-gen" -i "$types" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
  -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r /dev/null

flags=('-s -w')
for package in component-base/version client-go/pkg/version; do
  for pair in gitVersion=v$version gitMajor=1 gitMinor=20 gitCommit=debian gitTreeState=archive \
    "buildDate=$(date -u +%Y-%m-%dT%H:%M:%SZ)"; do flags+=("-X k8s.io/kubernetes/vendor/k8s.io/$package.$pair"); done
done
mkdir "$work/bin"
go build "${quick[@]}" -ldflags "${flags[*]}" -o "$work/bin/" "${@/#/k8s.io/kubernetes/cmd/}"
# The first is installed last: if it exists, the build is complete.
for command in "${@:2}" "$1"; do install -D -t "$bin" "$work/bin/$command"; done
