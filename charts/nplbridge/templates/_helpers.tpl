{{/* Names are at most 50 characters, so that "-lbsync-token" still fits into 63. */}}
{{- define "nplbridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "nplbridge.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "nplbridge.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "nplbridge.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Selector and labels take (list root component). */}}
{{- define "nplbridge.selector" -}}
app.kubernetes.io/name: {{ include "nplbridge.name" (first .) }}
app.kubernetes.io/instance: {{ (first .).Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{- define "nplbridge.labels" -}}
{{ include "nplbridge.selector" . }}
app.kubernetes.io/part-of: nplbridge
app.kubernetes.io/version: {{ (first .).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (first .).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (first .).Chart.Name (first .).Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image takes (list root values-of-the-image). */}}
{{- define "nplbridge.image" -}}
{{- $image := last . -}}
{{ $image.repository }}:{{ $image.tag | default (first .).Chart.AppVersion }}
{{- end }}

{{/* The user name of a ServiceAccount of ours; takes (list root component). */}}
{{- define "nplbridge.account" -}}
system:serviceaccount:{{ (first .).Release.Namespace }}:{{ include "nplbridge.fullname" (first .) }}-{{ last . }}
{{- end }}

{{- define "nplbridge.annotation" -}}
nodeportlocal.antrea.io
{{- end }}

{{/* Puts an admission policy into force; takes (list root component name). */}}
{{- define "nplbridge.admissionBinding" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ last . }}
  labels: {{- include "nplbridge.labels" (list (first .) (index . 1)) | nindent 4 }}
spec:
  policyName: {{ last . }}
  validationActions: [Deny]
{{- end }}

{{/* The port of a listen address "host:port". */}}
{{- define "nplbridge.port" -}}
{{ splitList ":" . | last }}
{{- end }}

{{- define "nplbridge.probes" -}}
livenessProbe:
  httpGet: {path: /livez, port: probes}
  periodSeconds: 10
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: probes}
  periodSeconds: 2
  failureThreshold: 2
{{- end }}

{{/* The settings files. The programs follow some settings while they run; a change of those alone restarts nothing. */}}
{{- define "nplbridge.agent.portReuse" -}}
{{- .Values.agent.config.portReuse | default (ternary "confirmed" "coolDown" .Values.lbsync.enabled) }}
{{- end }}

{{- define "nplbridge.agent.settings" -}}
{{- $reuse := include "nplbridge.agent.portReuse" . -}}
{{ merge (dict
      "watermarkNamespace" .Release.Namespace
      "portReuse" $reuse
      "coolDown" (.Values.agent.config.coolDown | default (ternary "1m" "5m" (eq $reuse "confirmed")))
    ) (deepCopy .Values.agent.config) | toYaml }}
{{- end }}
