# shellcheck shell=bash
# Functions for the base images: those of locks/images.txt, of variables, or of Debian's packages.
# Sandboxes have a newer Debian than the other images, because code is written for a recent Python.
# Reads: root, cache. Sets: base.

suite_of() {  # NAME: print the suite of Debian of an image
  case $1 in sandbox | sandbox-typescript | data) echo trixie ;; *) echo bookworm ;; esac
}

python_of() {  # NAME: print the Python of an image
  case $1 in sandbox | sandbox-typescript | libraries | data) echo 3.13 ;; *) echo 3.11 ;; esac
}

base_variable() {  # SUITE: print the name of the variable that replaces a base image
  case $1 in trixie) echo MCP_EXEC_SANDBOX_BASE_IMAGE ;; *) echo MCP_EXEC_BASE_IMAGE ;; esac
}

own_base() {  # SUITE: print the name of the base image of Debian's packages
  echo "localhost/mcp-exec-base:$1"
}

base_archive() {  # SUITE: print the path of the archive of that image's files
  echo "$cache/images/base-$1-rootfs.tar"
}

make_base() {  # SUITE: cache an archive of Debian's minimal system with Python, without manuals, locales and Perl
  local folder library archive
  archive=$(base_archive "$1")
  [ ! -f "$archive" ] || return 0
  has debootstrap || install_packages debootstrap debian-archive-keyring
  work=$(mktemp -d)
  folder=$work/rootfs
  say "Building the base image from Debian's packages"
  apt_bootstrap "$1" "$folder" python3,ca-certificates
  (cd "$folder" && rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* usr/share/{doc,man,info,locale,perl5} \
    usr/lib/*-linux-gnu/perl-base usr/bin/perl* && find . -name __pycache__ -prune -exec rm -rf {} +)
  # The root file system is read-only at run time, and Python starts slowly without bytecode.
  for library in "$folder"/usr/lib/python3.*; do
    chroot "$folder" python3 -m compileall -q --invalidation-mode unchecked-hash "${library#"$folder"}" || true
  done
  mkdir -p "$(dirname "$archive")"
  tar -C "$folder" -cf "$archive.part" .
  mv "$archive.part" "$archive"
  rm -rf "$work"
}

docker_has() {  # IMAGE
  docker image inspect "$1" >/dev/null 2>&1
}

prepare_docker() {  # SUITE: set `base`: the image that is named, the locked one, or one of Debian's packages
  local said own variable named
  own=$(own_base "$1")
  variable=$(base_variable "$1")
  named=${!variable:-}
  base=${named:-$(grep -- "-$1@" "$root/locks/images.txt")}
  ! docker_has "$base" || return 0
  if [ -z "$named" ] && docker_has "$own"; then
    base=$own
    return
  fi
  say "Pulling the base image $base (50 MB)"
  ! said=$(limit 900 docker pull --quiet "$base" 2>&1) || return 0
  said=$(tail -n 1 <<<"$said")
  if [ -n "$named" ] || ! debian_root || ! apt_mirror >/dev/null; then
    fail "docker can't pull the base image $base ($said): set $variable to a copy of it, from a registry that this machine reaches or loaded by \`docker load\`."
  fi
  say "Docker can't pull it ($said), so Debian's packages make the base image"
  make_base "$1"
  docker import "$(base_archive "$1")" "$own" >/dev/null
  base=$own
}

buildah_() {  # run buildah with separate storage, which `make clean` can remove
  buildah --root "$cache/buildah" --runroot /run/mcp-exec-buildah "$@"
}

install_buildah() {  # with what it needs to make base images
  local name missing=()
  for name in buildah debootstrap; do has "$name" || missing+=("$name"); done
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}" runc debian-archive-keyring
  [ "$(id -u)" = 0 ] || fail "needs a running docker engine, or root for buildah."
}

prepare_buildah() {  # SUITE: set `base` to an image of Debian's packages
  local folder archive
  base=$(own_base "$1")
  archive=$(base_archive "$1")
  make_base "$1"
  ! buildah_ inspect --type image "$base" >/dev/null 2>&1 || return 0
  folder=$(mktemp -d)
  printf 'FROM scratch\nADD rootfs.tar /\n' > "$folder/Dockerfile"
  ln "$archive" "$folder/rootfs.tar" 2>/dev/null || cp "$archive" "$folder/rootfs.tar"
  buildah_ bud --isolation=chroot -q -t "$base" "$folder" >/dev/null
  rm -rf "$folder"
}

find_base() {  # NAME: set `base` to the base image of an image, which is prepared once
  local suite variable
  suite=$(suite_of "$1")
  variable=base_of_$suite
  if [ -z "${!variable:-}" ]; then
    "prepare_$builder" "$suite"
    printf -v "$variable" %s "$base"
  fi
  base=${!variable}
}

install_packages() {  # PACKAGE...
  debian_root || fail "needs a running docker engine, or root on Debian for buildah."
  say "Installing Debian packages: $*"
  apt_get update || true
  apt_get install -y --no-install-recommends "$@" >/dev/null
}
