{{/* The annotations of an object of the hook that takes everything away before `helm uninstall`; takes (list weight). */}}
{{- define "nplbridge.hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ first . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
