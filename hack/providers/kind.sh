# shellcheck shell=bash disable=SC2154  # hack/cluster sets root, made and kubeconfig
# Clusters of kind, whose nodes are containers of a Docker engine. KIND_CLUSTER_NAME is the cluster's name.

# shellcheck source=hack/engine.sh
. "$root/hack/engine.sh"
# `down` finds the name that `up` had by the context in the kubeconfig.
name=${KIND_CLUSTER_NAME:-$(sed -n 's/^current-context: kind-//p' "$kubeconfig" 2>/dev/null || true)}
name=${name:-mcp-exec}
# An annotation of the namespace kube-system marks the project's clusters. Its value is the hash of their configuration.
mark=mcp-exec.dev/kind-config

provider_check() {
  query_engine
  [ -n "$problem" ] || check_system
  [ -n "$problem" ] || made_here || check_resources
  [ -z "$problem" ] || fail "$problem."
  has kind || { say "Fetching kind" 2>&3; "$root/hack/tools" kind >/dev/null || exit 1; }
  has kind || fail "kind is not installed: install it."
}

made_here() {
  [ "$(cat "$made" 2>/dev/null)" = kind ]
}

provider_up() {
  has kubectl || "$root/hack/tools" kubectl >/dev/null
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
  remember kind
  "$root/hack/kind/up" "$name" "$kubeconfig"
  kube annotate namespace kube-system --overwrite "$mark=$(content_hash hack/kind/kind.yaml)" >/dev/null
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
  if [ "$found" != "$(content_hash hack/kind/kind.yaml)" ]; then
    [ -n "$found" ] || made_here || fail "there is a kind cluster $name that these scripts did not make: $remedy."
    say "The kind cluster $name has another configuration than hack/kind/kind.yaml; \`kind delete cluster --name $name\` lets this make it again"
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
  query_engine
  [ -z "$problem" ] || fail "$problem."
  has kind || "$root/hack/tools" kind >/dev/null
  kind delete cluster --quiet --name "$name" --kubeconfig "$kubeconfig"
}

provider_load() {  # IMAGE...
  local image archive in_engine=() log
  for image in "$@"; do
    find_archive "$image"
    if in_engine "$archive" "localhost/mcp-exec-$image:${TAG:-dev}"; then
      in_engine+=("localhost/mcp-exec-$image:${TAG:-dev}")
    elif ! on_all_nodes "$archive"; then
      kind load image-archive "$archive" --name "$name" >/dev/null 2>&1 || fail "kind cannot load $archive: see \`kind load image-archive $archive --name $name\`."
      changed+=("$image")
    fi
  done
  [ ${#in_engine[@]} -gt 0 ] || return 0
  # kind skips the nodes that have an image by its ID, and prints those that have not. One call sends shared layers once.
  log=$(kind load docker-image "${in_engine[@]}" --name "$name" 2>&1) || fail "kind cannot load the images: $log."
  for image in "$@"; do
    ! grep -F "localhost/mcp-exec-$image:${TAG:-dev}" <<<"$log" | grep -Eq 'not yet present|missing the tag' || changed+=("$image")
  done
}

on_all_nodes() {  # ARCHIVE of buildah: succeed if each node has its image with the same content
  local index image digest node nodes
  index=$(tar -xOf "$1" index.json 2>/dev/null) || return 1
  image=$(sed -En 's/.*"org.opencontainers.image.ref.name": *"([^"]+)".*/\1/p' <<<"$index")
  digest=$(sed -En 's/.*"digest": *"([^"]+)".*/\1/p' <<<"$index")
  nodes=$(kind get nodes --name "$name" 2>/dev/null)
  [ -n "$image" ] && [ -n "$digest" ] && [ -n "$nodes" ] || return 1
  for node in $nodes; do
    docker exec "$node" ctr --namespace k8s.io images ls "name==$image" 2>/dev/null | grep -qF "$digest" || return 1
  done
}
