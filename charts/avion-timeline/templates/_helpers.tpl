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

{{/* Labels of every pod, but for its component. */}}
{{- define "avion-timeline.podLabels" -}}
{{- with .Values.podLabels }}
{{- toYaml . }}
{{ end -}}
{{- include "avion-timeline.labels" . }}
{{- end -}}

{{- define "avion-timeline.pullSecrets" -}}
{{- with .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ kindIs "string" . | ternary . (get (kindIs "map" . | ternary . dict) "name") }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* When a CronJob runs. One that takes longer than its interval delays the next one. */}}
{{- define "avion-timeline.schedule" -}}
schedule: {{ .schedule | quote }}
concurrencyPolicy: Forbid
startingDeadlineSeconds: 3600
successfulJobsHistoryLimit: 1
failedJobsHistoryLimit: 3
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

{{/* Roles that serve gRPC: a comma list. */}}
{{- define "avion-timeline.grpcRoles" -}}api,users,posts,notifications{{- end -}}

{{- define "avion-timeline.servesGrpc" -}}
{{- if has .role (include "avion-timeline.grpcRoles" . | splitList ",") -}}true{{- end -}}
{{- end -}}

{{/* Whether a role keeps data of its own, in PostgreSQL. */}}
{{- define "avion-timeline.stores" -}}
{{- if has .role (list "users" "posts" "analysis" "rewards" "notifications") -}}true{{- end -}}
{{- end -}}

{{/* Whether a role checks tokens of users. */}}
{{- define "avion-timeline.checksTokens" -}}
{{- if has .role (list "gateway" "ops") -}}true{{- end -}}
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

{{/* What the gateway serves over HTTP: as given, else this release's role, if the gateway can show it the certificate that it asks for. */}}
{{- define "avion-timeline.served" -}}
{{- $grpc := include "avion-timeline.tlsOf" (dict "root" .root "channel" "grpc") | fromYaml -}}
{{- $upstream := include "avion-timeline.tlsOf" (dict "root" .root "channel" "upstream") | fromYaml -}}
{{- $fits := and (eq (empty $grpc.existingSecret) (empty $upstream.existingSecret)) (not (and $grpc.existingSecret $grpc.ca (not $upstream.cert))) -}}
{{- if or (index .root.Values.upstreams .upstream) $fits -}}
{{- include "avion-timeline.upstream" . -}}
{{- end -}}
{{- end -}}

{{- define "avion-timeline.timelineService" -}}
{{- include "avion-timeline.served" (dict "root" . "upstream" "timelineService" "role" "api") -}}
{{- end -}}

{{- define "avion-timeline.notificationService" -}}
{{- include "avion-timeline.served" (dict "root" . "upstream" "notificationService" "role" "notifications") -}}
{{- end -}}

{{- define "avion-timeline.callsTimelines" -}}
{{- if and (eq .role "gateway") (include "avion-timeline.timelineService" .root) -}}true{{- end -}}
{{- end -}}

{{- define "avion-timeline.callsNotifications" -}}
{{- if and (eq .role "gateway") (include "avion-timeline.notificationService" .root) -}}true{{- end -}}
{{- end -}}

{{/* The gateway asks the posts service for the drops of pages. */}}
{{- define "avion-timeline.callsPosts" -}}
{{- if and (include "avion-timeline.callsTimelines" .) (include "avion-timeline.postService" .root) -}}true{{- end -}}
{{- end -}}

{{/* The gateway asks the users service whom viewers of local and global hide. */}}
{{- define "avion-timeline.callsUsers" -}}
{{- if and (include "avion-timeline.callsTimelines" .) (include "avion-timeline.userService" .root) -}}true{{- end -}}
{{- end -}}

{{/* Whether a role calls the upstreams: the bridge does where there are both, to look up what Redis Pub/Sub has lost, and posts and notifications to find out who follows and who is hidden. */}}
{{- define "avion-timeline.callsUpstreams" -}}
{{- if has .role (list "api" "fanout" "analysis" "ops") -}}
true
{{- else if and (has .role (list "bridge" "posts" "notifications")) (include "avion-timeline.userService" .root) (include "avion-timeline.postService" .root) -}}
true
{{- end -}}
{{- end -}}
