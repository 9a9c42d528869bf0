# shellcheck shell=bash
# Background processes of the cluster: started in sessions of their own, known by pid and start time.
# Reads: run.

started_at() {  # PID: the kernel's start time of a process that runs; fails for none and for zombies
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # The command's name stands in brackets and may hold blanks: count from behind it.
  read -ra fields <<<"${stat##*) }"
  [ "${fields[0]}" != Z ] && [ "${fields[0]}" != X ] && echo "${fields[19]}"
}

start() {  # NAME COMMAND...
  local name=$1
  shift
  # 9 is the lock of `devcluster` itself, which must not live as long as the cluster.
  printf '%s\0' "$@" > "$run/$name.command"
  setsid "$@" >> "$logs/$name.log" 2>&1 < /dev/null 9>&- &
  echo "$! $(started_at $!)" > "$run/$name.pid"
}

running() {  # NAME: a pid that another process got since then does not count
  local pid since
  read -r pid since 2>/dev/null < "$run/$1.pid" && [ "$(started_at "$pid")" = "$since" ]
}

ended() {  # PID: with all its threads, whose last one closes its sockets
  [ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -le 1 ] && ! started_at "$1"
}

stop() {  # NAME: asks, waits 5 seconds, kills
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
    [ $SECONDS -lt $until ] || fail "$what did not come up; its log is in $logs"
    sleep 0.2
  done
}
