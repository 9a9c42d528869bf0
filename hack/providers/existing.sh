# shellcheck shell=bash disable=SC2154  # hack/cluster sets root, made and kubeconfig
# A cluster that somebody else made. KUBECONFIG names its kubeconfig. It pulls the images from IMAGE_REPOSITORY, or
# IMAGES_LOADED=yes says that its nodes have them.

provider_check() {
  local needs=''
  if [ -z "${KUBECONFIG:-}" ] && { [ ! -f "$kubeconfig" ] || [ "$(cat "$made" 2>/dev/null)" != existing ]; }; then
    needs="KUBECONFIG=FILE"
  fi
  if [ -z "${IMAGE_REPOSITORY:-}" ] && [ "${IMAGES_LOADED:-}" != yes ]; then
    needs="${needs:+$needs and }its images, either IMAGE_REPOSITORY=REPOSITORY after \`make push IMAGE_REPOSITORY=REPOSITORY\`, or IMAGES_LOADED=yes after \`make images\` and loading .cache/images/*.tar by the cluster's own means (minikube image load, k3s ctr images import)"
  fi
  [ -z "$needs" ] || fail "an existing cluster needs $needs."
}

provider_up() {
  local refused=''
  has kubectl || "$root/hack/tools" kubectl >/dev/null
  read_kubeconfig
  limit 30 kubectl --kubeconfig "$kubeconfig" get --raw /readyz >/dev/null 2>&1 \
    || fail "the API server at $(server) is not ready or not reachable: check KUBECONFIG$(proxy_hint)."
  check_rights
  [ "$(cat "$made" 2>/dev/null)" != existing ] || return 0
  if [ -z "$(kube get secrets --namespace mcp-exec-system --selector owner=helm,name=mcp-exec --output name 2>/dev/null)" ]; then
    remember existing
  else
    say "This cluster has a release mcp-exec that this checkout did not install: it is changed, and \`make down\` leaves it"
    remember existing kept
  fi
  say "This cluster needs a network plugin that enforces NetworkPolicies (such as Calico or Cilium): without one, no sandbox becomes ready"
}

read_kubeconfig() {
  [ -n "${KUBECONFIG:-}" ] || return 0
  (umask 077; kubectl config view --minify --flatten > "$kubeconfig.part" 2>/dev/null) \
    || fail "the kubeconfig $KUBECONFIG has no current context: choose one with \`kubectl config use-context\`."
  mv "$kubeconfig.part" "$kubeconfig"
}

server() {
  kubectl --kubeconfig "$kubeconfig" config view --output 'jsonpath={.clusters[0].cluster.server}'
}

proxy_hint() {
  [ -z "${HTTPS_PROXY:-${https_proxy:-}}" ] || echo ", and add the server's address to NO_PROXY unless the proxy leads to it"
}

check_rights() {  # the chart creates kinds, namespaces and roles
  local resource refused=''
  for resource in customresourcedefinitions.apiextensions.k8s.io namespaces clusterroles.rbac.authorization.k8s.io \
    clusterrolebindings.rbac.authorization.k8s.io; do
    limit 30 kubectl --kubeconfig "$kubeconfig" auth can-i create "$resource" >/dev/null 2>&1 || refused="$refused, ${resource%%.*}"
  done
  [ -z "$refused" ] || fail "the user of this kubeconfig may not create ${refused#, }: use a cluster administrator's."
}

provider_down() {
  if [ "$(cat "$made.detail" 2>/dev/null)" = kept ]; then
    say "The release mcp-exec stays, because it was there before: \`helm uninstall mcp-exec --namespace mcp-exec-system\` removes it"
    return
  fi
  "$root/hack/tools" >/dev/null
  if helm --kubeconfig "$kubeconfig" status mcp-exec --namespace mcp-exec-system >/dev/null 2>&1; then
    helm --kubeconfig "$kubeconfig" uninstall mcp-exec --namespace mcp-exec-system >&2
  fi
}

provider_load() {  # IMAGE...: the nodes must have them already
  # shellcheck source=hack/providers/node_images.sh
  . "$root/hack/providers/node_images.sh"
  check_node_images "$@"
}
