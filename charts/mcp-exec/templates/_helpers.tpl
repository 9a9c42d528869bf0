{{/*
Name of the release. The chart `mcp-exec-cluster` has some templates of this one, and is the release NAME-cluster in the
same namespace.
*/}}
{{- define "mcp-exec.release" -}}
{{- if ne .Chart.Name "mcp-exec-cluster" -}}
{{- .Release.Name -}}
{{- else if or (hasSuffix "-cluster" .Release.Name) (has .Release.Name (list "test-release" "release-name")) -}}
{{- .Release.Name | trimSuffix "-cluster" -}}
{{- else -}}
{{- fail (printf "the release is named %s: name it NAME-cluster, where NAME is the release of the chart mcp-exec in the same namespace" .Release.Name) -}}
{{- end -}}
{{- end -}}

{{/*
Adds the defaults of values that the values lack because they are those of an earlier release: `helm upgrade
--reuse-values` puts them in the place of the chart's own. Then checks all. Each template begins with it, as their order
is Helm's.
*/}}
{{- define "mcp-exec.completeValues" -}}
{{- if ne (.Values.defaultsOf | default "") .Chart.AppVersion -}}
{{- include "mcp-exec.addMissing" (list .Values (.Files.Get "files/defaults.json" | fromJson)) -}}
{{- $_ := set .Values "defaultsOf" .Chart.AppVersion -}}
{{- end -}}
{{- include "mcp-exec.checkValues" . -}}
{{- end -}}

