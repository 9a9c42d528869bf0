# The release before this checkout: the last revision of hack/releases.txt that is not this commit. Sourced after lib.sh.

find_before() {  # PURPOSE: set `commit` to that of the release before, and `before` to its folder in the cache
  local revision found=''
  commit=''
  while read -r revision; do
    found=$(git -C "$root" rev-parse --quiet --verify "$revision^{commit}") \
      || fail "hack/releases.txt names $revision, which this clone lacks: fetch the whole history with its tags."
    [ "$found" = "$(git -C "$root" rev-parse HEAD)" ] || commit=$found
  done < <(sed '/^#/d' "$root/hack/releases.txt")
  [ -n "$commit" ] || fail "hack/releases.txt names no revision before this one, so there is nothing to $1 from: add a tag or a commit to it."
  before=$cache/releases/$commit
}

unpack_before() {  # write the files of `commit` into the folder `before`, unless they are there
  [ ! -f "$before/unpacked" ] || return 0
  rm -rf "$before"
  mkdir -p "$before"
  git -C "$root" archive "$commit" | tar -xf - -C "$before"
  touch "$before/unpacked"
}
