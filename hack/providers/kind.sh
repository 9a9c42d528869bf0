# shellcheck shell=bash disable=SC2154  # hack/cluster sets root and kubeconfig
# Clusters of kind, whose nodes are containers of a Docker engine. KIND_CLUSTER_NAME is the cluster's name.

# `down` finds the name that `up` had by the context in the kubeconfig.
name=${KIND_CLUSTER_NAME:-$(sed -n 's/^current-context: kind-//p' "$kubeconfig" 2>/dev/null || true)}
name=${name:-mcp-exec}

provider_check() {
  engine_runs || fail "CLUSTER=kind needs a running Docker engine: install Docker and start it."
  has kind || "$root/hack/tools" kind >/dev/null || exit 1
  has kind || fail "CLUSTER=kind needs kind: install it."
}

provider_up() {
  if kind get clusters 2>/dev/null | grep -qx "$name"; then
    kind export kubeconfig --quiet --name "$name" --kubeconfig "$kubeconfig"
    return
  fi
  say "Creating a kind cluster"
  remember kind
  if [ -x "$root/hack/kind/up" ]; then
    "$root/hack/kind/up" "$name" "$kubeconfig"
  else
    kind create cluster --quiet --name "$name" --config "$root/hack/kind/kind.yaml" --kubeconfig "$kubeconfig" --wait 180s
  fi
}

provider_down() {
  (provider_check)
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

in_engine() {  # ARCHIVE IMAGE: succeed if the Docker engine has this image, or loads the archive that Docker wrote
  local id
  id=$(tar -xOf "$1" manifest.json 2>/dev/null | sed -En 's/.*"Config":"(blobs\/sha256\/)?([0-9a-f]{64}).*/\2/p') || return 1
  [ -n "$id" ] || return 1
  # Another checkout may have built this tag.
  [ "$(docker image inspect --format '{{.Id}}' "$2" 2>/dev/null)" = "sha256:$id" ] || docker load --quiet --input "$1" >/dev/null
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