{{/* Adds to values what they lack of others. Arguments: values, others. */}}
{{- define "mcp-exec.addMissing" -}}
{{- $values := index . 0 -}}
{{- range $name, $other := index . 1 -}}
{{- if kindIs "map" $other -}}
{{- if not (hasKey $values $name) -}}
{{- $_ := set $values $name dict -}}
{{- end -}}
{{- if kindIs "map" (get $values $name) -}}
{{- include "mcp-exec.addMissing" (list (get $values $name) $other) -}}
{{- end -}}
{{- else if not (hasKey $values $name) -}}
{{- /* JSON has no integers, and a large float would be printed with an exponent */}}
{{- $isWhole := and (kindIs "float64" $other) (eq (toString (float64 (int64 $other))) (toString $other)) -}}
{{- $_ := set $values $name (ternary (int64 $other) $other $isWhole) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Prefix of the objects' names. */}}
{{- define "mcp-exec.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "mcp-exec" (include "mcp-exec.release" .) -}}
{{- include "mcp-exec.release" . | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-mcp-exec" (include "mcp-exec.release" . | trunc 31 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/*
Name of a cluster-scoped object. It carries the release's namespace, so that releases of one name in two namespaces have
objects of their own: FULLNAME-system has the names without it. Only bindings for namespaces without a label have two
dots or more. Arguments: root, suffix.
*/}}
{{- define "mcp-exec.clusterName" -}}
{{- $root := index . 0 -}}
{{- $fullname := include "mcp-exec.fullname" $root -}}
{{- printf "%s-%s" $fullname (index . 1) -}}
{{- /* a linter has no namespace */}}
{{- if not (has $root.Release.Namespace (list "" (printf "%s-system" $fullname))) }}.{{ $root.Release.Namespace }}{{ end -}}
{{- end -}}

{{/* Labels that select this release's objects. */}}
{{- define "mcp-exec.selectorLabels" -}}
app.kubernetes.io/name: mcp-exec
app.kubernetes.io/instance: {{ include "mcp-exec.release" . }}
{{- end -}}

{{/* Labels of the user for objects and pods, without those of the chart. */}}
{{- define "mcp-exec.commonLabels" -}}
{{- range $name, $value := .Values.commonLabels }}
{{- if not (or (hasPrefix "app.kubernetes.io/" $name) (eq $name "helm.sh/chart")) }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "mcp-exec.labels" -}}
{{- with include "mcp-exec.commonLabels" . | trim }}
{{- . }}
{{ end -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "mcp-exec.selectorLabels" . }}
{{- end -}}

{{/* Names of the Secrets. */}}
{{- define "mcp-exec.sandboxKeySecret" -}}
{{- .Values.sandboxKey.existingSecret | default (printf "%s-sandbox-key" (include "mcp-exec.fullname" .)) -}}
{{- end -}}
{{- define "mcp-exec.apiKeysSecret" -}}
{{- .Values.gateway.apiKeys.existingSecret | default (printf "%s-api-keys" (include "mcp-exec.fullname" .)) -}}
{{- end -}}
{{- define "mcp-exec.initialApiKeySecret" -}}
{{- printf "%s-initial-api-key" (include "mcp-exec.fullname" .) -}}
{{- end -}}

{{/* Names of the Secrets that the operator creates, as a JSON list. */}}
{{- define "mcp-exec.createdSecrets" -}}
{{- $names := list -}}
{{- if not .Values.sandboxKey.existingSecret -}}
{{- $names = append $names (include "mcp-exec.sandboxKeySecret" .) -}}
{{- end -}}
{{- if not .Values.gateway.apiKeys.existingSecret -}}
{{- $names = append $names (include "mcp-exec.apiKeysSecret" .) -}}
{{- $names = append $names (include "mcp-exec.initialApiKeySecret" .) -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Name of the broker's Service; empty if the broker is disabled. */}}
{{- define "mcp-exec.brokerService" -}}
{{- if .Values.broker.enabled -}}{{ include "mcp-exec.fullname" . }}-broker{{- end -}}
{{- end -}}

{{/* "true" if the operator creates the initial API key, else "". It adds no entry to an existing Secret of the user. */}}
{{- define "mcp-exec.initialApiKey" -}}
{{- if and .Values.gateway.initialApiKey.create (not .Values.gateway.apiKeys.existingSecret) -}}true{{- end -}}
{{- end -}}

{{/* Name of a component's ServiceAccount. Arguments: root, component. */}}
{{- define "mcp-exec.serviceAccount" -}}
{{- $values := index (index . 0).Values (index . 1) | default dict -}}
{{- dig "serviceAccount" "name" "" $values | default (printf "%s-%s" (include "mcp-exec.fullname" (index . 0)) (index . 1)) -}}
{{- end -}}

{{/* "true" if this chart has the objects that only an administrator may create; and of these, the rights. */}}
{{- define "mcp-exec.clusterObjects" -}}
{{- if or .Values.clusterObjects.create (eq .Chart.Name "mcp-exec-cluster") -}}true{{- end -}}
{{- end -}}
{{- define "mcp-exec.rbac" -}}
{{- if and (include "mcp-exec.clusterObjects" .) .Values.rbac.create -}}true{{- end -}}
{{- end -}}

{{/* Spread of a component's pods. Arguments: root, component. */}}
{{- define "mcp-exec.spread" -}}
{{- $labels := include "mcp-exec.selectorLabels" (index . 0) | fromYaml -}}
{{- $selector := dict "matchLabels" (set $labels "app.kubernetes.io/component" (index . 1)) -}}
{{- with (index (index . 0).Values (index . 1)).topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ hasKey . "labelSelector" | ternary . (merge (dict "labelSelector" $selector) .) | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* "true" if the broker's audit log has a volume. `auto`: if one pod can write it. */}}
{{- define "mcp-exec.auditVolume" -}}
{{- $enabled := .Values.broker.audit.persistence.enabled -}}
{{- if eq (toString $enabled) "auto" -}}
{{- if eq (.Values.broker.replicas | int64) 1 }}true{{ end -}}
{{- else if $enabled -}}true{{- end -}}
{{- end -}}

{{/* "true" if the broker keeps records. `auto`: if one pod can write a volume, or there is a database. */}}
{{- define "mcp-exec.records" -}}
{{- $enabled := .Values.broker.records.enabled -}}
{{- if not .Values.broker.enabled -}}
{{- else if eq (toString $enabled) "auto" -}}
{{- if or .Values.broker.records.database.secret (eq (.Values.broker.replicas | int64) 1) }}true{{ end -}}
{{- else if $enabled -}}true{{- end -}}
{{- end -}}

{{/*
An image with its tag, and its digest if one is known. files/digests.json has those of a released chart: they belong to
the images of its version, so another repository or tag of the values has none. Arguments: root, name, values: its own
repository and tag, if it has any.
*/}}
{{- define "mcp-exec.image" -}}
{{- $all := .root.Values.images | default dict -}}
{{- $own := .values | default dict -}}
{{- $tag := $own.tag | default $all.tag -}}
{{- $digest := get ($all.digests | default dict) (.name | replace "-" "_" | camelcase | untitle) -}}
{{- if not (or $digest $tag $own.repository) -}}
{{- $digest = get (.root.Files.Get "files/digests.json" | default "{}" | fromJson) .name -}}
{{- end -}}
{{- $own.repository | default (printf "%s/mcp-exec-%s" ($all.repository | default "localhost") .name) -}}
:{{- $tag | default .root.Chart.AppVersion -}}
{{- with $digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* Fields of a pod that operator, gateway and broker share. Arguments: root, values. */}}
{{- define "mcp-exec.podFields" -}}
automountServiceAccountToken: true
# Service links would add MCP_EXEC_... variables.
enableServiceLinks: false
{{- with .root.Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $class := ternary (include "mcp-exec.clusterName" (list .root "control-plane")) "" .root.Values.priorityClass.create }}
{{- with .values.priorityClassName | default $class }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Peers that may reach the metrics, as a list; empty if the values name none. */}}
{{- define "mcp-exec.metricsPeers" -}}
{{- with .Values.networkPolicy.metricsFrom }}
{{- toYaml . }}
{{- end }}
{{- range .Values.monitoring.scraperNamespaces }}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ . }}
{{- end }}
{{- end -}}

{{/* Annotations of the pods of operator, gateway and broker. Arguments: root, values, port: that of the metrics. */}}
{{- define "mcp-exec.podAnnotations" -}}
{{- if .root.Values.monitoring.scrapeAnnotations }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | int64 | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- with .values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Environment variables that operator, gateway and broker share. */}}
{{- define "mcp-exec.commonEnv" -}}
- name: MCP_EXEC_NAMESPACES_FOLDER
  value: /etc/mcp-exec/namespaces
- name: MCP_EXEC_RELEASE_NAMESPACE
  value: {{ .Release.Namespace | quote }}
- name: MCP_EXEC_RELEASE_SECRETS
  value: {{ list (include "mcp-exec.sandboxKeySecret" .) (include "mcp-exec.apiKeysSecret" .) (include "mcp-exec.initialApiKeySecret" .) | join "," | quote }}
{{- end -}}

{{/*
Environment variables of a process that values set (files/variables.json). An empty value has none, nor has one below an
object with `enabled: false`, or of records if there are none: the process then has its default. Arguments: root, process.
*/}}
{{- define "mcp-exec.variables" -}}
{{- $root := index . 0 -}}
{{- $records := include "mcp-exec.records" $root -}}
{{- range index ($root.Files.Get "files/variables.json" | fromJson) (index . 1) }}
{{- $value := ternary $root.Values dict (or (eq $records "true") (not (hasPrefix "broker.records." .path))) -}}
{{- range $part := splitList "." .path -}}
{{- if and (kindIs "map" $value) (or (eq $part "enabled") (ne (get $value "enabled" | toString) "false")) -}}
{{- $value = get $value $part -}}
{{- else -}}
{{- $value = "" -}}
{{- end -}}
{{- end -}}
{{- $text := $value | default "" | toString -}}
{{- if and (kindIs "slice" $value) $value (kindIs "map" (first $value)) -}}
{{- $text = toJson $value -}}
{{- else if kindIs "slice" $value -}}
{{- $text = join "," $value -}}
{{- else if kindIs "map" $value -}}
{{- $text = toJson $value -}}
{{- else if kindIs "bool" $value -}}
{{- $text = toString $value -}}
{{- else if has (kindOf $value) (list "int" "int64" "float64") -}}
{{- /* values from files are floats, and a large one would be printed with an exponent */}}
{{- $isWhole := eq (float64 (int64 $value)) (float64 $value) -}}
{{- $text = ternary (mul (int64 $value) (int64 (default 1 .times))) $value $isWhole | toString -}}
{{- end -}}
{{- if $text }}
- name: {{ .name }}
  value: {{ $text | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
The sandbox keys as files, for gateway and broker: the variable, and the volume, whose files change during a rotation. A
pod without the Secret starts when the operator has created it.
*/}}
{{- define "mcp-exec.sandboxKeyEnv" -}}
- name: MCP_EXEC_SANDBOX_KEY_FOLDER
  value: /etc/mcp-exec/sandbox-key
{{- end -}}
{{- define "mcp-exec.sandboxKeyVolume" -}}
- name: sandbox-key
  secret:
    secretName: {{ include "mcp-exec.sandboxKeySecret" . }}
    defaultMode: 0440
{{- end -}}

{{/*
The served namespaces as a file that is read again when it changes: the volume and its mount. A change restarts no pod.
*/}}
{{- define "mcp-exec.namespacesVolume" -}}
- name: namespaces
  configMap:
    name: {{ include "mcp-exec.fullname" . }}-namespaces
    defaultMode: 0440
{{- end -}}
{{- define "mcp-exec.namespacesMount" -}}
- {name: namespaces, mountPath: /etc/mcp-exec/namespaces, readOnly: true}
{{- end -}}

{{/* Environment variables that operator and gateway share. */}}
{{- define "mcp-exec.env" -}}
{{ include "mcp-exec.commonEnv" . }}
- name: MCP_EXEC_BROKER_SERVICE
  value: {{ include "mcp-exec.brokerService" . | quote }}
{{- if include "mcp-exec.policies" . }}
- name: MCP_EXEC_ACCOUNTS_PROVEN
  value: "true"
{{- end }}
{{- end -}}

{{/* Egress rules of operator and gateway: to sandboxes of served namespaces, the broker and the API server. */}}
{{- define "mcp-exec.egress" -}}
- to:
    - namespaceSelector:
        matchExpressions:
          - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson .Values.namespaces }}}
      podSelector:
        matchLabels:
          app.kubernetes.io/managed-by: mcp-exec
          app.kubernetes.io/name: mcp-exec-sandbox
  ports:
    - {port: 8700, protocol: TCP}
{{- if .Values.broker.enabled }}
- to:
    - podSelector:
        matchLabels:
          {{- include "mcp-exec.selectorLabels" . | nindent 10 }}
          app.kubernetes.io/component: broker
  ports:
    - {port: 8084, protocol: TCP}
{{- end }}
{{ include "mcp-exec.apiServerEgress" . }}
{{- end -}}

