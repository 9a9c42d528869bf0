# shellcheck shell=bash disable=SC2154  # hack/cluster sets root and defines kube
# Check of the images that somebody loaded into the nodes of an existing cluster. A pod on each node, with a container of
# each image, writes the hash of the image's sources into its status.

label=app.kubernetes.io/name=mcp-exec-image-check
nodes_template='{{range .items}}{{if not (or .spec.unschedulable .spec.taints)}}{{.metadata.name}}{{"\n"}}{{end}}{{end}}'
# A line is: node, image, hash or the reason why there is none, and the image's ID.
# shellcheck disable=SC2016  # the variables are the template's
found_template='{{range .items}}{{$node := .spec.nodeName}}{{range .status.containerStatuses}}{{$node}} {{.name}} {{with .state}}{{if .terminated}}{{or .terminated.message "unknown"}}{{else if .waiting}}{{.waiting.reason}}{{else}}Running{{end}}{{end}} {{.imageID}}{{"\n"}}{{end}}{{end}}'
running_template='{{range .items}}{{if and .status.containerStatuses (not .metadata.deletionTimestamp)}}{{(index .spec.containers 0).image}} {{(index .status.containerStatuses 0).imageID}}{{"\n"}}{{end}}{{end}}'

check_node_images() {  # IMAGE...: fail unless all nodes have them of these sources; add those to `changed` that older pods run
  local nodes node found old number=0 end
  nodes=$(kube get nodes --output go-template="$nodes_template")
  [ -n "$nodes" ] || fail "this cluster has no schedulable node without taints: untaint one, or use IMAGE_REPOSITORY."
  say "Checking the images on the cluster's nodes"
  remove_checks
  trap remove_checks EXIT
  for node in $nodes; do
    number=$((number + 1))
    check_pod "$node" "$number" "$@" | kube create --namespace default --filename - >/dev/null \
      || fail "the namespace default refuses a pod that checks the images: see the message above, or use IMAGE_REPOSITORY."
  done
  end=$((SECONDS + 60))
  while found=$(kube get pods --namespace default --selector "$label" --output go-template="$found_template"); do
    [ "$(grep -Evc ' (ContainerCreating|PodInitializing|Running) ' <<<"$found")" -lt $((number * $#)) ] && [ $SECONDS -lt $end ] || break
    sleep 1
  done
  # The first file has the hashes, the second what was found.
  old=$(awk 'NR == FNR {wanted[$1] = $2; next} $3 != wanted[$2] {printf "%s%s on %s", comma, $2, $1; comma = ", "}' \
    <("$root/hack/images" sources) - <<<"$found")
  [ -z "$old" ] || fail "images are missing or older than their sources ($old): run \`make images\`, load .cache/images/*.tar into all nodes, and run this again."
  find_older "$found" "$@"
}

check_pod() {  # NODE NUMBER IMAGE...: print the pod
  local node=$1 number=$2 image
  shift 2
  cat <<Y
apiVersion: v1
kind: Pod
metadata: {name: mcp-exec-image-check-$$-$number, labels: {${label%%=*}: ${label#*=}}}
spec:
  nodeName: $node
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
Y
  for image in "$@"; do
    cat <<Y
  - name: $image
    image: localhost/mcp-exec-$image:${TAG:-dev}
    imagePullPolicy: Never
    command: [sh, -c, 'printf %s "\$(cat /usr/share/mcp-exec/sources)" > /dev/termination-log']
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 32Mi}}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
Y
  done
}

remove_checks() {
  kube delete pods --namespace default --selector "$label" --ignore-not-found --wait=false >/dev/null 2>&1 || true
}

find_older() {  # FOUND IMAGE...: the tag does not change, so pods that run keep an older image
  local found=$1 running image identity
  shift
  # shellcheck disable=SC2034  # hack/cluster reads it
  verb="Restarting pods of"
  running=$(kube get pods --all-namespaces --output go-template="$running_template")
  for image in "$@"; do
    while read -r identity; do
      awk -v image="$image" '$2 == image' <<<"$found" | grep -qF "$identity" || { changed+=("$image"); break; }
    done < <(awk -v image="localhost/mcp-exec-$image:${TAG:-dev}" '$1 == image {sub(/.*sha256:/, "", $2); print $2}' <<<"$running")
  done
}
