# shellcheck shell=bash
# Functions that write the configuration files of one cluster.
# Reads: run, state, pki, pod_net, cgroup, binaries, minor.

write_configs() {
  write_audit_policy > "$run/audit-policy.yaml"
  write_runsc_config > "$run/runsc.toml"
  write_containerd_config > "$run/containerd.toml"
  write_pod_network > "$run/cni/10-pods.conflist"
  write_kubelet_config > "$run/kubelet.yaml"
  write_proxy_config > "$run/proxy.yaml"
}

write_audit_policy() {  # every write except the node's heartbeats, without bodies
  cat <<'Y'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  userGroups: [system:nodes]
  resources:
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: "", resources: [nodes, nodes/status]}
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
Y
}

write_runsc_config() {
  cat <<Y
root = "$run/runsc"
[runsc_config]
  platform = "systrap"
Y
}

write_containerd_config() {
  cat <<Y
version = 2
root = "$state/containerd"
state = "$run/containerd"
[grpc]
  address = "$run/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$state/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true  # for machines without CAP_SYS_RESOURCE
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$run/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "$run/runc"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc]
    runtime_type = "io.containerd.runsc.v1"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc.options]
      TypeUrl = "io.containerd.runsc.v1.options"
      ConfigPath = "$run/runsc.toml"
Y
  [ -n "$binaries" ] || return 0
  cat <<'Y'
[plugins."io.containerd.nri.v1.nri"]
  disable = true  # nothing uses it, and its socket in /run/nri would outlive the cluster
Y
}

write_pod_network() {  # ptp routes all pod traffic through the host, where netpol's rules apply
  cat <<Y
{"cniVersion": "0.4.0", "name": "devcluster", "plugins": [
  {"type": "ptp", "ipMasq": true, "ipam": {
    "type": "host-local", "dataDir": "$run/cni-addresses",
    "ranges": [[{"subnet": "$pod_net"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
Y
}

write_kubelet_config() {
  cat <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $pki/node.crt
tlsPrivateKeyFile: $pki/node.key
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
failSwapOn: false
maxPods: 250
# A pod sandbox that failed to start can block its own removal, and that of all others, for this time.
runtimeRequestTimeout: 20s
podPidsLimit: 1024
serializeImagePulls: false
kubeAPIQPS: 100
kubeAPIBurst: 200
enforceNodeAllocatable: []
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
# No registry has the loaded images: those that no pod uses stay, however full the disk is.
imageGCHighThresholdPercent: 100
Y
  [ -n "$binaries" ] || return 0
  cat <<Y
containerRuntimeEndpoint: unix://$run/containerd.sock
# This machine may have cgroup v1, which newer versions refuse by default.
failCgroupV1: false
Y
  [ "$minor" -ge 35 ] || return 0  # before, a feature gate is off, and the kubelet refuses the field
  cat <<'Y'
# By default the kubelet pulls a loaded image again if it has pulled one of the same digest by another name.
imagePullCredentialsVerificationPolicy: NeverVerify
Y
}

write_proxy_config() {  # zero leaves a setting of the machine's connection tracking unchanged
  cat <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: $pod_net
hostnameOverride: node1
clientConnection: {kubeconfig: $run/proxy.kubeconfig}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
Y
}
