# shellcheck shell=bash disable=SC2154  # hack/cluster sets root and kubeconfig
# The cluster of hack/devcluster: a single node from Debian's packages, without Docker.

devcluster=$root/hack/devcluster/devcluster

provider_check() {
  "$devcluster" check
}

provider_up() {
  local source
  if ! "$devcluster" status >/dev/null 2>&1; then
    say "Starting devcluster (the first start builds Kubernetes and gVisor: 6 minutes)"
    remember devcluster
  fi
  source=$("$devcluster" up)
  install -m 600 "$source" "$kubeconfig"
}

provider_down() {
  "$devcluster" down
}

provider_load() {  # IMAGE...
  local image archive loaded
  for image in "$@"; do
    find_archive "$image"
    loaded=$("$devcluster" load "$archive")
    [ -z "$loaded" ] || changed+=("$image")
  done
}
