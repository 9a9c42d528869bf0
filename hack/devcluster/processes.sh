# shellcheck shell=bash
# Functions for the cluster's background processes. Each has its own session and is identified by pid and start time.
# Reads: run.

started_at() {  # PID: print the kernel's start time of a running process; fail if there is none or if it is a zombie
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # The command's name is in parentheses and may contain spaces: count the fields after it.
  read -ra fields <<<"${stat##*) }"
  [ "${fields[0]}" != Z ] && [ "${fields[0]}" != X ] && echo "${fields[19]}"
}

start() {  # NAME COMMAND...
  local name=$1
  shift
  # File descriptor 9 is the lock of `devcluster`, which the cluster must not hold.
  printf '%s\0' "$@" > "$run/$name.command"
  setsid "$@" >> "$logs/$name.log" 2>&1 < /dev/null 9>&- &
  echo "$! $(started_at $!)" > "$run/$name.pid"
}

running() {  # NAME: succeed if the process runs; a pid that was reused by another process does not count
  local pid since
  read -r pid since 2>/dev/null < "$run/$1.pid" && [ "$(started_at "$pid")" = "$since" ]
}

ended() {  # PID: succeed if the process and all its threads ended; the last thread closes its sockets
  [ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -le 1 ] && ! started_at "$1"
}

stop() {  # NAME: send SIGTERM, wait 5 seconds, send SIGKILL
  local pid
  running "$1" || return 0
  read -r pid _ < "$run/$1.pid"
  kill "$pid"
  for _ in $(seq 50); do
    running "$1" || return 0
    sleep 0.1
  done
  kill -9 "$pid" 2>/dev/null || true
}

wait_for() {  # SECONDS WHAT COMMAND...
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || fail "timed out waiting for $what; see the logs in $logs."
    sleep 0.2
  done
}
