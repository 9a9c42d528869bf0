# shellcheck shell=bash
# Functions that prepare a cluster with the images, and install the release on it.
# Reads: IMAGE_REPOSITORY, IMAGES_LOADED, TAG. Sets: repository, tag, system, agents, provider.

repository=${IMAGE_REPOSITORY:-localhost}
tag=${TAG:-dev}
[ -z "${IMAGE_REPOSITORY:-}" ] || tag=$("$root/hack/push" tag)
system=mcp-exec-system agents=agents

ready_cluster() {  # start a cluster, load the images and set KUBECONFIG
  local images=
  has python3 || "$root/hack/venv"  # which installs it on Debian
  "$root/hack/tools" >/dev/null
  # A registry or the nodes may already have the images. Otherwise both take minutes, and neither uses all processors.
  # Only the images need the virtual environment, which is fetched meanwhile if there is none.
  if [ -z "${IMAGE_REPOSITORY:-}" ] && [ "${IMAGES_LOADED:-}" != yes ]; then
    { "$root/hack/venv" && exec "$root/hack/images"; } < /dev/null &
    images=$!
    # A job in the background ignores Ctrl-C.
    trap 'kill "$images"; exit 130' INT TERM
  else
    "$root/hack/venv"
  fi
  if ! provider=$("$root/hack/cluster" up); then
    [ -z "$images" ] || kill "$images"
    exit 1
  fi
  # The choice may take long, for example to find that kind can't be fetched.
  export CLUSTER=$provider
  [ -z "$images" ] || wait "$images"
  trap - INT TERM
  "$root/hack/cluster" load
  KUBECONFIG=$("$root/hack/cluster" kubeconfig)
  export KUBECONFIG
  bypass_proxies
}

bypass_proxies() {  # let the programs of this machine reach the cluster and forwarded ports without the proxies
  if [ "$provider" = existing ]; then
    # A proxy may lead to the cluster. Forwarded ports are here.
    NO_PROXY=${NO_PROXY:-${no_proxy:-}}
    export NO_PROXY="${NO_PROXY:+$NO_PROXY,}127.0.0.1,localhost,::1"
    export no_proxy=$NO_PROXY
  else
    # Python's httpx compares NO_PROXY with names and addresses, not with networks. All addresses are of this machine.
    unset HTTP_PROXY http_proxy HTTPS_PROXY https_proxy ALL_PROXY all_proxy
  fi
}

install_release() {  # [HELM ARGUMENTS...]: install the chart and wait until its sandboxes are warm
  local values=(--set "images.repository=$repository" --set-string "images.tag=$tag") minor
  if ! kubectl get runtimeclass gvisor >/dev/null 2>&1; then
    say "This cluster has no RuntimeClass gvisor: sandboxes run with its default runtime, which isolates less"
    values+=(--set pool.runtimeClassName=NodeDefault)
  fi
  # clusters for trials may have no StorageClass
  values+=(--set broker.audit.persistence.enabled=false --set broker.files.enabled=true --set broker.files.volume.temporary=true
    --set broker.records.enabled=true --set broker.records.volume.temporary=true)
  # Helm 4 applies on the server, where Kubernetes before 1.25 refuses the rules of the CRDs.
  minor=$(kubectl get --raw /version | sed -n 's/.*"minor": *"\([0-9]*\).*/\1/p')
  if [[ $(helm version --short) == v4.* ]] && [ "${minor:-25}" -lt 25 ]; then values+=(--server-side=false); fi
  case $(helm status mcp-exec --namespace "$system" 2>/dev/null | sed -n 's/^STATUS: //p') in
    # For Helm, an installation that was killed is still in progress.
    pending-install) helm uninstall mcp-exec --namespace "$system" --no-hooks >/dev/null ;;
    pending-*) helm rollback mcp-exec --namespace "$system" --no-hooks >/dev/null ;;
  esac
  say "Installing the chart"
  kubectl create namespace "$system" >/dev/null 2>&1 || true
  # Kubernetes 1.23 and later then admit only pods of the strictest level.
  kubectl label namespace "$system" --overwrite pod-security.kubernetes.io/enforce=restricted >/dev/null
  helm upgrade --install mcp-exec "$root/charts/mcp-exec" --namespace "$system" "${values[@]}" "$@" \
    --wait --timeout 5m >/dev/null
  say "Waiting for warm sandboxes"
  kubectl wait sbp/default --namespace "$agents" --for=condition=Ready --timeout=180s >/dev/null 2>&1 \
    || fail "no sandbox became ready within 3 minutes: $(pool_message)"
}

pool_message() {  # print why the pool is not ready, as far as it knows
  kubectl get sbp/default --namespace "$agents" --output 'jsonpath={.status.conditions[?(@.type=="Ready")].message}' 2>/dev/null \
    | grep . || echo "see \`kubectl describe sbp default -n $agents\` and the pods there."
}
