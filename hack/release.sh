# shellcheck shell=bash
# A cluster with the images in it, and the release on it.
# Reads: IMAGE_REPOSITORY, TAG. Sets: repository, tag, system, agents.

repository=${IMAGE_REPOSITORY:-localhost}
tag=${TAG:-dev}
system=mcp-exec-system agents=agents

ready_cluster() {  # a cluster with the images in it; sets KUBECONFIG
  "$root/hack/cluster" up
  # A registry's images were pushed by whoever named it.
  [ -n "${IMAGE_REPOSITORY:-}" ] || "$root/hack/images"
  "$root/hack/tools" >/dev/null
  "$root/hack/cluster" load
  KUBECONFIG=$("$root/hack/cluster" kubeconfig)
  export KUBECONFIG
}

install_release() {  # [HELM ARGUMENTS...] and waits until its sandboxes are warm
  local values=(--set "operator.image.repository=$repository/mcp-exec-operator" --set "operator.image.tag=$tag"
    --set "gateway.image.repository=$repository/mcp-exec-gateway" --set "gateway.image.tag=$tag"
    --set "broker.image.repository=$repository/mcp-exec-broker" --set "broker.image.tag=$tag"
    --set "servers.image.repository=$repository/mcp-exec-servers" --set "servers.image.tag=$tag"
    --set "pool.image=$repository/mcp-exec-sandbox:$tag")
  if kubectl get runtimeclass gvisor >/dev/null 2>&1; then
    values+=(--set pool.runtimeClassName=gvisor)
  else
    say "This cluster has no RuntimeClass gvisor: sandboxes run with its default runtime, a weaker wall"
  fi
  case $(helm status mcp-exec --namespace "$system" 2>/dev/null | sed -n 's/^STATUS: //p') in
    # Helm takes an installation that was killed for one that goes on.
    pending-install) helm uninstall mcp-exec --namespace "$system" --no-hooks >/dev/null ;;
    pending-*) helm rollback mcp-exec --namespace "$system" --no-hooks >/dev/null ;;
  esac
  say "Installing the chart"
  helm upgrade --install mcp-exec "$root/charts/mcp-exec" --namespace "$system" --create-namespace "${values[@]}" "$@" \
    --wait --timeout 5m >/dev/null
  say "Waiting for warm sandboxes"
  kubectl wait sbp/default --namespace "$agents" --for=condition=Ready --timeout=180s >/dev/null
}
