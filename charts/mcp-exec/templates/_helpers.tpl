{{/* Prefix of the objects' names. */}}
{{- define "mcp-exec.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "mcp-exec" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-mcp-exec" (.Release.Name | trunc 31 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* Labels that select this release's objects. */}}
{{- define "mcp-exec.selectorLabels" -}}
app.kubernetes.io/name: mcp-exec
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "mcp-exec.labels" -}}
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

{{/* Name of the broker's Service; empty if the broker is disabled. */}}
{{- define "mcp-exec.brokerService" -}}
{{- if .Values.broker.enabled -}}{{ include "mcp-exec.fullname" . }}-broker{{- end -}}
{{- end -}}

{{/* "true" if the initial API key exists, else "". The chart adds no entry to an existing Secret of the user. */}}
{{- define "mcp-exec.initialApiKey" -}}
{{- if and .Values.gateway.initialApiKey.create (not .Values.gateway.apiKeys.existingSecret) -}}true{{- end -}}
{{- end -}}

{{/*
A random text that does not change: the one in the existing Secret, else a new one of the given length. It is stored in the
values for the rest of the rendering, because another template needs its digest.
Arguments: root, secret, entry, prefix, length.
*/}}
{{- define "mcp-exec.random" -}}
{{- $kept := printf "_%s/%s" .secret .entry -}}
{{- if not (hasKey .root.Values $kept) -}}
{{- $found := (lookup "v1" "Secret" .root.Release.Namespace .secret).data | default dict -}}
{{- if hasKey $found .entry -}}
{{- $_ := set .root.Values $kept (index $found .entry | b64dec) -}}
{{- else -}}
{{- $_ := set .root.Values $kept (printf "%s%s" .prefix (randAlphaNum .length)) -}}
{{- end -}}
{{- end -}}
{{- index .root.Values $kept -}}
{{- end -}}
{{- define "mcp-exec.sandboxKey" -}}
{{- include "mcp-exec.random" (dict "root" . "secret" (include "mcp-exec.sandboxKeySecret" .) "entry" "key" "prefix" "" "length" 64) -}}
{{- end -}}
{{- define "mcp-exec.initialApiKeyText" -}}
{{- include "mcp-exec.random" (dict "root" . "secret" (include "mcp-exec.initialApiKeySecret" .) "entry" "api-key" "prefix" "mcpx_" "length" 43) -}}
{{- end -}}

{{/* Security contexts of operator, gateway and broker, as the Pod Security level "restricted" requires. */}}
{{- define "mcp-exec.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}
{{- define "mcp-exec.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Fields of a pod that operator, gateway and broker share. Arguments: root, values. */}}
{{- define "mcp-exec.podFields" -}}
automountServiceAccountToken: true
# Service links would add MCP_EXEC_... variables.
enableServiceLinks: false
securityContext:
  {{- include "mcp-exec.podSecurityContext" . | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
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

{{/* Annotations of the pods of operator, gateway and broker. Arguments: root, values. */}}
{{- define "mcp-exec.podAnnotations" -}}
{{- if not .root.Values.sandboxKey.existingSecret -}}
# The key is read once at start, so a changed key must replace the pods.
checksum/sandbox-key: {{ include "mcp-exec.sandboxKey" .root | sha256sum }}
{{- end }}
{{- with .values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Environment variables that operator and gateway share. */}}
{{- define "mcp-exec.env" -}}
- name: MCP_EXEC_NAMESPACES
  value: {{ join "," .Values.namespaces | quote }}
- name: MCP_EXEC_RELEASE_NAMESPACE
  value: {{ .Release.Namespace | quote }}
- name: MCP_EXEC_SANDBOX_KEY_FILE
  value: /etc/mcp-exec/sandbox-key/key
- name: MCP_EXEC_LOG_LEVEL
  value: {{ .Values.logLevel | quote }}
- name: MCP_EXEC_BROKER_SERVICE
  value: {{ include "mcp-exec.brokerService" . | quote }}
{{- end -}}

{{/* Egress rules of operator and gateway: to sandboxes, the broker and the API server. */}}
{{- define "mcp-exec.egress" -}}
- to:
    - namespaceSelector: {}
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

{{/* Egress rule to the API server. */}}
{{- define "mcp-exec.apiServerEgress" -}}
- ports:
    {{- range .Values.networkPolicy.apiServer.ports }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with .Values.networkPolicy.apiServer.cidrs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- end }}
{{- end -}}

{{/* Convert a quantity, for example 250m, 4 or 1.5Gi, to a number. */}}
{{- define "mcp-exec.amount" -}}
{{- if kindIs "string" . -}}
{{- $factors := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf (regexFind "^[0-9.]+" .) (index $factors (regexFind "[A-Za-z]*$" .)) -}}
{{- else -}}
{{- float64 . -}}
{{- end -}}
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
{{- range $name, $value := omit .pool "name" "enabled" "namespaces" -}}
{{- if and (not (kindIs "invalid" $value)) (ne (toJson $value) (index $defaults $name | toJson)) }}
{{ dict $name $value | toYaml }}
{{- end -}}
{{- end -}}
{{- end -}}
