# shellcheck shell=bash
# Variables and functions of all scripts in this folder, for bash 3.2 and the commands of Linux and macOS.
# Sets: root, cache, tools.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${MCP_EXEC_CACHE:-$HOME/.cache/mcp-exec}
# Another lock has tools of its own.
tools=$cache/tools/$({ cksum "$root/locks/tools.txt" 2>/dev/null || true; } | cut -d' ' -f1)
# The machine's own commands come first.
export PATH=$PATH:$tools
# Images and nodes are of the Docker engine's architecture.
unset DOCKER_DEFAULT_PLATFORM

fail() {
  echo "hack/$(basename "$0"): $*" >&2
  exit 1
}

say() {
  echo "==> $*" >&2
}

has() {  # COMMAND
  command -v "$1" >/dev/null 2>&1
}

find_python() {  # print an interpreter that the project runs on; PYTHON names another one
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$candidate" && return
  done
  return 1
}

limit() {  # SECONDS COMMAND...: run a command, and end it after that time with status 124; macOS has no `timeout`
  if has timeout; then
    timeout -k 5 "$@"
    return
  fi
  # Programs in Go ignore SIGALRM, so an alarm that survives exec would not do.
  python3 -c 'import subprocess, sys
try:
    sys.exit(subprocess.run(sys.argv[2:], timeout=float(sys.argv[1])).returncode)
except subprocess.TimeoutExpired:
    sys.exit(124)' "$@"
}

lock() {  # FILE SECONDS: hold the lock until this script ends; fail if another process holds it for so long
  mkdir -p "$(dirname "$1")"
  exec 9>"$1"
  if has flock; then
    flock -w "$2" 9
    return
  fi
  # The lock belongs to the open file, which this shell shares with the command.
  python3 -c 'import fcntl, signal, sys
signal.alarm(int(sys.argv[1]))
fcntl.flock(9, fcntl.LOCK_EX)' "$2"
}

# Prints checksums as sha256sum does, which macOS lacks.
sha256=(sha256sum)
has sha256sum || sha256=(shasum -a 256)

engine_runs() {  # a docker client without an engine does not count
  has docker && limit 20 docker info >/dev/null 2>&1
}

debian_root() {
  has apt-get && [ "$(id -u)" = 0 ]
}

apt_get() {  # one at a time: apt fails at once if another process holds its lists
  DEBIAN_FRONTEND=noninteractive flock -w 900 /run/lock/mcp-exec-apt.lock \
    apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}

content_hash() {  # FILE|FOLDER...: print a hash of names and contents below the checkout, without bytecode
  (cd "$root" && find "$@" -type f -not -name '*.pyc' -print | LC_ALL=C sort | tr '\n' '\0' | xargs -0 "${sha256[@]}") \
    | "${sha256[@]}" | cut -c1-16
}
