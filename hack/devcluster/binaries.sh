# shellcheck shell=bash
# Functions for a cluster of another Kubernetes than Debian 12's, whose executables are in the folder KUBERNETES_BINARIES.
# `up` links them into a folder of the cluster that comes first on PATH, so that later commands need no variable.
# Reads: cache, state, work, KUBERNETES_BINARIES. Sets: binaries and minor (empty without the variable).

given=(kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet etcd)
# Debian 12's containerd is too old for this kubelet; its runc is not.
runtime=(containerd containerd-shim-runc-v2 ctr)
oldest_minor=31
binaries=''
minor=''

find_binaries() {  # set `binaries` and the `minor` version of their kubelet; fail with the name of what is missing
  local name
  [ -n "${KUBERNETES_BINARIES:-}" ] || return 0
  binaries=$(cd "$KUBERNETES_BINARIES" 2>/dev/null && pwd) \
    || fail "KUBERNETES_BINARIES must be a folder, and there is none at $KUBERNETES_BINARIES."
  unpack_binaries
  [ ! -e "$binaries/containerd" ] || given+=("${runtime[@]}")
  for name in "${given[@]}"; do
    [ -x "$binaries/$name" ] || fail "there is no executable $name in the folder $KUBERNETES_BINARIES of KUBERNETES_BINARIES."
  done
  minor=$("$binaries/kubelet" --version 2>/dev/null | sed -n 's/^Kubernetes v1\.\([0-9]*\)\..*/\1/p')
  [ "${minor:-0}" -ge $oldest_minor ] \
    || fail "KUBERNETES_BINARIES needs Kubernetes 1.$oldest_minor or later; $KUBERNETES_BINARIES/kubelet is ${minor:+1.}${minor:-of an unknown version}."
}

unpack_binaries() {  # a folder with archives, NAME.tar.xz of several executables or NAME.xz of one, is unpacked once
  local archives archive folder
  mapfile -t archives < <(find "$binaries" -maxdepth 1 -name '*.xz' | sort)
  [ ${#archives[@]} -gt 0 ] || return 0
  folder=$cache/kubernetes/$(cksum "${archives[@]}" | cksum | cut -d' ' -f1)
  if [ ! -d "$folder" ]; then
    mkdir -p "$cache"
    (  # tests do this in several processes at the same time
      flock -w 600 8 || fail "another process has held $cache/kubernetes.lock for 10 minutes."
      [ ! -d "$folder" ] || exit 0
      apt_install xz-utils
      rm -rf "$cache/kubernetes"
      mkdir -p "$folder.part"
      for archive in "${archives[@]}"; do
        case $archive in
          *.tar.xz) tar -xJf "$archive" -C "$folder.part" ;;
          *) xz -dc "$archive" > "$folder.part/$(basename "$archive" .xz)" ;;
        esac
      done
      chmod +x "$folder.part"/*
      mv "$folder.part" "$folder"
    ) 8>"$cache/kubernetes.lock"
  fi
  binaries=$folder
}

same_binaries() {  # succeed if the running cluster has those that the variable names, or if it names none
  [ -z "$binaries" ] || [ "$(readlink "$state/bin/kubelet")" = "$binaries/kubelet" ]
}

link_binaries() {
  local name
  [ -n "$binaries" ] || return 0
  [ -x "$binaries/containerd" ] || [ -x "$cache/containerd/ctr" ] || fetch_containerd
  mkdir -p "$state/bin"
  for name in "${given[@]}"; do ln -s "$binaries/$name" "$state/bin"; done
  [ -x "$binaries/containerd" ] || for name in "${runtime[@]}"; do ln -s "$cache/containerd/$name" "$state/bin"; done
}

fetch_containerd() {  # that of Debian's development release, which runs on Debian 12
  apt_unpack sid "$work/containerd" containerd
  mkdir -p "$cache/containerd"
  # The last is installed last: if it exists, all do.
  install "${runtime[@]/#/$work/containerd/usr/bin/}" "$cache/containerd"
}
