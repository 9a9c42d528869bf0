{{/*
What processes with connections to hosts outside of the release share: the variables, volumes and mounts of the values
caBundle and proxy, and of the workload's extraVolumes. Arguments: root, values of the workload, outgoing: whether it has any.
*/}}
{{- define "mcp-exec.networkEnv" -}}
{{- if and .outgoing (include "mcp-exec.caBundle" .root) }}
- name: MCP_EXEC_CA_BUNDLE
  value: /etc/mcp-exec/ca-bundle/ca.crt
{{- end }}
{{- if and .outgoing .root.Values.proxy.secret }}
- name: MCP_EXEC_PROXY_FOLDER
  value: /etc/mcp-exec/proxy
{{- end }}
{{- end -}}
{{- define "mcp-exec.networkMounts" -}}
{{- if and .outgoing (include "mcp-exec.caBundle" .root) }}
- {name: ca-bundle, mountPath: /etc/mcp-exec/ca-bundle, readOnly: true}
{{- end }}
{{- if and .outgoing .root.Values.proxy.secret }}
- {name: proxy, mountPath: /etc/mcp-exec/proxy, readOnly: true}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- define "mcp-exec.networkVolumes" -}}
{{- if .outgoing }}
{{- with include "mcp-exec.caBundle" .root }}
- name: ca-bundle
  {{- . | nindent 2 }}
{{- end }}
{{- with .root.Values.proxy.secret }}
- name: proxy
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: http, path: http}, {key: https, path: https}]
{{- end }}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The volume of the bundle without its name; empty if there is none. */}}
{{- define "mcp-exec.caBundle" -}}
{{- with .Values.caBundle -}}
{{- $items := list (dict "key" .key "path" "ca.crt") -}}
{{- if .configMap -}}
{{- dict "configMap" (dict "name" .configMap "items" $items) | toYaml -}}
{{- else if .secret -}}
{{- dict "secret" (dict "secretName" .secret "defaultMode" 288 "items" $items) | toYaml -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Variables of the operator: what the pods of stdio servers have, in objects of their own namespaces. */}}
{{- define "mcp-exec.serversNetworkEnv" -}}
{{- with .Values.caBundle }}
{{- if or .configMap .secret }}
- name: MCP_EXEC_SERVERS_CA_BUNDLE
  value: {{ dict "kind" (ternary "ConfigMap" "Secret" (ne .configMap "")) "name" (.configMap | default .secret) "key" .key | toJson | quote }}
{{- end }}
{{- end }}
{{- with .Values.proxy.serversSecret }}
- name: MCP_EXEC_SERVERS_PROXY_SECRET
  value: {{ . | quote }}
{{- end }}
{{- end -}}