{{/*
Egress rule to the API server: to the given networks, else to its usual ports at any address. Of the flavour Cilium, a
CiliumNetworkPolicy has it. The addresses of a managed
API server change without notice, and network plugins compare a connection before or after they are translated.
*/}}
{{- define "mcp-exec.apiServerEgress" -}}
{{- $server := .Values.networkPolicy.apiServer -}}
{{- if ne .Values.networkPolicy.flavour "Cilium" -}}
- ports:
    {{- range $server.ports }}
    - {port: {{ . | int64 }}, protocol: TCP}
    {{- end }}
  {{- with $server.cidrs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/*
"true" if the release has ValidatingAdmissionPolicies, from this chart or from mcp-exec-cluster. `auto`: if the cluster has
them, which is since Kubernetes 1.30.
*/}}
{{- define "mcp-exec.policies" -}}
{{- $enabled := .Values.admissionPolicy.enabled -}}
{{- if eq (toString $enabled) "auto" -}}
{{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version -}}true{{- end -}}
{{- else if $enabled -}}true{{- end -}}
{{- end -}}

{{/* "true" if this chart has the policies. */}}
{{- define "mcp-exec.admission" -}}
{{- if include "mcp-exec.clusterObjects" . -}}{{ include "mcp-exec.policies" . }}{{- end -}}
{{- end -}}

