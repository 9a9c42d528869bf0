# shellcheck shell=bash
# Functions that prepare a cluster with the images, and install the release on it.
# Reads: IMAGE_REPOSITORY, TAG. Sets: repository, tag, system, agents.

repository=${IMAGE_REPOSITORY:-localhost}
tag=${TAG:-dev}
system=mcp-exec-system agents=agents

ready_cluster() {  # start a cluster, load the images and set KUBECONFIG
  "$root/hack/cluster" up
  # With IMAGE_REPOSITORY, the registry already has the images.
  [ -n "${IMAGE_REPOSITORY:-}" ] || "$root/hack/images"
  "$root/hack/tools" >/dev/null
  "$root/hack/cluster" load
  KUBECONFIG=$("$root/hack/cluster" kubeconfig)
  export KUBECONFIG
}

install_release() {  # [HELM ARGUMENTS...]: install the chart and wait until its sandboxes are warm
  local values=(--set "operator.image.repository=$repository/mcp-exec-operator" --set "operator.image.tag=$tag"
    --set "gateway.image.repository=$repository/mcp-exec-gateway" --set "gateway.image.tag=$tag"
    --set "broker.image.repository=$repository/mcp-exec-broker" --set "broker.image.tag=$tag"
    --set "servers.image.repository=$repository/mcp-exec-servers" --set "servers.image.tag=$tag"
    --set "pool.image=$repository/mcp-exec-sandbox:$tag")
  if kubectl get runtimeclass gvisor >/dev/null 2>&1; then
    values+=(--set pool.runtimeClassName=gvisor)
  else
    say "This cluster has no RuntimeClass gvisor: sandboxes run with its default runtime, which isolates less"
    values+=(--set pool.runtimeClassName=NodeDefault)
  fi
  case $(helm status mcp-exec --namespace "$system" 2>/dev/null | sed -n 's/^STATUS: //p') in
    # For Helm, an installation that was killed is still in progress.
    pending-install) helm uninstall mcp-exec --namespace "$system" --no-hooks >/dev/null ;;
    pending-*) helm rollback mcp-exec --namespace "$system" --no-hooks >/dev/null ;;
  esac
  say "Installing the chart"
  helm upgrade --install mcp-exec "$root/charts/mcp-exec" --namespace "$system" --create-namespace "${values[@]}" "$@" \
    --wait --timeout 5m >/dev/null
  say "Waiting for warm sandboxes"
  kubectl wait sbp/default --namespace "$agents" --for=condition=Ready --timeout=180s >/dev/null
}
