{{/*
keepalived.conf, the same on every Node: of equals the one with the higher address wins, and who comes back takes nothing away. An instance
for each family, since VRRP knows one. The first address goes into the advertisements, which have room for few; the others follow it.
*/}}
{{- define "nplbridge.keepalived.config" -}}
{{- $own := .Values.lbsync.keepalived -}}
{{- $families := dict "v4" list "v6" list -}}
{{- range (include "nplbridge.lbsync.embeddedRanges" . | fromYaml).ranges -}}
{{- $family := ternary "v6" "v4" (contains ":" .) -}}
{{- $_ := set $families $family (append (get $families $family) (printf "%s/%s" (regexReplaceAll "/[0-9]+$" . "") (ternary "128" "32" (contains ":" .)))) -}}
{{- end -}}
global_defs {
    vrrp_version 3
    script_user root
    enable_script_security
}
vrrp_script haproxy {
    script {{ $own.check | quote }}
    interval 1
    timeout 1
    fall 2
    rise 1
}
{{- range $family, $addresses := $families }}
{{- with $addresses }}
vrrp_instance {{ $family }} {
    interface {{ $own.interface }}
    state BACKUP
    nopreempt
    virtual_router_id {{ $own.virtualRouterID }}
    priority 100
    advert_int 1
    track_script {
        haproxy
    }
    virtual_ipaddress {
        {{ first . }}
    }
    {{- with rest . }}
    virtual_ipaddress_excluded {
        {{- range . }}
        {{ . }}
        {{- end }}
    }
    {{- end }}
}
{{- end }}
{{- end }}
{{- end }}
