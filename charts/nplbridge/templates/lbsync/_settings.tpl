{{/*
The load balancers, in the order of the values, as {providers: [{name, kind, secret, files, at, own}]}: own is what this one's section says,
or else the section of its kind; secret is mounted below files; at is where the values say it.
*/}}
{{- define "nplbridge.lbsync.providers" -}}
{{- $config := .Values.lbsync.config -}}
{{- $out := list -}}
{{- if $config.providers -}}
{{- range $i, $record := $config.providers -}}
{{- $base := printf "/etc/nplbridge/%s/" $record.kind -}}
{{- $files := printf "/etc/nplbridge/%s/" $record.name -}}
{{- $own := merge (deepCopy (get $record $record.kind | default dict)) (deepCopy (get $config $record.kind)) -}}
{{- range $key := list "passwordFile" "tokenFile" "caFile" -}}
{{- $file := get $own $key | default "" -}}
{{- if hasPrefix $base $file }}{{ $_ := set $own $key (printf "%s%s" $files (trimPrefix $base $file)) }}{{ end -}}
{{- end -}}
{{- $out = append $out (dict "name" $record.name "kind" $record.kind "secret" ($record.existingSecret | default "") "files" $files "own" $own
      "at" (printf "lbsync.config.providers[%d].%s" $i $record.kind) "secretAt" (printf "lbsync.config.providers[%d].existingSecret" $i)) -}}
{{- end -}}
{{- else -}}
{{- $kind := $config.provider -}}
{{- $out = append $out (dict "name" ($config.providerName | default $kind) "kind" $kind "secret" $.Values.lbsync.existingSecret
      "files" (printf "/etc/nplbridge/%s/" $kind) "own" (deepCopy (get $config $kind))
      "at" (printf "lbsync.config.%s" $kind) "secretAt" "lbsync.existingSecret") -}}
{{- end -}}
{{ dict "providers" $out | toYaml }}
{{- end }}

{{/* Whether HAProxy runs in the Pod beside lbsync: "true" or nothing. */}}
{{- define "nplbridge.lbsync.embedded" -}}
{{- if eq .Values.lbsync.placement "beside" -}}
{{- range (include "nplbridge.lbsync.providers" . | fromYaml).providers }}{{ if eq .kind "haproxy" }}true{{ end }}{{ end -}}
{{- end -}}
{{- end }}

{{/* The addresses that HAProxy in the Pod may give to Services, as {ranges: [...]}. */}}
{{- define "nplbridge.lbsync.embeddedRanges" -}}
{{- $name := "" -}}
{{- range (include "nplbridge.lbsync.providers" . | fromYaml).providers }}{{ if eq .kind "haproxy" }}{{ $name = .name }}{{ end }}{{ end -}}
{{- $out := list -}}
{{- range .Values.addressPools -}}
{{- if kindIs "string" . }}{{ $out = append $out . -}}
{{- else if or (not .providers) (has $name .providers) }}{{ $out = concat $out .ranges }}{{ end -}}
{{- end -}}
{{ dict "ranges" $out | toYaml }}
{{- end }}

{{/* Where node ports come from; one range that has both where agents on Windows have another. */}}
{{- define "nplbridge.nodePorts" -}}
{{- $ports := splitList "-" .Values.agent.config.portRange -}}
{{- if .Values.agent.windows.enabled -}}
{{- $windows := splitList "-" .Values.agent.windows.portRange -}}
{{- $ports = list (min (first $ports) (first $windows)) (max (last $ports) (last $windows)) -}}
{{- end -}}
{{ join "-" $ports }}
{{- end }}

{{/* The settings file. Of each kind of load balancer that there is, its section; of the others nothing. */}}
{{- define "nplbridge.lbsync.settings" -}}
{{- $config := .Values.lbsync.config -}}
{{- $providers := (include "nplbridge.lbsync.providers" . | fromYaml).providers -}}
{{- $out := omit (deepCopy $config) "provider" "providerName" "providers" "haproxy" "avi" "bigip" -}}
{{- $_ := set $out "instance" (printf "%s/%s" .Release.Namespace .Release.Name) -}}
{{- $_ := set $out "leaseNamespace" .Release.Namespace -}}
{{- $_ := set $out "leaseName" (printf "%s-lbsync" (include "nplbridge.fullname" .)) -}}
{{- $_ := set $out "serviceType" .Values.serviceType -}}
{{- $_ := set $out "portRange" (include "nplbridge.nodePorts" .) -}}
{{- $_ := set $out "addressPools" .Values.addressPools -}}
{{- $records := list -}}
{{- range $providers -}}
{{- $own := .own -}}
{{- if eq .kind "haproxy" -}}
{{- $own = merge (dict
      "configFiles" (list "/etc/haproxy/haproxy.cfg")
      "dir" "/var/lib/nplbridge/npl.d"
      "masterSocket" "/run/haproxy/master.sock"
      "adminSocket" "/run/haproxy/admin.sock"
      "binary" ""
    ) $own -}}
{{- $announce := $.Values.lbsync.haproxy.announce -}}
{{- if not $announce -}}
{{- $_ := set $own "nodeAddresses" true -}}
{{- $_ := set $out "nodePortRange" $.Values.agent.config.clusterNodePortRange -}}
{{- else if eq $announce "keepalived" -}}
{{- $_ := set $own "announce" "interface" -}}
{{- end -}}
{{- end -}}
{{- if $config.providers -}}
{{- $records = append $records (dict "name" .name "kind" .kind .kind $own) -}}
{{- else -}}
{{- $_ := set $out "provider" .kind -}}
{{- $_ := set $out "providerName" .name -}}
{{- $_ := set $out .kind $own -}}
{{- end -}}
{{- end -}}
{{- with $records }}{{ $_ := set $out "providers" . }}{{ end -}}
{{ $out | toYaml }}
{{- end }}

{{/* The settings that lbsync does not follow while it runs. */}}
{{- define "nplbridge.lbsync.restart" -}}
{{ omit (include "nplbridge.lbsync.settings" . | fromYaml) "drainLimit" "gateTimeout" "guardHold" "logLevel" "nodePortRange" "nodePortSelector" "portRange" "resync" "state" | toYaml }}
{{- end }}
