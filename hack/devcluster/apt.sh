# shellcheck shell=bash
# Debian packages of any suite, without touching the machine's own package sources.
# Reads: work (a folder that its caller removes).

apt_get() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}

apt_install() {  # PACKAGE...: installs what is missing; no network when nothing is
  local package missing=()
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "Installing Debian packages: ${missing[*]}" >&2
  # Third-party sources of this machine may be unreachable; what is needed comes from Debian's.
  apt_get update >&2 || true
  apt_get install -y --no-install-recommends "${missing[@]}" >/dev/null
}

apt_suite() {  # SUITE: sets `suite` to apt-get's options for it, after fetching its lists
  local name=$1 dir=$work/apt/$1
  local key=/usr/share/keyrings/debian-archive-keyring.gpg mirror=http://deb.debian.org/debian
  suite=(-o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$dir/lists"
    -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User=root)
  [ ! -d "$dir" ] || return 0
  mkdir -p "$dir"/{lists/partial,cache/archives/partial}
  printf '%s [signed-by=%s] %s %s main\n' deb $key $mirror "$name" deb-src $key $mirror "$name" > "$dir/sources.list"
  apt_get "${suite[@]}" update >&2
}

apt_source() {  # SUITE PACKAGE: its source archives, into the current folder
  local suite
  apt_suite "$1"
  # A mirror may lack the .dsc; the archives, whose hashes apt has checked, are what the builds need.
  apt_get "${suite[@]}" source --download-only "$2" || ls "$2"_*.orig.tar.* >/dev/null
}

apt_unpack() {  # SUITE FOLDER PACKAGE...: unpacks the suite's versions into FOLDER, installing nothing
  local name=$1 folder=$2 suite package version
  shift 2
  apt_suite "$name"
  mkdir -p "$folder.debs" "$folder"
  for package in "$@"; do
    # Without a version apt would prefer an installed, newer one that this suite can't deliver.
    version=$(apt-cache "${suite[@]}" madison "$package" | awk -F'|' '/Packages/{gsub(/ /, "", $2); print $2; exit}')
    (cd "$folder.debs" && apt_get "${suite[@]}" download "$package=$version")
  done
  for package in "$folder.debs"/*.deb; do dpkg -x "$package" "$folder"; done
}

apt_unpack_all() {  # SUITE FOLDER PACKAGE...: unpacks the suite's versions and all that they need into FOLDER
  local name=$1 folder=$2 suite deb
  shift 2
  apt_suite "$name"
  # By a list of nothing installed, apt gets everything from the suite, and this machine keeps what it has.
  apt_get "${suite[@]}" -o Dir::State::Status=/dev/null install --download-only --no-install-recommends -y "$@" >&2
  mkdir -p "$folder"
  for deb in "$work/apt/$name"/cache/archives/*.deb; do dpkg -x "$deb" "$folder"; done
}
