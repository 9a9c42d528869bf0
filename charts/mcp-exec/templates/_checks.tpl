{{/*
Refuses values that would do harm after the installation. The schema has what Helm explains in words; here are patterns
(files/rules.json) and what concerns several values. All templates share the values, so the first one checks them.
*/}}
{{- define "mcp-exec.checkValues" -}}
{{- if not (hasKey .Values "checked") -}}
{{- $_ := set .Values "checked" true -}}
{{- $found := list -}}
{{- range $rule := .Files.Get "files/rules.json" | fromJsonArray -}}
{{- range $keys := list false true -}}
{{- range $path := ternary $rule.keysOf $rule.at $keys -}}
{{- $lines := include "mcp-exec.checkRule" (dict "rule" $rule "keys" $keys "value" $.Values "parts" (splitList "." $path) "path" "") -}}
{{- $found = concat $found (splitList "\n" $lines) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not (compact $found) -}}
{{- $found = include "mcp-exec.checkTogether" . | splitList "\n" -}}
{{- end -}}
{{- with compact $found -}}
{{- fail (join "\n" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A line for each value, or each key of an object, that breaks a rule. Arguments: rule, keys, value, parts to go, path. */}}
{{- define "mcp-exec.checkRule" -}}
{{- $rule := .rule -}}
{{- $keys := .keys -}}
{{- $path := .path -}}
{{- if .parts -}}
{{- $inner := dict -}}
{{- if not (or (kindIs "map" .value) (kindIs "slice" .value)) -}}
{{- else if eq (first .parts) "*" -}}
{{- range $key, $value := .value -}}
{{- $_ := set $inner (toString $key) $value -}}
{{- end -}}
{{- else if and (kindIs "map" .value) (hasKey .value (first .parts)) -}}
{{- $inner = pick .value (first .parts) -}}
{{- end -}}
{{- $parts := rest .parts -}}
{{- range $key, $value := $inner -}}
{{- $below := ternary (printf "%s.%s" $path $key) $key (ne $path "") -}}
{{- include "mcp-exec.checkRule" (dict "rule" $rule "keys" $keys "value" $value "parts" $parts "path" $below) -}}
{{- end -}}
{{- else if $keys -}}
{{- range $key, $_ := .value -}}
{{- if not (regexMatch $rule.pattern $key) }}
{{ printf "%s has the name %q; it must be %s" $path (trunc 100 $key) $rule.words }}
{{- end -}}
{{- end -}}
{{- else if kindIs "string" .value -}}
{{- if not (ternary (regexMatch (default "" $rule.pattern) .value) (include "mcp-exec.isNetwork" .value | eq "true") (hasKey $rule "pattern")) }}
{{ printf "%s is %q; it must be %s" $path (trunc 100 .value) $rule.words }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if a text is a network without bits of a host. IPv6 with a part of IPv4 is left to the process. */}}
{{- define "mcp-exec.isNetwork" -}}
{{- $address := regexFind "^[^/]*" . -}}
{{- $prefix := int64 (regexFind "[0-9]+$" .) -}}
{{- $groups := list -}}
{{- $width := 16 -}}
{{- if regexMatch `^((0|[1-9][0-9]{0,2})\.){3}(0|[1-9][0-9]{0,2})/(0|[1-9][0-9]?)$` . -}}
{{- $width = 8 -}}
{{- $groups = splitList "." $address -}}
{{- else if regexMatch `^([0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{1,4})*)?(::)?([0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{1,4})*)?/(0|[1-9][0-9]{0,2})$` . -}}
{{- $left := splitList "::" $address | first | splitList ":" | compact -}}
{{- $right := ternary (splitList "::" $address | last | splitList ":" | compact) list (contains "::" $address) -}}
{{- $zeros := list -}}
{{- range until (ternary (add (len $left) (len $right) | sub 8 | max 0 | int) 0 (contains "::" $address)) -}}
{{- $zeros = append $zeros "0" -}}
{{- end -}}
{{- $groups = concat $left $zeros $right -}}
{{- end -}}
{{- $count := ternary 8 4 (eq $width 16) -}}
{{- $fits := and (eq (len $groups) $count) (le $prefix (mul $count $width)) -}}
{{- range $index, $group := $groups -}}
{{- $number := 0 -}}
{{- range $digit := splitList "" (lower $group) -}}
{{- $number = add (mul $number (ternary 16 10 (eq $width 16))) (regexFind (printf "^[^%s]*" $digit) "0123456789abcdef" | len) -}}
{{- end -}}
{{- $hosts := 1 -}}
{{- range until (sub (mul (add1 $index) $width) $prefix | max 0 | min $width | int) -}}
{{- $hosts = mul 2 $hosts -}}
{{- end -}}
{{- if or (mod $number $hosts) (ge $number (ternary 65536 256 (eq $width 16) | int64)) -}}
{{- $fits = false -}}
{{- end -}}
{{- end -}}
{{- if or $fits (regexMatch `^[0-9A-Fa-f:]+:[0-9]+[.][0-9.]+/[0-9]{1,3}$` .) -}}true{{- end -}}
{{- end -}}