{{/* "true" if the cluster has MutatingAdmissionPolicies, which is since Kubernetes 1.36. */}}
{{- define "mcp-exec.mutatingPolicies" -}}
{{- if semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version -}}true{{- end -}}
{{- end -}}

{{/* Username of a component's ServiceAccount. Arguments: root, component. */}}
{{- define "mcp-exec.username" -}}
{{- $root := index . 0 -}}
{{- printf "system:serviceaccount:%s:%s" $root.Release.Namespace (include "mcp-exec.serviceAccount" (list $root (index . 1))) -}}
{{- end -}}

{{/*
CEL: whether a request is of Kubernetes itself, whose controllers have accounts in kube-system or share one. No account of
another namespace gets these names.
*/}}
{{- define "mcp-exec.isKubernetes" -}}
(request.userInfo.username == 'system:kube-controller-manager' || request.userInfo.username.startsWith('system:serviceaccount:kube-system:'))
{{- end -}}

{{/*
CEL: whether an account has all rights in the whole cluster. No role but those with wildcards has this one: no right of
`edit` or `admin` in a namespace gives it.
*/}}
{{- define "mcp-exec.isAdministrator" -}}
authorizer.group('mcp-exec.dev').resource('sandboxpools').subresource('isolation').check('delete').allowed()
{{- end -}}

