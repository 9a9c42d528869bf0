# shellcheck shell=bash disable=SC2154  # hack/cluster sets root, made and kubeconfig
# Clusters of kind, whose nodes are containers of a Docker engine. KIND_CLUSTER_NAME is the cluster's name.

# shellcheck source=hack/engine.sh
. "$root/hack/engine.sh"
# The name that `create` had is recorded; that of a cluster that was there is in the kubeconfig's context.
case $(cat "$made" 2>/dev/null) in
  kind) previous=$(grep . "$made.detail" 2>/dev/null || true) ;;
  *) previous='' ;;
esac
[ -n "$previous" ] || [ "$(cat "$made" 2>/dev/null)" = existing ] \
  || previous=$(sed -n 's/^current-context: kind-//p' "$kubeconfig" 2>/dev/null || true)
name=${KIND_CLUSTER_NAME:-${previous:-mcp-exec}}
# A kind that was fetched is the one that the node images of locks/kind.txt are made for.
[ ! -x "$tools/kind" ] || PATH=$tools:$PATH
# An annotation of the namespace kube-system marks the project's clusters. Its value is their configuration.
mark=mcp-exec.dev/kind-config
configuration=$(content_hash hack/kind/kind.yaml)${KIND_CNI:+-$KIND_CNI}

provider_check() {
  query_engine
  [ -n "$problem" ] || check_system
  [ -n "$problem" ] || made_here || check_resources
  [ -z "$problem" ] || fail "$problem."
  has kind || { say "Fetching kind" 2>&3; "$root/hack/tools" kind >/dev/null || exit 1; }
  made_here || replace_old_kind
}

replace_old_kind() {  # an older kind can't create clusters of newer node images, or can't load images into their nodes
  local installed locked
  installed=$(limit 20 kind version 2>/dev/null | sed -n 's/^kind v0\.\([0-9][0-9]*\)\..*/\1/p')
  locked=$(sed -n 's/^kind v0\.\([0-9][0-9]*\)\..*/\1/p' "$root/locks/tools.txt" 2>/dev/null | head -n 1)
  [ "${installed:-$((1 << 20))}" -lt "${locked:-0}" ] || return 0
  say "Fetching kind v0.$locked, because $(command -v kind) is v0.$installed" 2>&3
  "$root/hack/tools" --own kind >/dev/null 2>&1 || say "It can't be fetched, so kind v0.$installed is tried" 2>&3
}

made_here() {
  [ "$(cat "$made" 2>/dev/null)" = kind ]
}

provider_up() {
  if made_here && [ "${previous:-$name}" != "$name" ]; then
    fail "this checkout has the kind cluster $previous: run \`make down\` first, or unset KIND_CLUSTER_NAME to use it."
  fi
  has kubectl || "$root/hack/tools" kubectl >/dev/null
  # Another checkout may be creating a cluster of this name.
  lock "$cache/kind-$name.lock" 2400 || fail "another process has held $cache/kind-$name.lock for 40 minutes."
  if limit 60 kind get clusters 2>/dev/null | grep -qx "$name"; then
    reuse
  else
    create
  fi
}

create() {
  query_engine
  check_disk
  [ -z "$problem" ] || say "Warning: $problem"
  remember kind "$name"
  "$root/hack/kind/up" "$name" "$kubeconfig"
  kube annotate namespace kube-system --overwrite "$mark=$configuration" >/dev/null
}

reuse() {  # the cluster of that name, if it is this project's and works
  local found started='' remedy="remove it with \`kind delete cluster --name $name\`, or set KIND_CLUSTER_NAME to another name"
  if made_here; then
    remedy="run \`make down\` and run this again"
    start_nodes
  fi
  limit 60 kind export kubeconfig --quiet --name "$name" --kubeconfig "$kubeconfig" 2>/dev/null \
    || fail "there is a kind cluster $name whose nodes do not run: $remedy."
  ready || fail "there is a kind cluster $name that is not ready: $remedy."
  found=$(kube get namespace kube-system --output 'jsonpath={.metadata.annotations.mcp-exec\.dev/kind-config}')
  if [ "$found" != "$configuration" ]; then
    [ -n "$found" ] || ! made_here || fail "the kind cluster $name is incomplete, because its creation was interrupted: $remedy."
    [ -n "$found" ] || fail "there is a kind cluster $name that these scripts did not make: $remedy."
    say "The kind cluster $name has another configuration than hack/kind/kind.yaml and KIND_CNI; \`kind delete cluster --name $name\` lets this make it again"
  fi
}

start_nodes() {  # containers stay stopped after the engine's restart; set `started` if there are such nodes
  local node
  for node in $(limit 60 kind get nodes --name "$name" 2>/dev/null); do
    [ "$(docker inspect --format '{{.State.Running}}' "$node" 2>/dev/null)" = false ] || continue
    say "Starting the node $node"
    docker start "$node" >/dev/null
    started=yes
  done
}

ready() {  # the API server answers at once, or within two minutes if nodes were started
  local command="kubectl --kubeconfig '$kubeconfig' --request-timeout 10s get --raw /readyz"
  [ -z "$started" ] || command="until $command; do sleep 1; done"
  limit 120 bash -c "$command" >/dev/null 2>&1 && kube wait --for=condition=Ready nodes --all --timeout=60s >/dev/null 2>&1
}

provider_down() {
  local said
  query_engine
  [ -z "$problem" ] || fail "$problem."
  has kind || "$root/hack/tools" kind >/dev/null
  said=$(limit 300 kind delete cluster --name "${previous:-$name}" --kubeconfig "$kubeconfig" 2>&1) \
    || fail "kind can't delete the cluster ${previous:-$name}: $(tail -n 1 <<<"$said")."
}

provider_load() {  # IMAGE...
  local image found reference in_engine=()
  for image in "$@"; do find_archive "$image"; done
  found=$(node_images "$@")
  for image in "$@"; do
    find_archive "$image"
    reference=localhost/mcp-exec-$image:${TAG:-dev}
    ! on_all_nodes "$reference" "$(image_id "$archive")" || continue
    changed+=("$image")
    if in_engine "$archive" "$reference"; then
      in_engine+=("$reference")
    else
      load_by_kind image-archive "$archive"
    fi
  done
  # One call sends the layers once that images share.
  [ ${#in_engine[@]} = 0 ] || load_by_kind docker-image "${in_engine[@]}"
}

load_by_kind() {  # WAY IMAGE...
  local said
  said=$(limit 1200 kind load "$@" --name "$name" 2>&1) || fail "kind can't load ${*:2} into the nodes of $name: $(tail -n 1 <<<"$said")"
}

node_images() {  # IMAGE...: print a line for each node and image: node, reference and ID
  local node references=("${@/#/localhost/mcp-exec-}")
  references=("${references[@]/%/:${TAG:-dev}}")
  for node in $(limit 60 kind get nodes --name "$name" 2>/dev/null); do
    # shellcheck disable=SC2016  # the node's shell expands it
    limit 60 docker exec "$node" sh -c 'node=$1; shift; for image; do
      echo "$node $image" $(crictl inspecti --output json "$image" 2>/dev/null | tr -d " \n" | grep -o "\"id\":\"sha256:[0-9a-f]*")
    done' sh "$node" "${references[@]}" 2>/dev/null || echo "$node"
  done
}

on_all_nodes() {  # REFERENCE ID: succeed if each line of `found` for this image has this ID
  [ -n "$2" ] && ! grep -F " $1" <<<"$found" | grep -qvF "$2" && grep -qF " $1 " <<<"$found" && ! grep -qE '^[^ ]+$' <<<"$found"
}
