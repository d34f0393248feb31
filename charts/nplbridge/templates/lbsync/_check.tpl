{{/* Says what the values lack or contradict, which a schema cannot: one value at a time. */}}
{{- define "nplbridge.lbsync.check" -}}
{{- $config := .Values.lbsync.config -}}
{{- if $config.providers -}}
{{- if or (ne $config.provider "haproxy") $config.providerName }}{{ fail "lbsync.config.provider or providerName is set beside lbsync.config.providers: name each load balancer once, in providers" }}{{ end -}}
{{- if .Values.lbsync.existingSecret }}{{ fail "lbsync.existingSecret is set beside lbsync.config.providers: name the Secret of each load balancer in its record" }}{{ end -}}
{{- end -}}
{{- if and .Values.lbsync.tokenSecret (ne .Values.lbsync.placement "external") }}{{ fail "lbsync.tokenSecret is true, and lbsync.placement is beside: only an lbsync outside of the cluster needs a token that does not expire" }}{{ end -}}
{{- $names := list -}}
{{- $embedded := 0 -}}
{{- range (include "nplbridge.lbsync.providers" . | fromYaml).providers -}}
{{- if has .name $names }}{{ fail (printf "lbsync.config.providers has two load balancers with the name %s: give each its own" .name) }}{{ end -}}
{{- $names = append $names .name -}}
{{- if eq .kind "haproxy" -}}
{{- $embedded = add $embedded 1 -}}
{{- else -}}
{{- include "nplbridge.lbsync.checkRemote" . -}}
{{- end -}}
{{- end -}}
{{- if gt (int $embedded) 1 }}{{ fail "lbsync.config.providers has two of kind haproxy: this chart runs one HAProxy on a Node; install the chart twice, on different Nodes" }}{{ end -}}
{{- range .Values.addressPools -}}
{{- if not (kindIs "string" .) -}}
{{- $pool := .name -}}
{{- range .providers }}{{ if not (has . $names) }}{{ fail (printf "addressPools: providers of %s names %s, which is no load balancer of lbsync.config; there is %s" $pool . (join ", " $names)) }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if include "nplbridge.lbsync.embedded" . }}{{ include "nplbridge.lbsync.checkEmbedded" . }}{{ end -}}
{{- end }}

{{/* What a load balancer elsewhere cannot do without; takes one of nplbridge.lbsync.providers. */}}
{{- define "nplbridge.lbsync.checkRemote" -}}
{{- $provider := . -}}
{{- $own := .own -}}
{{- if not (or $own.url $own.urls) }}{{ fail (printf "%s.%s is empty: give https://host of the load balancer" .at (ternary "url" "urls" (eq .kind "avi"))) }}{{ end -}}
{{- if not $own.username }}{{ fail (printf "%s.username is empty: give the account that lbsync has on the load balancer" .at) }}{{ end -}}
{{- if not (or $own.passwordFile $own.tokenFile) }}{{ fail (printf "%s.passwordFile is empty: give the file with the password of the account, %spassword where a Secret has it" .at .files) }}{{ end -}}
{{- range $key := list "passwordFile" "tokenFile" "caFile" -}}
{{- if and (not $provider.secret) (hasPrefix $provider.files (get $own $key | default "")) }}{{ fail (printf "%s is empty, and %s.%s is a file of it: name a Secret, or set it to nothing" $provider.secretAt $provider.at $key) }}{{ end -}}
{{- end -}}
{{- end }}

{{/* Nothing is published that nobody announces. */}}
{{- define "nplbridge.lbsync.checkEmbedded" -}}
{{- $announce := .Values.lbsync.haproxy.announce -}}
{{- $ranges := (include "nplbridge.lbsync.embeddedRanges" . | fromYaml).ranges -}}
{{- if and $ranges (not $announce) }}{{ fail "addressPools has addresses for HAProxy, and nobody announces them: set lbsync.haproxy.announce to keepalived (the Nodes hand them over by VRRP) or routed (you route or announce them to these Nodes), or leave addressPools empty, then Services get the Nodes' own addresses" }}{{ end -}}
{{- if eq $announce "keepalived" -}}
{{- $keepalived := .Values.lbsync.keepalived -}}
{{- if not $ranges }}{{ fail "lbsync.haproxy.announce is keepalived, and addressPools has no address for HAProxy: give the addresses that the Nodes are to hand over" }}{{ end -}}
{{- if not $keepalived.image.repository }}{{ fail "lbsync.keepalived.image.repository is empty: name an image that has keepalived 2 and a shell; there is none by its makers" }}{{ end -}}
{{- if not $keepalived.interface }}{{ fail "lbsync.keepalived.interface is empty: name the interface of the Nodes that the addresses are for, such as eth0" }}{{ end -}}
{{- range $ranges -}}
{{- if not (regexMatch "^[0-9a-fA-F:.]+(/32|/128)?$" .) }}{{ fail (printf "addressPools: %s is not a single address, and keepalived announces each: write them one by one, such as 192.0.2.10 or 192.0.2.10/32" .) }}{{ end -}}
{{- if and (contains ":" .) (hasSuffix "/32" .) }}{{ fail (printf "addressPools: %s is not a single address, and keepalived announces each: write %s/128" . (trimSuffix "/32" .)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}
