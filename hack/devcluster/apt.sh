# shellcheck shell=bash
# Functions that fetch Debian packages of any suite, from the mirror and by the proxies of this machine's apt configuration.
# The machine's own package sources stay unchanged.
# Reads: work (a folder that the caller removes).

apt_get() {  # one at a time: apt fails at once if another process holds its lists
  DEBIAN_FRONTEND=noninteractive flock -w 900 /run/lock/mcp-exec-apt.lock \
    apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}

apt_install() {  # PACKAGE...: install the missing ones; needs no network if none is missing
  local package missing=()
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "Installing Debian packages: ${missing[*]}" >&2
  # Third-party sources of this machine may be unreachable. The packages come from Debian's sources.
  apt_get update >&2 || true
  apt_get install -y --no-install-recommends "${missing[@]}" >/dev/null
}

apt_bootstrap() {  # SUITE FOLDER PACKAGE,...: install a minimal system and packages into FOLDER
  local mirror proxy=''
  mirror=$(apt_mirror) || fail "apt has no archive of Debian on this machine: add one to its sources and run \`apt-get update\`."
  # debootstrap can't read a list of mirrors, and takes its proxy only from the environment.
  case $mirror in mirror+file:*) mirror=$(awk '!/^#/ {print $1; exit}' "${mirror#mirror+file:}") ;; esac
  eval "$(apt-config shell proxy Acquire::http::Proxy)"
  [ "$proxy" != DIRECT ] || proxy=''
  http_proxy=${proxy:-${http_proxy:-}} debootstrap --variant=minbase --include="$3" "$1" "$2" "$mirror" > "$work/log" 2>&1 \
    || { tail -n 20 "$work/log" >&2; fail "debootstrap failed; see its log above."; }
}

apt_mirror() {  # print the address of the Debian archive of this machine's apt; fail if there is none
  local list=(apt-get indextargets --format "\$(REPO_URI)" "Created-By: Packages" "Origin: Debian" "Label: Debian" "Component: main")
  # Without package lists, apt does not know the origins.
  if [ -z "$("${list[@]}" 2>/dev/null)" ] && [ "$(id -u)" = 0 ]; then apt_get update >&2 || true; fi
  "${list[@]}" 2>/dev/null | sed -n '1s#/*$##p' | grep .
}

apt_suite() {  # SUITE: fetch its package lists and set `suite` to apt-get's options for it
  local name=$1 dir=$work/apt/$1
  local key=/usr/share/keyrings/debian-archive-keyring.gpg mirror
  suite=(-o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$dir/lists"
    -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User=root)
  [ ! -d "$dir" ] || return 0
  mirror=$(apt_mirror) || fail "apt has no archive of Debian on this machine: add one to its sources and run \`apt-get update\`."
  mkdir -p "$dir"/{lists/partial,cache/archives/partial}
  printf '%s [signed-by=%s] %s %s main\n' deb $key "$mirror" "$name" deb-src $key "$mirror" "$name" > "$dir/sources.list"
  apt_get "${suite[@]}" update >&2
}

apt_source() {  # SUITE PACKAGE: download its source archives into the current folder
  local suite
  apt_suite "$1"
  # A mirror may lack the .dsc. The builds need only the archives, whose hashes apt has checked.
  apt_get "${suite[@]}" source --download-only "$2" 2> source.log || ls "$2"_*.orig.tar.* >/dev/null 2>&1 \
    || { cat source.log >&2; return 1; }
}

apt_unpack() {  # SUITE FOLDER PACKAGE...: unpack the suite's versions into FOLDER without installing them
  local name=$1 folder=$2 suite package known version chosen=()
  shift 2
  apt_suite "$name"
  mkdir -p "$folder.debs" "$folder"
  # Each call of apt reads the lists of all packages, so there is one call for all.
  known=$(apt-cache "${suite[@]}" madison "$@")
  for package in "$@"; do
    # Without a version, apt prefers an installed newer one, which this suite does not have.
    version=$(awk -v name="$package" '$1 == name && /Packages/ {print $3; exit}' <<<"$known")
    [ -n "$version" ] || fail "Debian's $name has no package $package."
    chosen+=("$package=$version")
  done
  (cd "$folder.debs" && apt_get "${suite[@]}" download "${chosen[@]}")
  for package in "$folder.debs"/*.deb; do dpkg -x "$package" "$folder"; done
}
