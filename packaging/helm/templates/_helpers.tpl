{{- define "tollgate.name" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) }}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "tollgate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The listeners. Their ports are those of the Service, for a redirect names the port of the one with TLS. */ -}}
{{- define "tollgate.listen" -}}
{{- $ports := list 9900 9901 (int .Values.service.httpPort) }}
{{- if .Values.tls.secret }}{{ $ports = append $ports (int .Values.service.httpsPort) }}{{ end }}
{{- if ne (len $ports) (len (uniq $ports)) }}
{{- fail "service.httpPort and service.httpsPort must differ from each other, and from 9900 and 9901 of the admin listener" }}
{{- end }}
{{- $plain := dict "name" "http" "address" (printf "0.0.0.0:%d" (int .Values.service.httpPort)) }}
{{- if .Values.tls.secret }}
{{- $cert := dict "cert" "/etc/tollgate/tls/tls.crt" "key" "/etc/tollgate/tls/tls.key" }}
{{- $tls := dict "name" "https" "address" (printf "0.0.0.0:%d" (int .Values.service.httpsPort)) "tls" $cert }}
{{- if .Values.tls.http3 }}{{ $_ := set $tls "http3" true }}{{ end }}
{{- toYaml (list $tls (set $plain "redirect" "https")) }}
{{- else }}
{{- toYaml (list $plain) }}
{{- end }}
{{- end }}

{{- define "tollgate.admin" -}}
probes: 0.0.0.0:9901
{{- if .Values.admin.operatorsSecret }}
address: 0.0.0.0:9900
tokens: /etc/tollgate/operators/operators.yaml
{{- else }}
address: 127.0.0.1:9900
{{- end }}
{{- end }}

{{- define "tollgate.store" -}}
address: {{ .Values.redis.address | quote }}
budget: {{ .Values.redis.budget }}
{{- if .Values.redis.passwordSecret }}
password_file: /etc/tollgate/redis/password
{{- end }}
{{- if .Values.redis.caSecret }}
ca: /etc/tollgate/redis-ca/ca.crt
{{- end }}
{{- end }}

{{- /* The gateway file: what the values say, and what the chart writes. */ -}}
{{- define "tollgate.gateway" -}}
{{- $own := dict "version" 1 "policies" "policies" }}
{{- $_ := set $own "listen" (include "tollgate.listen" . | fromYamlArray) }}
{{- $_ := set $own "admin" (include "tollgate.admin" . | fromYaml) }}
{{- if .Values.redis.address }}
{{- $_ := set $own "store" (include "tollgate.store" . | fromYaml) }}
{{- end }}
{{- $drain := dict "drain_delay" (printf "%ds" (int .Values.drain.delaySeconds)) "drain" (printf "%ds" (int .Values.drain.seconds)) }}
{{- $_ := set $own "timeouts" (merge $drain (.Values.gateway.timeouts | default dict)) }}
{{- toYaml (merge $own (deepCopy .Values.gateway)) }}
{{- end }}

{{- /* A key of the ConfigMap for the path of a policy, which may have folders. */ -}}
{{- define "tollgate.policyKey" -}}
policies.{{ replace "/" "__" . }}
{{- end }}