{{/* A line for each pair of values that do not fit each other. */}}
{{- define "mcp-exec.checkTogether" -}}
{{- range $index, $network := .Values.networkPolicy.apiServer.cidrs -}}
{{- if hasSuffix "/0" $network }}
networkPolicy.apiServer.cidrs.{{ $index }} is any address; leave cidrs empty to allow the ports at any address
{{- end -}}
{{- end -}}
{{- range $namespace, $quota := .Values.quota.namespaces -}}
{{- if not (has $namespace $.Values.namespaces) }}
quota.namespaces has {{ $namespace }}, which is not one of namespaces: {{ join ", " $.Values.namespaces }}
{{- end -}}
{{- end -}}
{{- $files := .Values.broker.files | default dict -}}
{{- $s3 := $files.s3 | default dict -}}
{{- range $name, $value := ternary (omit $s3 "bucket") dict (and .Values.broker.enabled $files.enabled (empty $s3.bucket)) -}}
{{- if $value }}
broker.files.s3.{{ $name }} is set, and broker.files.s3.bucket is not: files would be on the volume; set the bucket, or remove {{ $name }}
{{- end -}}
{{- end -}}
{{- with .Values.caBundle -}}
{{- if and .configMap .secret }}
caBundle.configMap and caBundle.secret are set: choose one
{{- end -}}
{{- end -}}
{{- with .Values.networkPolicy -}}
{{- if eq .flavour "Addresses" -}}
{{- if not .apiServer.cidrs }}
networkPolicy.flavour is Addresses, and networkPolicy.apiServer.cidrs is empty: set it to the addresses that `kubectl get service,endpointslices kubernetes --namespace default` prints
{{- end -}}
{{- if and $.Values.broker.enabled (not .brokerTo) }}
networkPolicy.flavour is Addresses, and networkPolicy.brokerTo is empty: set it to what the broker may reach, with the cluster's DNS and the proxy
{{- end -}}
{{- else if and (eq .flavour "Cilium") .apiServer.cidrs }}
networkPolicy.flavour is Cilium, whose rules know the API server: remove networkPolicy.apiServer.cidrs
{{- end -}}
{{- if and .brokerToNames (ne .flavour "Cilium") }}
networkPolicy.brokerToNames needs the flavour Cilium: a NetworkPolicy has no names of hosts
{{- end -}}
{{- end -}}
{{- range $process := list "operator" "gateway" "broker" }}
{{ include "mcp-exec.checkVolumes" (list $process (get $.Values $process)) }}
{{ include "mcp-exec.checkAmounts" (dict "place" (printf "%s.resources" $process) "resources" (get $.Values $process).resources) }}
{{- end -}}
{{- $range := ternary .Values.limitRange dict .Values.limitRange.enabled -}}
{{- range $below, $above := dict "defaultRequest" "default" "default" "max" }}
{{ include "mcp-exec.compareAmounts" (dict "place" "limitRange" "below" $below "amounts" (get $range $below) "above" (printf "%s.NAME" $above) "bounds" (get $range $above)) }}
{{- end -}}
{{- $defaults := .Files.Get "files/pool-defaults.json" | fromJson -}}
{{- range $name, $server := .Values.toolServers -}}
{{- with $server.stdio }}
{{ include "mcp-exec.checkAmounts" (dict "place" (printf "toolServers.%s" $name) "resources" .resources "defaults" $defaults.resources "range" $range) }}
{{- end -}}
{{- end -}}
{{- $taken := dict -}}
{{- range $pool := include "mcp-exec.pools" . | fromJsonArray -}}
{{- $place := printf "pool %s" $pool.name -}}
{{- range $namespace := $pool.namespaces | default $.Values.namespaces -}}
{{- if has $pool.name (get $taken $namespace | default list) }}
two pools are named {{ $pool.name }} in the namespace {{ $namespace }}: rename one, or set the fields of the first pool in pool
{{- end -}}
{{- $_ := set $taken $namespace (append (get $taken $namespace | default list) $pool.name) -}}
{{- end -}}
{{- $pods := $pool.maxPods | default $defaults.maxPods | int64 -}}
{{- $warm := $pool.warm | default dict -}}
{{- range $name, $number := dict "min" (ternary $warm.min $defaults.warm.min (hasKey $warm "min")) "max" $warm.max -}}
{{- if gt (int64 $number) $pods }}
{{ $place }}: warm.{{ $name }} is {{ int64 $number }}; it must not be more than maxPods, which is {{ $pods }}
{{- end -}}
{{- end }}
{{ include "mcp-exec.checkAmounts" (dict "place" $place "resources" $pool.resources "defaults" $defaults.resources "range" $range) }}
{{- end -}}
{{- end -}}

