{{- define "avion-timeline.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Leaves room for the longest suffixes, "-users-headless" and "-posts-headless". */}}
{{- define "avion-timeline.fullname" -}}
{{- $name := include "avion-timeline.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- end -}}

{{/* What selects pods of the release, whatever their role. */}}
{{- define "avion-timeline.selector" -}}
app.kubernetes.io/name: {{ include "avion-timeline.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "avion-timeline.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "avion-timeline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "avion-timeline.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "avion-timeline.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "avion-timeline.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* A value of the environment as text: whole numbers of values.yaml arrive as floats. */}}
{{- define "avion-timeline.text" -}}
{{- if kindIs "float64" . -}}{{ int64 . | quote }}{{- else -}}{{ toString . | quote }}{{- end -}}
{{- end -}}

{{/* Shutdown grace of a role in ms: its own config goes before that of all. */}}
{{- define "avion-timeline.graceMs" -}}
{{- $own := (.settings.config | default dict).TIMELINE_SHUTDOWN_GRACE_MS -}}
{{- $own | default (.root.Values.config.TIMELINE_SHUTDOWN_GRACE_MS | default 20000) | int64 -}}
{{- end -}}

{{/* The process ends by itself 10 s after its grace; only what hangs even then is killed. */}}
{{- define "avion-timeline.terminationSeconds" -}}
{{- $graceMs := include "avion-timeline.graceMs" . | int64 -}}
{{- add (div (add $graceMs 999) 1000) (int64 .root.Values.shutdown.preStopSeconds) 15 -}}
{{- end -}}

{{/* Keys of the chart's own Secret, and the Secret each value comes from. */}}
{{- define "avion-timeline.ownSecret" -}}
{{- printf "%s" (include "avion-timeline.fullname" .) -}}
{{- end -}}

{{- define "avion-timeline.secretRef" -}}
secretKeyRef:
  name: {{ .existing.name | default (include "avion-timeline.ownSecret" .root) }}
  key: {{ ternary .existing.key .key (ne .existing.name "") }}
{{- end -}}

{{/* Roles that serve gRPC: a comma list. */}}
{{- define "avion-timeline.grpcRoles" -}}api,users,posts{{- end -}}

{{- define "avion-timeline.servesGrpc" -}}
{{- if has .role (include "avion-timeline.grpcRoles" . | splitList ",") -}}true{{- end -}}
{{- end -}}

{{/* Whether a role keeps data of its own, in PostgreSQL. */}}
{{- define "avion-timeline.stores" -}}
{{- if has .role (list "users" "posts" "analysis" "rewards") -}}true{{- end -}}
{{- end -}}

{{/* Whether a role is called by other roles of the release. */}}
{{- define "avion-timeline.isUpstream" -}}
{{- if has .role (list "users" "posts") -}}true{{- end -}}
{{- end -}}

{{/* The gateway reads results where there is a database. */}}
{{- define "avion-timeline.usesDatabase" -}}
{{- $database := .root.Values.database -}}
{{- if or (include "avion-timeline.stores" .) (and (eq .role "gateway") (or $database.url $database.existingSecret.name)) -}}true{{- end -}}
{{- end -}}

{{/* host:port of an upstream: as given, else of the release's own role, else empty. */}}
{{- define "avion-timeline.upstream" -}}
{{- $given := index .root.Values.upstreams .upstream -}}
{{- $service := index .root.Values.service .role -}}
{{- if $given -}}
{{ $given }}
{{- else if (index .root.Values.roles .role).enabled -}}
{{- include "avion-timeline.checkOwnTls" .root -}}
{{- $name := printf "%s-%s" (include "avion-timeline.fullname" .root) .role -}}
{{- if $service.headless }}{{ $name }}-headless:50051{{ else }}{{ $name }}:{{ $service.port }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "avion-timeline.userService" -}}
{{- include "avion-timeline.upstream" (dict "root" . "upstream" "userService" "role" "users") -}}
{{- end -}}

{{- define "avion-timeline.postService" -}}
{{- include "avion-timeline.upstream" (dict "root" . "upstream" "postService" "role" "posts") -}}
{{- end -}}

{{/* How a channel is secured, as YAML: by its own settings, else by tls.enabled. */}}
{{- define "avion-timeline.tlsOf" -}}
{{- $tls := .root.Values.tls -}}
{{- $own := index $tls .channel -}}
{{- if and $tls.enabled (has .channel (list "grpc" "upstream")) (not $own.existingSecret) -}}
{{- if eq (empty $tls.existingSecret) (empty $tls.issuer.name) -}}
{{- fail "tls.existingSecret or tls.issuer.name is needed where tls.enabled is true, and not both" -}}
{{- end -}}
{{- $secret := $tls.existingSecret | default (printf "%s-tls" (include "avion-timeline.fullname" .root)) -}}
{{- dict "existingSecret" $secret "ca" "ca.crt" "cert" "tls.crt" "key" "tls.key" | toYaml -}}
{{- else -}}
{{- toYaml $own -}}
{{- end -}}
{{- end -}}

{{/* What is called here is what is served here: a difference would only show as calls that fail. */}}
{{- define "avion-timeline.checkOwnTls" -}}
{{- $grpc := include "avion-timeline.tlsOf" (dict "root" . "channel" "grpc") | fromYaml -}}
{{- $upstream := include "avion-timeline.tlsOf" (dict "root" . "channel" "upstream") | fromYaml -}}
{{- if ne (empty $grpc.existingSecret) (empty $upstream.existingSecret) -}}
{{- fail "tls.grpc and tls.upstream go together where the roles users or posts are called: they are served by the one and called by the other" -}}
{{- end -}}
{{- if and $grpc.existingSecret $grpc.ca (not $upstream.cert) -}}
{{- fail "tls.upstream.cert and tls.upstream.key are needed: tls.grpc.ca asks whoever calls the roles users and posts for a certificate" -}}
{{- end -}}
{{- end -}}

{{/* Whether a role calls the upstreams: the bridge does where there are both, to look up what Redis Pub/Sub has lost, and posts to find out who follows. */}}
{{- define "avion-timeline.callsUpstreams" -}}
{{- if has .role (list "api" "fanout" "analysis") -}}
true
{{- else if and (has .role (list "bridge" "posts")) (include "avion-timeline.userService" .root) (include "avion-timeline.postService" .root) -}}
true
{{- end -}}
{{- end -}}

{{/* TLS channels a role opens or serves: a comma list. */}}
{{- define "avion-timeline.tlsChannels" -}}
{{- $channels := list "nats" "redis" -}}
{{- if include "avion-timeline.usesDatabase" . }}{{ $channels = append $channels "database" }}{{ end -}}
{{- if eq .role "gateway" }}{{ $channels = append $channels "jwks" }}{{ end -}}
{{- if include "avion-timeline.servesGrpc" . }}{{ $channels = append $channels "grpc" }}{{ end -}}
{{- if include "avion-timeline.callsUpstreams" . }}{{ $channels = append $channels "upstream" }}{{ end -}}
{{- $used := list -}}
{{- range $channels }}{{ if (include "avion-timeline.tlsOf" (dict "root" $.root "channel" .) | fromYaml).existingSecret }}{{ $used = append $used . }}{{ end }}{{ end -}}
{{- join "," $used -}}
{{- end -}}

{{- define "avion-timeline.hasCreds" -}}
{{- if or .Values.nats.creds.content .Values.nats.creds.existingSecret.name -}}true{{- end -}}
{{- end -}}

{{- define "avion-timeline.allowsUnsafe" -}}
{{- (.settings.config | default dict).TIMELINE_JWT_ALLOW_UNSAFE | default .root.Values.config.TIMELINE_JWT_ALLOW_UNSAFE | toString -}}
{{- end -}}

{{/* The environment of a role, besides the ConfigMap. */}}
{{- define "avion-timeline.env" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
- name: TIMELINE_ROLES
  value: {{ .role }}
- name: TIMELINE_POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: REDIS_URL
  valueFrom:
    {{- include "avion-timeline.secretRef" (dict "root" $root "existing" $values.redis.existingSecret "key" "REDIS_URL") | nindent 4 }}
- name: NATS_URL
  valueFrom:
    {{- $nats := $values.nats.existingSecret }}
    {{- with .settings.natsUrlKey }}
    {{- $nats = dict "name" ($values.nats.existingSecret.name | required "nats.existingSecret.name is needed where a role has a natsUrlKey") "key" . }}
    {{- end }}
    {{- include "avion-timeline.secretRef" (dict "root" $root "existing" $nats "key" "NATS_URL") | nindent 4 }}
{{- if include "avion-timeline.hasCreds" $root }}
- name: TIMELINE_NATS_CREDS
  value: /etc/avion-timeline/nats-creds/nats.creds
{{- end }}
{{- if include "avion-timeline.usesDatabase" . }}
- name: DATABASE_URL
  valueFrom:
    {{- include "avion-timeline.secretRef" (dict "root" $root "existing" $values.database.existingSecret "key" "DATABASE_URL") | nindent 4 }}
{{- end }}
{{- if include "avion-timeline.callsUpstreams" . }}
- name: TIMELINE_USER_SERVICE_ADDR
  value: {{ include "avion-timeline.userService" $root | required "upstreams.userService is needed: host:port of the UserService, or the role users enabled" | quote }}
- name: TIMELINE_POST_SERVICE_ADDR
  value: {{ include "avion-timeline.postService" $root | required "upstreams.postService is needed: host:port of the PostService, or the role posts enabled" | quote }}
{{- end }}
{{- if eq .role "gateway" }}
{{- if or $values.jwt.secret $values.jwt.existingSecret.name }}
- name: TIMELINE_JWT_SECRET
  valueFrom:
    {{- include "avion-timeline.secretRef" (dict "root" $root "existing" $values.jwt.existingSecret "key" "TIMELINE_JWT_SECRET") | nindent 4 }}
{{- else if not $values.jwt.jwksUrl }}
{{- fail "jwt.secret, jwt.existingSecret.name or jwt.jwksUrl is needed by the gateway" }}
{{- end }}
{{- if and $values.jwt.jwksUrl (or $values.jwt.secret $values.jwt.existingSecret.name) }}
{{- fail "jwt.jwksUrl excludes jwt.secret and jwt.existingSecret.name" }}
{{- end }}
{{- if ne (include "avion-timeline.allowsUnsafe" .) "true" }}
{{- if and $values.jwt.jwksUrl (or (not $values.jwt.issuer) (not $values.jwt.audience) (not (hasPrefix "https:" $values.jwt.jwksUrl))) }}
{{- fail "jwt.jwksUrl must begin with https:, and jwt.issuer and jwt.audience are needed with it" }}
{{- end }}
{{- end }}
{{- with $values.jwt.jwksUrl }}
- name: TIMELINE_JWT_JWKS_URL
  value: {{ . | quote }}
{{- end }}
{{- with $values.jwt.issuer }}
- name: TIMELINE_JWT_ISSUER
  value: {{ . | quote }}
{{- end }}
{{- with $values.jwt.audience }}
- name: TIMELINE_JWT_AUDIENCE
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- range $channel := include "avion-timeline.tlsChannels" . | splitList "," | compact }}
{{- $tls := include "avion-timeline.tlsOf" (dict "root" $root "channel" $channel) | fromYaml }}
{{- range $file := list "ca" "cert" "key" }}
{{- if index $tls $file }}
- name: {{ eq $channel "jwks" | ternary "NODE_EXTRA_CA_CERTS" (printf "TIMELINE_%s_TLS_%s" (upper $channel) (upper $file)) }}
  value: /etc/avion-timeline/tls/{{ $channel }}/{{ index $tls $file }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := .settings.config }}
- name: {{ $name }}
  value: {{ include "avion-timeline.text" $value }}
{{- end }}
{{- with concat $values.extraEnv (.settings.extraEnv | default list) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Mounted files, as volumes and as mounts: read-only but for /tmp. */}}
{{- define "avion-timeline.volumes" -}}
- name: tmp
  emptyDir: { sizeLimit: 64Mi }
{{- $creds := .root.Values.nats.creds }}
{{- if include "avion-timeline.hasCreds" .root }}
- name: nats-creds
  secret:
    secretName: {{ $creds.existingSecret.name | default (include "avion-timeline.ownSecret" .root) }}
    defaultMode: 0440
    items:
      - key: {{ ternary $creds.existingSecret.key "nats.creds" (ne $creds.existingSecret.name "") }}
        path: nats.creds
{{- end }}
{{- range $channel := include "avion-timeline.tlsChannels" . | splitList "," | compact }}
- name: tls-{{ $channel }}
  secret:
    secretName: {{ (include "avion-timeline.tlsOf" (dict "root" $.root "channel" $channel) | fromYaml).existingSecret }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "avion-timeline.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if include "avion-timeline.hasCreds" .root }}
- name: nats-creds
  mountPath: /etc/avion-timeline/nats-creds
  readOnly: true
{{- end }}
{{- range $channel := include "avion-timeline.tlsChannels" . | splitList "," | compact }}
- name: tls-{{ $channel }}
  mountPath: /etc/avion-timeline/tls/{{ $channel }}
  readOnly: true
{{- end }}
{{- end -}}

{{/* Fields of a Service as Kubernetes names them, where they are given. */}}
{{- define "avion-timeline.serviceFields" -}}
{{- $fields := pick . "clusterIP" "externalIPs" "externalTrafficPolicy" "internalTrafficPolicy" "ipFamilies" "ipFamilyPolicy" "loadBalancerClass" "loadBalancerIP" "loadBalancerSourceRanges" "sessionAffinity" "sessionAffinityConfig" "trafficDistribution" -}}
{{- with $fields -}}{{ toYaml . }}{{- end -}}
{{- end -}}