{{/* The release as the value of a namespace's label: its namespace and the prefix of its names, at most 63 characters. */}}
{{- define "mcp-exec.owner" -}}
{{- $name := printf "%s.%s" .Release.Namespace (include "mcp-exec.fullname" .) -}}
{{- if le (len $name) 63 }}{{ $name }}{{ else }}{{ printf "%s-%s" (trunc 52 $name) (sha256sum $name | trunc 10) }}{{ end -}}
{{- end -}}

{{/* Value of the label `release` of the release's series; empty if nothing is known to set it. */}}
{{- define "mcp-exec.monitoredRelease" -}}
{{- if .Values.monitoring.rules.release -}}
{{- .Values.monitoring.rules.release -}}
{{- else if .Values.monitoring.serviceMonitor.enabled -}}
{{- include "mcp-exec.owner" . -}}
{{- end -}}
{{- end -}}

{{/* Address of the page of runbooks; empty if it is not known. */}}
{{- define "mcp-exec.runbooks" -}}
{{- if hasPrefix "http" .Values.monitoring.rules.runbooks -}}
{{- .Values.monitoring.rules.runbooks -}}
{{- else if .Chart.Sources -}}
{{- printf "%s/blob/v%s/docs/platform/runbooks.md" (first .Chart.Sources | trimSuffix "/") .Chart.AppVersion -}}
{{- end -}}
{{- end -}}