{{/* A line for each extra volume or mount that collides with those of the chart. Arguments: process, its values. */}}
{{- define "mcp-exec.checkVolumes" -}}
{{- $process := index . 0 -}}
{{- $names := list "audit" "audit-claim" "ca-bundle" "files" "files-claim" "files-credentials" "namespaces" "proxy" "records" "records-claim" "records-database" "rules" "sandbox-key" "tls" "tmp" -}}
{{- $extra := list -}}
{{- range (index . 1).extraVolumes -}}
{{- if has .name $names }}
{{ $process }}.extraVolumes has the name {{ .name }}, which the chart uses; rename it
{{- end -}}
{{- $extra = append $extra .name -}}
{{- end -}}
{{- range (index . 1).extraVolumeMounts -}}
{{- if not (has .name $extra) }}
{{ $process }}.extraVolumeMounts has the name {{ .name }}, which is none of {{ $process }}.extraVolumes: {{ join ", " $extra | default "there are none" }}
{{- end -}}
{{- $path := printf "/%s/" (.mountPath | toString | clean | trimAll "/") | replace "//" "/" -}}
{{- range list "/etc/mcp-exec/" "/opt/mcp-exec/" "/tmp/" "/var/lib/mcp-exec/" "/var/lib/mcp-exec-files/" "/var/lib/mcp-exec-records/" "/run/secrets/kubernetes.io/serviceaccount/" "/var/run/secrets/kubernetes.io/serviceaccount/" -}}
{{- if or (hasPrefix . $path) (hasPrefix $path .) }}
{{ $process }}.extraVolumeMounts has the path {{ $path | trimSuffix "/" | default "/" }}, which is at, above or below {{ trimSuffix "/" . }} of the chart; choose another one
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
A line for each request of a container above its limit, and for each limit above that of the LimitRange. Arguments: place,
resources, defaults of a resource that is not listed, range: the LimitRange.
*/}}
{{- define "mcp-exec.checkAmounts" -}}
{{- $resources := .resources | default dict -}}
{{- $defaults := .defaults | default dict -}}
{{- $limits := merge dict ($resources.limits | default dict) ($defaults.limits | default dict) -}}
{{- $requests := merge dict ($resources.requests | default dict) ($defaults.requests | default dict) -}}
{{ include "mcp-exec.compareAmounts" (dict "place" .place "below" "requests" "amounts" $requests "above" "the limit" "bounds" $limits) }}
{{ include "mcp-exec.compareAmounts" (dict "place" .place "below" "limits" "amounts" $limits "above" "limitRange.max.NAME" "bounds" (.range | default dict).max) }}
{{- end -}}

{{/* A line for each amount above its bound. Arguments: place, below, amounts, above: with NAME of the resource, bounds. */}}
{{- define "mcp-exec.compareAmounts" -}}
{{- $bounds := .bounds | default dict -}}
{{- range $name, $amount := .amounts | default dict -}}
{{- $bound := get $bounds $name -}}
{{- if and (has (kindOf $amount) (list "string" "int" "int64" "float64")) (has (kindOf $bound) (list "string" "int" "int64" "float64")) $bound -}}
{{- if gt (include "mcp-exec.amount" $amount | float64) (include "mcp-exec.amount" $bound | float64) }}
{{ $.place }}: {{ $.below }}.{{ $name }} is {{ $amount }}; it must not be more than {{ replace "NAME" $name $.above }}, which is {{ $bound }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
