# shellcheck shell=bash disable=SC2034  # `url` is for the scripts that source this file
# Functions that find the gateway of the release and its keys. Reads: provider, system, agents, root.

find_gateway() {  # set `url`
  local address
  if [ "$provider" = devcluster ]; then  # this machine is its node, which reaches the Service's address
    export MCP_EXEC_PLAIN_HTTP=yes  # the packets do not leave this machine
    address=$(kubectl get service mcp-exec-gateway --namespace $system -o jsonpath='{.spec.clusterIP}')
    url=http://$address
  else
    forward_port
  fi
}

forward_port() {  # set `url` to a free port of this machine, which ends with this script
  local log end=$((SECONDS + 30)) line=''
  log=$(mktemp)
  kubectl port-forward --namespace $system service/mcp-exec-gateway :80 >"$log" 2>&1 &
  forward_pid=$!
  # shellcheck disable=SC2064  # the values of now
  trap "kill $forward_pid 2>/dev/null || true; rm -f '$log'" EXIT
  while [ -z "$line" ] && [ $SECONDS -lt $end ] && kill -0 "$forward_pid" 2>/dev/null; do
    sleep 0.1
    line=$(grep -m 1 '^Forwarding from 127.0.0.1:' "$log" || true)
  done
  [[ $line =~ 127.0.0.1:([0-9]+) ]] || fail "kubectl port-forward to the gateway did not start within 30 seconds: $(tail -n 1 "$log")"
  url=http://127.0.0.1:${BASH_REMATCH[1]}
}

read_api_key() {  # print the key that the operator has created; wait a minute for it, because an upgrade may replace it
  local end=$((SECONDS + 60))
  until kubectl get secret mcp-exec-initial-api-key --namespace "$system" >/dev/null 2>&1 || [ $SECONDS -ge $end ]; do
    sleep 1
  done
  # kubectl decodes, because not every `base64` has the same options.
  kubectl get secret mcp-exec-initial-api-key --namespace "$system" -o go-template='{{index .data "api-key" | base64decode}}'
}

make_approver() {  # make an API key `approver`, which may decide on calls, skills and rollouts, and keep it in a Secret
  local made patch secret python="${VENV:-$root/.venv}/bin/python"
  if kubectl get secret mcp-exec-approver-api-key --namespace "$system" >/dev/null 2>&1 &&
    [ -n "$(kubectl get secret mcp-exec-api-keys --namespace "$system" -o jsonpath='{.data.approver}')" ]; then
    return
  fi
  made=$(kubectl exec --namespace "$system" deploy/mcp-exec-gateway -- python3 -m mcp_exec_gateway.create_key approver --namespace "$agents" --approver --output json)
  patch=$("$python" -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["patch"]))' <<<"$made")
  secret=$("$python" -c 'import json, sys; print(json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mcp-exec-approver-api-key"}, "stringData": {"api-key": json.load(sys.stdin)["key"]}}))' <<<"$made")
  kubectl patch secret mcp-exec-api-keys --namespace "$system" --type merge -p "$patch" >/dev/null
  kubectl apply --namespace "$system" -f - >/dev/null <<<"$secret"
}