{{/*
Bindings of an admission policy to the served namespaces, or to those that are given. A served namespace with the label
`mcp-exec.dev/release` is only for the policies of that release; one without it is for those of each release that names
it. Arguments: root, name, namespaces (or none), kind (by default ValidatingAdmissionPolicy).
*/}}
{{- define "mcp-exec.admissionBinding" }}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $named := dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" $root.Values.namespaces }}
{{- $label := "mcp-exec.dev/release" }}
{{- $owned := dict "key" $label "operator" "In" "values" (list (include "mcp-exec.owner" $root)) }}
{{- $selectors := dict $name (list $named $owned) (printf "%s.without.label" $name) (list $named (dict "key" $label "operator" "DoesNotExist")) }}
{{- $kind := "ValidatingAdmissionPolicy" }}
{{- if gt (len .) 3 }}
{{- $kind = index . 3 }}
{{- end }}
{{- if and (gt (len .) 2) (index . 2) }}
{{- $selectors = dict $name (list (dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" (index . 2))) }}
{{- end }}
{{- range $binding, $expressions := $selectors }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $binding }}
  labels:
    {{- include "mcp-exec.labels" $root | nindent 4 }}
spec:
  policyName: {{ $name }}
  {{- if eq $kind "ValidatingAdmissionPolicy" }}
  validationActions: [Deny]
  {{- end }}
  matchResources:
    namespaceSelector:
      matchExpressions:
        {{- toYaml $expressions | nindent 8 }}
{{- end }}
{{- end }}

{{/* Convert a quantity, for example 250m, 4 or 1.5Gi, to a number. */}}
{{- define "mcp-exec.amount" -}}
{{- if kindIs "string" . -}}
{{- $factors := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf (regexFind "^[0-9.]+" .) (index $factors (regexFind "[A-Za-z]*$" .)) -}}
{{- else -}}
{{- float64 . -}}
{{- end -}}
{{- end -}}

{{/* The quota of a served namespace, as JSON: its own limits above those of all. Arguments: root, namespace. */}}
{{- define "mcp-exec.quota" -}}
{{- $quota := (index . 0).Values.quota -}}
{{- $hard := dict -}}
{{- range $limits := list $quota.hard (get ($quota.namespaces | default dict) (index . 1) | default dict).hard -}}
{{- range $resource, $amount := $limits -}}
{{- $_ := set $hard $resource $amount -}}
{{- end -}}
{{- end -}}
{{- toJson $hard -}}
{{- end -}}

{{/* API version of PodDisruptionBudgets: policy/v1 exists since Kubernetes 1.21. */}}
{{- define "mcp-exec.policyVersion" -}}
{{- if semverCompare ">=1.21-0" .Capabilities.KubeVersion.Version -}}policy/v1{{- else -}}policy/v1beta1{{- end -}}
{{- end -}}

{{/*
The spec of a pool, without values that equal the API's defaults. Helm validates an upgrade's objects before the CRDs are
upgraded, so a new field does not fail the upgrade of users who do not set it. Arguments: root, pool.
*/}}
{{- define "mcp-exec.poolSpec" -}}
{{- $defaults := .root.Files.Get "files/pool-defaults.json" | fromJson -}}
{{- $pool := omit .pool "name" "enabled" "namespaces" -}}
{{- range $name, $value := $pool -}}
{{- if and (not (kindIs "invalid" $value)) (ne (toJson $value) (index $defaults $name | toJson)) }}
{{ dict $name $value | toYaml }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The pools of the values as a JSON list: the default one, the additional ones and those that values of their own enable,
each with its image and without `NodeDefault`.
*/}}
{{- define "mcp-exec.pools" -}}
{{- $pools := list }}
{{- if .Values.pool.enabled }}
{{- $pools = append $pools (deepCopy .Values.pool) }}
{{- end }}
{{- range $extra := .Values.extraPools }}
{{- $pool := omit $.Values.pool "name" "enabled" }}
{{- range $field, $value := $extra }}
{{- $_ := set $pool $field $value }}
{{- end }}
{{- $pools = append $pools $pool }}
{{- end }}
{{- if .Values.dataPool.enabled }}
{{- $pool := set (omit .Values.pool "enabled") "name" "data" }}
{{- range $field, $value := omit .Values.dataPool "enabled" }}
{{- $_ := set $pool $field $value }}
{{- end }}
{{- $_ := set $pool "image" ($pool.image | default (include "mcp-exec.image" (dict "root" . "name" "data"))) }}
{{- $pools = append $pools $pool }}
{{- end }}
{{- if .Values.typescriptPool.enabled }}
{{- $pool := merge (dict "name" "typescript" "language" "typescript") (omit .Values.pool "enabled" "preimport") }}
{{- range $field, $value := omit .Values.typescriptPool "enabled" }}
{{- $_ := set $pool $field $value }}
{{- end }}
{{- $pools = append $pools $pool }}
{{- end }}
{{- $complete := list }}
{{- range $pool := $pools }}
{{- if not $pool.runtimeClassName }}
{{- fail (printf "pool %s has no runtimeClassName: set pool.runtimeClassName to a RuntimeClass of the cluster, for example gvisor, or to NodeDefault to run code with the node's default runtime, usually runc, on the node's own kernel" $pool.name) }}
{{- end }}
{{- $language := $pool.language | default "python" }}
{{- $name := eq $language "python" | ternary "sandbox" (printf "sandbox-%s" $language) }}
{{- $pool = set $pool "image" ($pool.image | default (include "mcp-exec.image" (dict "root" $ "name" $name))) }}
{{- $pool = set $pool "imagePullSecrets" ($pool.imagePullSecrets | default $.Values.imagePullSecrets) }}
{{- if eq $pool.runtimeClassName "NodeDefault" }}
{{- $pool = omit $pool "runtimeClassName" }}
{{- end }}
{{- $complete = append $complete $pool }}
{{- end }}
{{- toJson $complete -}}
{{- end -}}

{{/* Refuses values of the front door that contradict each other, or that nothing would use. */}}
{{- define "mcp-exec.checkFrontDoor" -}}
{{- $gateway := .Values.gateway }}
{{- $tls := $gateway.tls }}
{{- $used := list }}
{{- if $gateway.ingress.enabled }}{{ $used = append $used "gateway.ingress.enabled" }}{{ end }}
{{- if $gateway.httpRoute.enabled }}{{ $used = append $used "gateway.httpRoute.enabled" }}{{ end }}
{{- if $tls.certificate.create }}{{ $used = append $used "gateway.tls.certificate.create" }}{{ end }}
{{- if and $used (not $gateway.host) }}
{{- fail (printf "%s needs gateway.host: the name by which clients reach the gateway, for example agents.example.com" (first $used)) }}
{{- end }}
{{- if and $gateway.host (not $used) }}
{{- fail "gateway.host is set, and nothing uses it: enable gateway.ingress, gateway.httpRoute or gateway.tls.certificate" }}
{{- end }}
{{- if and $gateway.httpRoute.enabled (not $gateway.httpRoute.parentRefs) }}
{{- fail "gateway.httpRoute.enabled needs gateway.httpRoute.parentRefs: the Gateway that the route belongs to, for example [{name: public, namespace: infra}]" }}
{{- end }}
{{- if and $gateway.httpRoute.enabled $tls.serve }}
{{- fail "gateway.httpRoute.enabled and gateway.tls.serve contradict each other: a Gateway sends plain HTTP to the Service. Leave TLS to the Gateway's listener, or write the HTTPRoute with its BackendTLSPolicy as extraObjects" }}
{{- end }}
{{- if and $tls.certificate.create (not $tls.certificate.issuer) }}
{{- fail "gateway.tls.certificate.create needs gateway.tls.certificate.issuer: the name of an issuer of cert-manager" }}
{{- end }}
{{- if and (or $tls.serve $tls.certificate.create) (not $tls.secret) }}
{{- fail (printf "%s needs gateway.tls.secret: the name of the Secret with tls.crt and tls.key" (ternary "gateway.tls.serve" "gateway.tls.certificate.create" $tls.serve)) }}
{{- end }}
{{- if and $tls.secret (not $tls.serve) (not $gateway.ingress.enabled) }}
{{- fail "gateway.tls.secret is set, and nothing uses it: set gateway.tls.serve, or gateway.ingress.enabled. With an HTTPRoute, the listener of the Gateway has the certificate" }}
{{- end }}
{{- end -}}
