#!/usr/bin/env bash
# Build the API server for custom resources of the newest Kubernetes in Debian: build-apiextensions.sh FOLDER (3 minutes)
#
# Debian unstable has the newest version, and only this part of the API server.
set -euo pipefail
bin=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
# shellcheck source=hack/devcluster/apt.sh
. "$here/apt.sh"

apt_unpack_all sid "$work/sid" golang-go golang-k8s-apiextensions-apiserver-dev
export GOPATH=$work/sid/usr/share/gocode GOCACHE=$work/go-cache GO111MODULE=off CGO_ENABLED=0 GOFLAGS=
mkdir -p "$bin"
"$work"/sid/usr/lib/go/bin/go build -ldflags "-s -w" -o "$bin/apiextensions-apiserver" k8s.io/apiextensions-apiserver
