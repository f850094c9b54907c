{{/* Fields of a Service as Kubernetes names them, where they are given. */}}
{{- define "avion-timeline.serviceFields" -}}
{{- $fields := pick . "clusterIP" "externalIPs" "externalTrafficPolicy" "internalTrafficPolicy" "ipFamilies" "ipFamilyPolicy" "loadBalancerClass" "loadBalancerIP" "loadBalancerSourceRanges" "sessionAffinity" "sessionAffinityConfig" "trafficDistribution" -}}
{{- with $fields -}}{{ toYaml . }}{{- end -}}
{{- end -}}

{{/* Where the pods of a role connect to, if networkPolicy.egress says so. */}}
{{- define "avion-timeline.egress" -}}
{{- $root := .root -}}
{{- if $root.Values.networkPolicy.egress -}}
egress:
  - ports:
      - { port: 53, protocol: UDP }
      - { port: 53, protocol: TCP }
  {{- $callsOwnApi := and (include "avion-timeline.callsTimelines" .) $root.Values.roles.api.enabled (not $root.Values.upstreams.timelineService) }}
  {{- $callsOwnPosts := and (include "avion-timeline.callsPosts" .) $root.Values.roles.posts.enabled }}
  {{- $callsOwnNotifications := and (include "avion-timeline.callsNotifications" .) $root.Values.roles.notifications.enabled (not $root.Values.upstreams.notificationService) }}
  {{- $callsOwnUsers := and (include "avion-timeline.callsUsers" .) $root.Values.roles.users.enabled }}
  {{- if or $callsOwnNotifications (and (include "avion-timeline.callsUpstreams" .) (or $root.Values.roles.users.enabled $root.Values.roles.posts.enabled)) $callsOwnApi $callsOwnUsers $callsOwnPosts }}
  - ports:
      - { port: 50051, protocol: TCP }
    to:
      - podSelector:
          matchLabels:
            {{- include "avion-timeline.selector" $root | nindent 12 }}
  {{- end }}
  {{- if include "avion-timeline.fetches" . }}
  # GetRemoteObject fetches from public addresses.
  - ports:
      - { port: 443, protocol: TCP }
    to:
      - ipBlock:
          cidr: 0.0.0.0/0
          except: [0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 168.63.129.16/32, 169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/3]
      - ipBlock: { cidr: "2000::/3" }
  {{- end }}
  {{- toYaml $root.Values.networkPolicy.egress | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Renders true if a role fetches remote objects. The role's own config takes precedence over the common one. */}}
{{- define "avion-timeline.fetches" -}}
{{- $own := (index .root.Values.roles .role).config | default dict -}}
{{- if and (eq .role "posts") (eq "on" ($own.TIMELINE_FETCH | default .root.Values.config.TIMELINE_FETCH | toString)) -}}true{{- end -}}
{{- end -}}

{{/* Labels and annotations of a route or an Ingress. */}}
{{- define "avion-timeline.routeMeta" -}}
labels:
  {{- include "avion-timeline.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with .route.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .route.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "avion-timeline.routeParents" -}}
{{- if not .route.parentRefs -}}
{{- fail (printf "%s.parentRefs is needed where %s.enabled is true: the Gateway" .value .value) -}}
{{- end -}}
parentRefs:
  {{- toYaml .route.parentRefs | nindent 2 }}
{{- with .route.hostnames }}
hostnames:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A route to gRPC leads to the role api, past its network policy. */}}
{{- define "avion-timeline.checkGrpcRoute" -}}
{{- if not .root.Values.roles.api.enabled -}}
{{- fail (printf "%s.enabled needs the role api" .value) -}}
{{- end -}}
{{- if and .root.Values.networkPolicy.enabled (not .root.Values.networkPolicy.apiFrom) -}}
{{- fail (printf "%s.enabled needs networkPolicy.apiFrom, the pods of the ingress (its namespace, say): the policy closes the role api to all others" .value) -}}
{{- end -}}
{{- end -}}

{{/* What ingress-nginx needs to know of gRPC behind it, as YAML: with mutual TLS it shows the certificate of the roles. */}}
{{- define "avion-timeline.nginxGrpc" -}}
{{- $tls := include "avion-timeline.tlsOf" (dict "root" . "channel" "grpc") | fromYaml -}}
nginx.ingress.kubernetes.io/backend-protocol: {{ empty $tls.existingSecret | ternary "GRPC" "GRPCS" | quote }}
{{- if and $tls.existingSecret $tls.ca }}
nginx.ingress.kubernetes.io/proxy-ssl-secret: {{ printf "%s/%s" .Release.Namespace $tls.existingSecret | quote }}
nginx.ingress.kubernetes.io/proxy-ssl-verify: "on"
nginx.ingress.kubernetes.io/proxy-ssl-name: {{ printf "%s-api" (include "avion-timeline.fullname" .) | quote }}
nginx.ingress.kubernetes.io/proxy-ssl-server-name: "on"
{{- end }}
{{- end -}}
