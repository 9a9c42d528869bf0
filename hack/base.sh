# shellcheck shell=bash
# Functions for the base image: the one of locks/images.txt, MCP_EXEC_BASE_IMAGE's, or one of Debian's packages.
# Reads: root, cache. Sets: base.

pinned=$(grep '/python:' "$root/locks/images.txt")
own_base=localhost/mcp-exec-base:bookworm
base_archive=$cache/images/base-bookworm-rootfs.tar

make_base() {  # cache an archive of Debian's minimal system with Python, without manuals, locales and Perl
  local folder
  [ ! -f "$base_archive" ] || return 0
  has debootstrap || install_packages debootstrap
  work=$(mktemp -d)
  folder=$work/rootfs
  say "Building the base image from Debian's packages"
  apt_bootstrap bookworm "$folder" python3,ca-certificates
  (cd "$folder" && rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* usr/share/{doc,man,info,locale,perl5} \
    usr/lib/*-linux-gnu/perl-base usr/bin/perl* && find . -name __pycache__ -prune -exec rm -rf {} +)
  # The root file system is read-only at run time, and Python starts slowly without bytecode.
  chroot "$folder" python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3.11 || true
  mkdir -p "$(dirname "$base_archive")"
  tar -C "$folder" -cf "$base_archive.part" .
  mv "$base_archive.part" "$base_archive"
  rm -rf "$work"
}

docker_has() {  # IMAGE
  docker image inspect "$1" >/dev/null 2>&1
}

prepare_docker() {  # set `base`: the image that is named, the locked one, or one of Debian's packages
  local said
  base=${MCP_EXEC_BASE_IMAGE:-$pinned}
  ! docker_has "$base" || return 0
  if [ -z "${MCP_EXEC_BASE_IMAGE:-}" ] && docker_has $own_base; then
    base=$own_base
    return
  fi
  say "Pulling the base image $base (50 MB)"
  ! said=$(limit 900 docker pull --quiet "$base" 2>&1) || return 0
  said=$(tail -n 1 <<<"$said")
  if [ -n "${MCP_EXEC_BASE_IMAGE:-}" ] || ! debian_root || ! apt_mirror >/dev/null; then
    fail "docker can't pull the base image $base ($said): set MCP_EXEC_BASE_IMAGE to a copy of it, from a registry that this machine reaches or loaded by \`docker load\`."
  fi
  say "Docker can't pull it ($said), so Debian's packages make the base image"
  make_base
  docker import "$base_archive" $own_base >/dev/null
  base=$own_base
}

buildah_() {  # run buildah with separate storage, which `make clean` can remove
  buildah --root "$cache/buildah" --runroot /run/mcp-exec-buildah "$@"
}

prepare_buildah() {  # set `base` to an image of Debian's packages
  local name missing=() folder
  base=$own_base
  for name in buildah debootstrap; do has "$name" || missing+=("$name"); done
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}" runc
  [ "$(id -u)" = 0 ] || fail "needs a running docker engine, or root for buildah."
  make_base
  ! buildah_ inspect --type image $base >/dev/null 2>&1 || return 0
  folder=$(mktemp -d)
  printf 'FROM scratch\nADD rootfs.tar /\n' > "$folder/Dockerfile"
  ln "$base_archive" "$folder/rootfs.tar" 2>/dev/null || cp "$base_archive" "$folder/rootfs.tar"
  buildah_ bud --isolation=chroot -q -t $base "$folder" >/dev/null
  rm -rf "$folder"
}

install_packages() {  # PACKAGE...
  debian_root || fail "needs a running docker engine, or root on Debian for buildah."
  say "Installing Debian packages: $*"
  apt_get update || true
  apt_get install -y --no-install-recommends "$@" >/dev/null
}
