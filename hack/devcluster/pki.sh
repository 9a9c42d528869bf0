# shellcheck shell=bash
# Functions that write the certificates and kubeconfigs of one cluster.
# Reads: run, pki, node_ip, server.

certificate() {  # NAME SUBJECT EXTENSIONS
  openssl req -newkey rsa:2048 -nodes -keyout "$pki/$1.key" -out "$pki/$1.csr" -subj "$2" 2>/dev/null
  openssl x509 -req -in "$pki/$1.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 3650 \
    -out "$pki/$1.crt" -extfile <(printf '%b' "$3") 2>/dev/null
}

kubeconfig_for() {  # NAME CERTIFICATE
  (umask 077; cat > "$run/$1.kubeconfig") <<Y
apiVersion: v1
kind: Config
clusters: [{name: devcluster, cluster: {server: "$server", certificate-authority-data: $(base64 -w0 < "$pki/ca.crt")}}]
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 < "$pki/$2.crt")
    client-key-data: $(base64 -w0 < "$pki/$2.key")
contexts: [{name: devcluster, context: {cluster: devcluster, user: $1}}]
current-context: devcluster
Y
}

write_pki() {
  local names="DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
  local client=extendedKeyUsage=clientAuth both=extendedKeyUsage=serverAuth,clientAuth
  openssl req -x509 -newkey rsa:2048 -nodes -keyout "$pki/ca.key" -out "$pki/ca.crt" -subj /CN=devcluster -days 3650 2>/dev/null
  openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
  openssl rsa -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
  certificate apiserver /CN=kube-apiserver \
    "subjectAltName=$names,IP:127.0.0.1,IP:$service_ip,IP:$node_ip\nextendedKeyUsage=serverAuth"
  certificate node /O=system:nodes/CN=system:node:node1 "subjectAltName=DNS:node1,IP:$node_ip\n$both"
  certificate admin /O=system:masters/CN=admin $client
  certificate apiserver-kubelet /O=system:masters/CN=kube-apiserver-kubelet $client
  # A separate authority: with the cluster's, each client certificate would count as a proxy's and be verified twice.
  openssl req -x509 -newkey rsa:2048 -nodes -keyout "$pki/front-proxy.key" -out "$pki/front-proxy.crt" \
    -subj /CN=front-proxy -days 3650 2>/dev/null
  certificate controller-manager /CN=system:kube-controller-manager $client
  certificate scheduler /CN=system:kube-scheduler $client
  certificate proxy /CN=system:kube-proxy $client
  kubeconfig_for admin admin
  kubeconfig_for kubelet node
  kubeconfig_for controller-manager controller-manager
  kubeconfig_for scheduler scheduler
  kubeconfig_for proxy proxy
}
