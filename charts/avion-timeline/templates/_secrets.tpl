{{/* Keys of the chart's own Secret, and the Secret each value comes from. */}}
{{- define "avion-timeline.ownSecret" -}}
{{- printf "%s" (include "avion-timeline.fullname" .) -}}
{{- end -}}

{{- define "avion-timeline.secretRef" -}}
secretKeyRef:
  name: {{ .existing.name | default (include "avion-timeline.ownSecret" .root) }}
  key: {{ ternary .existing.key .key (ne .existing.name "") }}
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

{{/* TLS channels a role opens or serves: a comma list. */}}
{{- define "avion-timeline.tlsChannels" -}}
{{- $channels := list "nats" "redis" -}}
{{- if include "avion-timeline.usesDatabase" . }}{{ $channels = append $channels "database" }}{{ end -}}
{{- if include "avion-timeline.checksTokens" . }}{{ $channels = append $channels "jwks" }}{{ end -}}
{{- if include "avion-timeline.servesGrpc" . }}{{ $channels = append $channels "grpc" }}{{ end -}}
{{- if or (include "avion-timeline.callsUpstreams" .) (include "avion-timeline.callsTimelines" .) }}{{ $channels = append $channels "upstream" }}{{ end -}}
{{- $used := list -}}
{{- range $channels }}{{ if (include "avion-timeline.tlsOf" (dict "root" $.root "channel" .) | fromYaml).existingSecret }}{{ $used = append $used . }}{{ end }}{{ end -}}
{{- join "," $used -}}
{{- end -}}

{{- define "avion-timeline.hasCreds" -}}
{{- if or .Values.nats.creds.content .Values.nats.creds.existingSecret.name -}}true{{- end -}}
{{- end -}}

{{/*
What a role reads of Secrets that are not the chart's own, as in the cluster now, for a checksum. Certificates and
credentials of NATS are not among it: a process reads changed files again, but for the CA of the key set. Helm finds
nothing where it has no cluster (helm template, GitOps).
*/}}
{{- define "avion-timeline.existingSecrets" -}}
{{- $root := .root -}}
{{- $found := dict -}}
{{- range include "avion-timeline.env" . | fromYamlArray -}}
{{- with (.valueFrom | default dict).secretKeyRef -}}
{{- if ne .name (include "avion-timeline.ownSecret" $root) -}}
{{- $secret := lookup "v1" "Secret" $root.Release.Namespace .name | default dict -}}
{{- $_ := set $found (printf "%s/%s" .name .key) (get ($secret.data | default dict) .key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $whole := list -}}
{{- range concat $root.Values.extraEnvFrom (.settings.extraEnvFrom | default list) -}}
{{- with .secretRef }}{{ $whole = append $whole .name }}{{ end -}}
{{- end -}}
{{- if include "avion-timeline.checksTokens" . }}{{ $whole = append $whole $root.Values.tls.jwks.existingSecret }}{{ end -}}
{{- range compact $whole -}}
{{- $_ := set $found . ((lookup "v1" "Secret" $root.Release.Namespace .) | default dict).data -}}
{{- end -}}
{{- with $found }}{{ toJson . }}{{ end -}}
{{- end -}}
