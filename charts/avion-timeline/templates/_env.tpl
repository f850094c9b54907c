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
{{- else }}
{{- if include "avion-timeline.callsUsers" . }}
- name: TIMELINE_USER_SERVICE_ADDR
  value: {{ include "avion-timeline.userService" $root | quote }}
{{- end }}
{{- if include "avion-timeline.callsPosts" . }}
- name: TIMELINE_POST_SERVICE_ADDR
  value: {{ include "avion-timeline.postService" $root | quote }}
{{- end }}
{{- end }}
{{- if include "avion-timeline.callsTimelines" . }}
- name: TIMELINE_API_ADDR
  value: {{ include "avion-timeline.timelineService" $root | quote }}
{{- end }}
{{- if include "avion-timeline.callsNotifications" . }}
- name: TIMELINE_NOTIFICATION_SERVICE_ADDR
  value: {{ include "avion-timeline.notificationService" $root | quote }}
{{- end }}
{{- if include "avion-timeline.checksTokens" . }}
{{- if or $values.jwt.secret $values.jwt.existingSecret.name }}
- name: TIMELINE_JWT_SECRET
  valueFrom:
    {{- include "avion-timeline.secretRef" (dict "root" $root "existing" $values.jwt.existingSecret "key" "TIMELINE_JWT_SECRET") | nindent 4 }}
{{- else if not $values.jwt.jwksUrl }}
{{- fail "jwt.secret, jwt.existingSecret.name or jwt.jwksUrl is needed by the roles gateway and ops" }}
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
{{- if eq $channel "jwks" }}
- name: NODE_EXTRA_CA_CERTS
  value: /etc/avion-timeline/tls/jwks/ca.crt
{{- else }}
- name: {{ printf "TIMELINE_%s_TLS" (upper $channel) }}
  value: /etc/avion-timeline/tls/{{ $channel }}
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
{{- $tls := include "avion-timeline.tlsOf" (dict "root" $.root "channel" $channel) | fromYaml }}
- name: tls-{{ $channel }}
  secret:
    secretName: {{ $tls.existingSecret }}
    defaultMode: 0440
    items:
      {{- range $file, $path := dict "ca" "ca.crt" "cert" "tls.crt" "key" "tls.key" }}
      {{- with index $tls $file }}
      - key: {{ . }}
        path: {{ $path }}
      {{- end }}
      {{- end }}
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
