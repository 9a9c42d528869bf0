# shellcheck shell=bash disable=SC2154  # `root`, `cache` and the functions are of hack/lib.sh
# Virtual environments of packages that conflict with each other, by lock files. Reads: root, cache, VENV.

environment() {  # LOCK: install a file of locks into an environment of its own in the cache, unless it is there
  local file=$1 name folder wanted python=${VENV:-$root/.venv}/bin/python
  name=$(basename "$file" .txt)
  folder=$cache/frameworks/$name
  wanted=$(content_hash "${file#"$root"/}")
  [ "$(cat "$folder/made-from" 2>/dev/null)" != "$wanted" ] || return 0
  say "Installing $name"
  rm -rf "$folder"
  "$python" -m venv "$folder"
  "$folder/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --require-hashes --no-compile -r "$file"
  echo "$wanted" > "$folder/made-from"
}
