# shellcheck shell=bash
# Functions that find the gateway of the release and its first key. Reads: provider, system.

find_gateway() {  # set `url`
  local address
  if [ "$provider" = devcluster ]; then  # this machine is its node, which reaches the Service's address
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

read_api_key() {  # print the key that the chart created
  # kubectl decodes, because not every `base64` has the same options.
  kubectl get secret mcp-exec-initial-api-key --namespace "$system" -o go-template='{{index .data "api-key" | base64decode}}'
}
