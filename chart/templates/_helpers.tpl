{{- /*
SPDX-License-Identifier: Apache-2.0
Copyright Authors of podweir
*/ -}}
{{- define "podweir.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- /* Labels by which objects find the pods; they can never change. */}}
{{- define "podweir.selector" -}}
app.kubernetes.io/name: podweir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "podweir.labels" -}}
{{ include "podweir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: agent
{{- end }}

{{- define "podweir.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "podweir.name" .) }}
{{- end }}

{{- /* An IPv6 address stands in brackets before a port. */}}
{{- define "podweir.address" -}}
{{- $address := .Values.metrics.address }}
{{- if contains ":" $address }}[{{ $address }}]{{ else }}{{ $address }}{{ end }}
{{- end }}

{{- /* The keys of podweir's entry in the chain that have a value, as KEY=VALUE. */}}
{{- define "podweir.defaults" -}}
{{- range $key, $value := .Values.defaults }}
{{- if $value }}
{{- if kindIs "string" $value }}
- {{ printf "%s=%s" $key $value | quote }}
{{- else }}
- {{ printf "%s=%s" $key (toJson $value) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
