# shellcheck shell=bash disable=SC2034  # not every script that sources this reads all variables
# The Docker engine and what it can run. Reads: root. The functions that query and check set `problem` to what is wrong
# and what to do, and leave it empty if nothing is.

# Three nodes use 1.9 GiB after `make demo` (docker stats, Kubernetes 1.20); images are built and cached in the rest.
needed_memory_gib=4 needed_disk_gib=10
info_format='{{.ServerVersion}}|{{.MemTotal}}|{{.CgroupVersion}}|{{.OSType}}|{{.Architecture}}|{{.DockerRootDir}}|{{.SecurityOptions}}|{{range .ServerErrors}}{{.}} {{end}}'

query_engine() {  # also set the variables of its answer
  local info errors status=0
  problem='' memory=0 cgroup='' system='' architecture='' folder='' security=''
  has docker || { problem="there is no Docker: install it and start its engine"; return; }
  case $(limit 20 docker --version 2>/dev/null) in
    *odman*)
      # podman's `info` has other fields, and kind finds podman without the alias.
      [ "${CLUSTER:-}" = kind ] || problem="docker is an alias of podman, which kind supports as an experiment: set CLUSTER=kind to try it"
      architecture=$(uname -m) memory=$((1 << 40))
      return
      ;;
  esac
  errors=$(mktemp)
  info=$(limit 20 docker info --format "$info_format" 2>"$errors") || status=$?
  IFS='|' read -r version memory cgroup system architecture folder security said <<<"$info" || true
  said=$(echo "$said $(tail -n 1 "$errors")" | sed -E 's/^ +//; s/[. ]+$//')
  rm -f "$errors"
  # Older clients exit with 0 without an engine.
  if [ "$status" != 0 ] || [ -z "$version" ]; then explain "$status" "$said"; fi
}

explain() {  # STATUS MESSAGE of `docker info`
  case $1:$2 in
    124:* | 137:*) problem="the Docker engine does not answer within 20 seconds: restart it" ;;
    *"ermission denied"*) problem="you have no rights to the Docker engine's socket: add your user to the group docker and log in again, or use sudo, or install rootless Docker" ;;
    *"annot connect"* | *"daemon running"* | *"error during connect"* | *"connection refused"*) problem="the Docker engine does not run: start it" ;;
    *) problem="the Docker engine returns an error (${2:-exit status $1}): restart it" ;;
  esac
}

check_system() {
  [ "$system" != windows ] || problem="the Docker engine runs Windows containers: switch it to Linux containers"
  case $architecture in
    x86_64 | aarch64 | amd64 | arm64) ;;
    *) problem="the Docker engine's machine is $architecture, and the images and kind's nodes are for x86-64 and arm64: use another machine" ;;
  esac
}

check_resources() {  # a new cluster needs memory and a cgroup version; a running one has both
  local mebibytes=$((memory / 1048576))
  if [ "$cgroup" = 1 ] && [[ $security == *rootless* ]]; then
    problem="kind needs cgroup v2 with rootless Docker, and this machine has v1: use Docker as root, or boot with systemd.unified_cgroup_hierarchy=1"
  # The kernel of a virtual machine takes a part of its memory.
  elif [ $mebibytes -lt $((needed_memory_gib * 1024 * 9 / 10)) ]; then
    problem="the Docker engine has $mebibytes MiB of memory and the cluster needs $needed_memory_gib GiB: give it more"
  fi
}

check_disk() {
  local free
  # The folder is not on this machine if the engine runs in a virtual one.
  free=$(df -Pk "$folder" 2>/dev/null | awk 'NR == 2 {print $4}') || true
  [ "${free:-$((1 << 40))}" -ge $((needed_disk_gib * 1048576)) ] \
    || problem="$folder has $((free / 1024)) MiB left and the cluster may need $needed_disk_gib GiB: if it fails, free some, for example by \`docker image prune\`"
}

image_id() {  # ARCHIVE of docker or buildah: print the digest of the image's configuration, which is its ID
  local manifest
  manifest=$(tar -xOf "$1" manifest.json 2>/dev/null) \
    || manifest=$(tar -xOf "$1" index.json 2>/dev/null | sed -En 's/.*"digest": *"sha256:([0-9a-f]+)".*/blobs\/sha256\/\1/p' | xargs tar -xOf "$1" 2>/dev/null)
  sed -En 's/.*"Config": *"(blobs\/sha256\/)?([0-9a-f]{64}).*/sha256:\2/p; s/.*"config": *\{[^}]*"digest": *"(sha256:[0-9a-f]{64}).*/\1/p' <<<"$manifest"
}

in_engine() {  # ARCHIVE IMAGE: succeed if the Docker engine has this image, or loads the archive that Docker wrote
  tar -tf "$1" manifest.json >/dev/null 2>&1 || return 1
  # Another checkout may have built this tag. Newer engines' IDs are other digests, so that they load the archive again.
  [ "$(docker image inspect --format '{{.Id}}' "$2" 2>/dev/null)" = "$(image_id "$1")" ] || docker load --quiet --input "$1" >/dev/null
}
