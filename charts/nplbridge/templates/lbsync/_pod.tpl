{{/* The Pod of lbsync: alone, or in embedded mode with HAProxy, and keepalived, on the Node's network. */}}
{{- define "nplbridge.lbsync.pod" -}}
{{- $fullname := include "nplbridge.fullname" . -}}
{{- $embedded := include "nplbridge.lbsync.embedded" . -}}
{{- $keepalived := and $embedded (eq .Values.lbsync.haproxy.announce "keepalived") -}}
metadata:
  labels:
    {{- include "nplbridge.labels" (list . "lbsync") | nindent 4 }}
    {{- with .Values.lbsync.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    kubectl.kubernetes.io/default-container: lbsync
    {{- if not $embedded }}
    checksum/settings: {{ include "nplbridge.lbsync.restart" . | sha256sum }}
    {{- else }}
    # Not the settings: lbsync takes them over by itself, and HAProxy goes on.
    checksum/haproxy: {{ .Values.lbsync.haproxy.config | sha256sum }}
    {{- end }}
    {{- if $keepalived }}
    checksum/keepalived: {{ include "nplbridge.keepalived.config" . | sha256sum }}
    {{- end }}
    {{- with .Values.lbsync.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ $fullname }}-lbsync
  automountServiceAccountToken: true
  enableServiceLinks: false
  hostNetwork: {{ not (empty $embedded) }}
  dnsPolicy: {{ ternary "ClusterFirstWithHostNet" "ClusterFirst" (not (empty $embedded)) }}
  {{- with .Values.lbsync.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: 60
  securityContext:
    {{- if $embedded }}
    # One user on both sides of HAProxy's sockets, which are for that user alone; HAProxy binds ports below 1024.
    runAsUser: 0
    runAsGroup: 0
    {{- else }}
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    {{- end }}
    seccompProfile: {type: RuntimeDefault}
  {{- if and $keepalived .Values.lbsync.keepalived.nonlocalBind }}
  initContainers:
    # HAProxy binds the addresses on every Node, also on those that do not have them now. Only a privileged container may say so.
    - name: nonlocal-bind
      image: {{ include "nplbridge.image" (list . .Values.lbsync.keepalived.image) | quote }}
      imagePullPolicy: {{ .Values.lbsync.keepalived.image.pullPolicy }}
      command: [/bin/sh, -ec]
      args:
        - |
          echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind
          if [ -e /proc/sys/net/ipv6/ip_nonlocal_bind ]; then echo 1 > /proc/sys/net/ipv6/ip_nonlocal_bind; fi
      resources: {{- toYaml .Values.lbsync.keepalived.resources | nindent 8 }}
      securityContext:
        privileged: true
        readOnlyRootFilesystem: true
  {{- end }}
  containers:
    {{- if $embedded }}
    - name: haproxy
      image: {{ include "nplbridge.image" (list . .Values.lbsync.haproxy.image) | quote }}
      imagePullPolicy: {{ .Values.lbsync.haproxy.image.pullPolicy }}
      command: [haproxy]
      args:
        - -W
        - -db
        - -S
        - /run/haproxy/master.sock,mode,600
        - -f
        - /etc/haproxy/haproxy.cfg
        - -f
        - /var/lib/nplbridge/npl.d
      resources: {{- toYaml .Values.lbsync.haproxy.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}
      volumeMounts:
        - {name: haproxy, mountPath: /etc/haproxy, readOnly: true}
        - {name: sockets, mountPath: /run/haproxy}
        - {name: generated, mountPath: /var/lib/nplbridge/npl.d}
    {{- end }}
    - name: lbsync
      image: {{ include "nplbridge.image" (list . .Values.lbsync.image) | quote }}
      imagePullPolicy: {{ .Values.lbsync.image.pullPolicy }}
      args: [run]
      env:
        # Not a flag, so that check in this container reads the same file.
        - {name: LBSYNC_CONFIG, value: /etc/nplbridge/settings.yaml}
        - name: LBSYNC_IDENTITY
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- if $embedded }}
        - name: LBSYNC_NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        {{- end }}
        # What this Pod publishes goes with it.
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: POD_NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        - name: POD_UID
          valueFrom: {fieldRef: {fieldPath: metadata.uid}}
        {{- with .Values.lbsync.extraEnv }}{{ toYaml . | nindent 8 }}{{ end }}
      ports:
        - {name: probes, containerPort: {{ include "nplbridge.port" .Values.lbsync.config.listen }}, protocol: TCP}
      {{- include "nplbridge.probes" . | nindent 6 }}
      resources: {{- toYaml .Values.lbsync.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: settings, mountPath: /etc/nplbridge, readOnly: true}
        - {name: run, mountPath: /run/nplbridge}
        {{- if $embedded }}
        - {name: haproxy, mountPath: /etc/haproxy, readOnly: true}
        - {name: sockets, mountPath: /run/haproxy}
        - {name: generated, mountPath: /var/lib/nplbridge/npl.d}
        {{- end }}
        {{- with .Values.lbsync.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
    {{- if $keepalived }}
    - name: keepalived
      image: {{ include "nplbridge.image" (list . .Values.lbsync.keepalived.image) | quote }}
      imagePullPolicy: {{ .Values.lbsync.keepalived.image.pullPolicy }}
      command: [keepalived]
      args: [--dont-fork, --log-console, --log-detail, --use-file, /etc/keepalived/keepalived.conf, --pid, /run/keepalived/keepalived.pid, --vrrp_pid, /run/keepalived/vrrp.pid]
      resources: {{- toYaml .Values.lbsync.keepalived.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        # Addresses on the interface; VRRP; and it starts its check only after setgroups, or else takes HAProxy for well without asking.
        capabilities: {drop: [ALL], add: [NET_ADMIN, NET_RAW, SETGID]}
      volumeMounts:
        - {name: keepalived, mountPath: /etc/keepalived, readOnly: true}
        - {name: keepalived-run, mountPath: /run/keepalived}
    {{- end }}
  volumes:
    - name: settings
      # One volume, so that a new password gets here without a new Pod.
      projected:
        defaultMode: 0440
        sources:
          - configMap: {name: {{ $fullname }}-lbsync}
          {{- range (include "nplbridge.lbsync.providers" . | fromYaml).providers }}
          {{- if and .secret (ne .kind "haproxy") }}
          {{- $directory := trimPrefix "/etc/nplbridge/" .files }}
          - secret:
              name: {{ .secret }}
              optional: true # lbsync says what is missing
              items:
                {{- range list "password" "token" "ca.crt" }}
                - {key: {{ . }}, path: {{ $directory }}{{ . }}}
                {{- end }}
          {{- end }}
          {{- end }}
    - name: run
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    {{- if $embedded }}
    - name: haproxy
      configMap: {name: {{ $fullname }}-haproxy}
    - name: sockets
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    - name: generated
      emptyDir: {}
    {{- end }}
    {{- if $keepalived }}
    - name: keepalived
      configMap: {name: {{ $fullname }}-keepalived}
    - name: keepalived-run
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    {{- end }}
    {{- with .Values.lbsync.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.lbsync.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.lbsync.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if not $embedded }}
  topologySpreadConstraints:
    {{- if .Values.lbsync.topologySpreadConstraints }}
    {{- toYaml .Values.lbsync.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "nplbridge.selector" (list $ "lbsync") | nindent 10 }}
      matchLabelKeys: [pod-template-hash]
    {{- end }}
    {{- end }}
  {{- end }}
  {{- with .Values.lbsync.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
