# shellcheck shell=bash
# Functions that change the machine for a cluster (except its processes), and their inverses.
# Reads: run, state, node_ip, pod_net, service_net, cgroup.

# The kernel settings that kubelet, kube-proxy and `up` change.
sysctls=(net.ipv4.ip_forward net.ipv4.conf.all.route_localnet vm.overcommit_memory vm.panic_on_oom kernel.panic
  kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes)

remember_sysctls() {
  sysctl "${sysctls[@]}" > "$state/sysctls" 2>/dev/null || true
}

restore_sysctls() {
  [ ! -f "$state/sysctls" ] || sysctl -qp "$state/sysctls" >/dev/null 2>&1 || true
}

make_cgroup() {  # one root for all pods, so that `down` finds all their processes
  local hierarchy
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    sed 's/\([a-z]\)/+\1/; s/ / +/g' /sys/fs/cgroup/cgroup.controllers > /sys/fs/cgroup/cgroup.subtree_control || true
    mkdir -p "/sys/fs/cgroup/$cgroup"
    return
  fi
  for hierarchy in /sys/fs/cgroup/*/; do mkdir -p "$hierarchy$cgroup" 2>/dev/null || true; done
}

remove_cgroup() {  # kill every process in it and remove it
  local folder
  for folder in /sys/fs/cgroup/"$cgroup" /sys/fs/cgroup/*/"$cgroup"; do
    [ -d "$folder" ] || continue
    for _ in $(seq 50); do
      find "$folder" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | xargs -r kill -9 2>/dev/null || true
      find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null && break
      sleep 0.1
    done
  done
}

make_network() {
  sysctl -qw net.ipv4.ip_forward=1
  ip link add devcluster0 type bridge
  ip addr add "$node_ip/32" dev devcluster0
  # Tests that the cloud's metadata service is unreachable use this address of the machine.
  ip addr add 169.254.169.254/32 dev devcluster0
  ip link set devcluster0 up
  [ "${DEVCLUSTER_INTERNET:-no}" = yes ] || nft -f - <<N
table inet devcluster {
  chain forward {
    type filter hook forward priority -10; policy accept;
    ip saddr $pod_net ip daddr != { $pod_net, $service_net, $node_ip } drop
  }
}
N
}

remove_network() {
  local name tool
  # The kernel removes veth pairs with their namespace, but with a delay.
  ip -o addr show to "$pod_net" | grep -oE 'veth[0-9a-f]+' | sort -u | xargs -r -n1 ip link del 2>/dev/null || true
  grep -shoE 'cni-[0-9a-f-]{36}' <(ip -o netns list) | xargs -r -n1 ip netns del 2>/dev/null || true
  ip link del devcluster0 2>/dev/null || true
  for name in devcluster netpol; do nft delete table inet $name 2>/dev/null || true; done
  for tool in iptables ip6tables; do
    for name in nat filter mangle; do remove_rules $tool $name; done
  done
}

remove_rules() {  # TOOL TABLE: remove the chains of kubelet, kube-proxy and CNI; keep the order and counters of others
  local tool=$1 table=$2 family=ip before after
  [ "$tool" = iptables ] || family=ip6
  before=$("$tool-save" -c -t "$table" 2>/dev/null) || return 0
  after=$(grep -vE '(^:|-A |-j )(KUBE|CNI)-' <<<"$before")
  [ "$before" = "$after" ] || "$tool-restore" -c <<<"$after"
  # A table that is empty now was created for the cluster.
  grep -qE '^\[|^:[A-Z]+ (DROP|-)' <<<"$after" || nft delete table "$family" "$table" 2>/dev/null || true
}

unmount_all() {
  awk -v a="$state/" -v b="$run/" 'index($2, a) == 1 || index($2, b) == 1 {print $2}' /proc/mounts \
    | sort -r | xargs -r umount -l || true
}

remove_shims() {  # shims survive a killed containerd; each has this cluster's socket in its command line
  pgrep -f "containerd-shim-run(c|sc)-v[12] .*$run/containerd.sock" | xargs -r kill -9 2>/dev/null || true
}

remove_files() {
  rm -rf "$run" "$state" /run/containerd/run{c,sc}/k8s.io /var/lib/cni/results/{devcluster,cni-loopback}-*
  # Shims create their sockets there regardless of the configuration. Those of another containerd are kept.
  pgrep -x containerd >/dev/null || rm -rf /run/containerd/s
  rm -f /var/lib/kubelet/device-plugins/{DEPRECATION,kubelet.sock}
  rmdir /run/containerd/run{c,sc} /run/containerd /var/lib/cni/{networks,results,} /run/netns /run/mount \
    /var/lib/kubelet/device-plugins /var/lib/kubelet 2>/dev/null || true
}
