# shellcheck shell=bash disable=SC2154  # hack/cluster sets root, made and kubeconfig
# A cluster that somebody else made. KUBECONFIG names its kubeconfig, and its images come from IMAGE_REPOSITORY.

provider_check() {
  [ -n "${KUBECONFIG:-}" ] || [ -f "$made" ] || fail "it needs KUBECONFIG=FILE: set it to the cluster's kubeconfig."
}

provider_up() {
  if [ -n "${KUBECONFIG:-}" ]; then
    (umask 077; kubectl config view --minify --flatten > "$kubeconfig.part")
    mv "$kubeconfig.part" "$kubeconfig"
  fi
  remember existing
  kubectl --kubeconfig "$kubeconfig" get --raw /readyz >/dev/null || fail "the API server of that KUBECONFIG is not ready."
}

provider_down() {
  "$root/hack/tools" >/dev/null
  if helm --kubeconfig "$kubeconfig" status mcp-exec --namespace mcp-exec-system >/dev/null 2>&1; then
    helm --kubeconfig "$kubeconfig" uninstall mcp-exec --namespace mcp-exec-system >&2
  fi
}

provider_load() {
  [ -n "${IMAGE_REPOSITORY:-}" ] || fail "an existing cluster pulls its images: push .cache/images/*.tar to your registry as REPOSITORY/mcp-exec-{sandbox,operator,gateway,broker,servers}:${TAG:-dev} and set IMAGE_REPOSITORY=REPOSITORY."
}
