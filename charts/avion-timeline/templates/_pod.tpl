{{/*
The spec of a pod of a role; with args, of a job that runs a command with the connections of that role. A job has no
ports, no probes and nothing to drain.
*/}}
{{- define "avion-timeline.pod" -}}
{{- $root := .root }}
{{- $settings := .settings }}
{{- $component := .component | default .role }}
{{- /* What every role gets, then what this one gets besides. */}}
{{- $lists := dict }}
{{- range $list := list "extraVolumes" "extraVolumeMounts" "initContainers" "extraContainers" "extraEnvFrom" "hostAliases" }}
{{- $_ := set $lists $list (concat (index $root.Values $list) (index $settings $list | default list)) }}
{{- end -}}
serviceAccountName: {{ include "avion-timeline.serviceAccountName" $root }}
automountServiceAccountToken: false
# Kubernetes would add a variable for every Service of the namespace; one that
# begins with TIMELINE_ is refused by the service as unknown.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ include "avion-timeline.terminationSeconds" . }}
{{- if .args }}
restartPolicy: Never
{{- end }}
securityContext:
  {{- toYaml (mergeOverwrite (deepCopy $root.Values.podSecurityContext) ($settings.podSecurityContext | default dict)) | nindent 2 }}
{{- with include "avion-timeline.pullSecrets" $root }}
{{ . }}
{{- end }}
{{- with $lists.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $settings.dnsPolicy | default $root.Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with $settings.dnsConfig | default $root.Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $settings.priorityClassName | default $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $settings.nodeSelector | default $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $settings.tolerations | default $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $settings.affinity | default $root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if not .args }}
{{- with $root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- toYaml . | nindent 4 }}
    labelSelector:
      matchLabels:
        {{- include "avion-timeline.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $component }}
  {{- end }}
{{- end }}
{{- end }}
{{- with $lists.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ $component }}
    image: {{ include "avion-timeline.image" $root | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: {{ .args | default (list "serve") | toJson }}
    securityContext:
      {{- toYaml (mergeOverwrite (deepCopy $root.Values.securityContext) ($settings.securityContext | default dict)) | nindent 6 }}
    envFrom:
      - configMapRef:
          name: {{ include "avion-timeline.fullname" $root }}
      {{- with $lists.extraEnvFrom }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    env:
      {{- include "avion-timeline.env" . | nindent 6 }}
    {{- if not .args }}
    ports:
      - name: http
        containerPort: 8080
      {{- if include "avion-timeline.servesGrpc" . }}
      - name: grpc
        containerPort: 50051
      {{- end }}
      {{- if eq .role "ops" }}
      - name: ops
        containerPort: 8081
      {{- end }}
    startupProbe:
      httpGet: { path: /healthz, port: http }
      {{- toYaml $root.Values.startupProbe | nindent 6 }}
    livenessProbe:
      httpGet: { path: /healthz, port: http }
      {{- toYaml $root.Values.livenessProbe | nindent 6 }}
    readinessProbe:
      httpGet: { path: /readyz, port: http }
      {{- toYaml $root.Values.readinessProbe | nindent 6 }}
    {{- if $root.Values.shutdown.preStopSeconds }}
    lifecycle:
      preStop:
        exec:
          command: [sleep, {{ $root.Values.shutdown.preStopSeconds | quote }}]
    {{- end }}
    {{- end }}
    resources:
      {{- toYaml (.resources | default $settings.resources) | nindent 6 }}
    volumeMounts:
      {{- include "avion-timeline.mounts" . | nindent 6 }}
      {{- with $lists.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- /* A container beside it would keep a job from ending. */}}
  {{- if and $lists.extraContainers (not .args) }}
  {{- toYaml $lists.extraContainers | nindent 2 }}
  {{- end }}
volumes:
  {{- include "avion-timeline.volumes" . | nindent 2 }}
  {{- with $lists.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
