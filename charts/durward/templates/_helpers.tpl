{{/* Names and small values. All names are fixed: the webhook configurations exist once in a cluster. */}}

{{- define "durward.labels" -}}
app.kubernetes.io/name: durward
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The pods of the server. The pods of the agents have another component. */}}
{{- define "durward.selector" -}}
app.kubernetes.io/name: durward
app.kubernetes.io/component: server
{{- end -}}

{{/* The namespace of LXCFS and its agents, or nothing without them. `helm upgrade --reuse-values` from an older chart has no value. */}}
{{- define "durward.lxcfsNamespace" -}}
{{- if or .Values.lxcfs.enabled .Values.node.label.enabled .Values.node.devicePlugin.enabled }}{{ .Values.lxcfs.namespace | default "durward-lxcfs" }}{{ end -}}
{{- end -}}

{{/* An image. Argument: list of the root, the image's values, and the path of these values. */}}
{{- define "durward.image" -}}
{{- $image := index . 1 -}}
{{- $tag := $image.tag | default (index . 0).Chart.AppVersion -}}
{{- if not $image.repository }}{{ fail (printf "%s.repository is not set: build the image (docs/src/operate/install.md), push it, and set its name" (index . 2)) }}{{ end -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}{{ else }}{{ $image.repository }}:{{ $tag }}{{ end -}}
{{- end -}}

{{/* durward.yaml as a JSON object: the block of the values with the keys that depend on the release. */}}
{{- define "durward.config" -}}
{{- $config := merge (dict "apiVersion" "durward.dev/v1alpha1" "kind" "Configuration" "namespace" .Release.Namespace) (deepCopy .Values.config) -}}
{{- if .Values.config.namespace }}{{ $_ := set $config "namespace" .Values.config.namespace }}{{ end -}}
{{- if .Values.certManager.enabled -}}
{{- $server := $config.server | default dict -}}
{{- $tls := omit ($server.tls | default dict) "selfManaged" -}}
{{- if not $tls.files }}{{ $_ := set $tls "files" (dict "cert" "tls/tls.crt" "key" "tls/tls.key") }}{{ end -}}
{{- $_ := set $server "tls" $tls -}}
{{- $_ := set $config "server" $server -}}
{{- end -}}
{{- $guards := $config.guards | default dict -}}
{{- if and (hasKey $guards "resources") (include "durward.policies" .) -}}
{{- $resources := $guards.resources | default dict -}}
{{- if not $resources.policies }}{{ $_ := set $guards "resources" (set $resources "policies" (list "/etc/durward-policies")) }}{{ end -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* The ConfigMap with the policies of the guard resources, or nothing. `helm upgrade --reuse-values` from an older chart has no policies. */}}
{{- define "durward.policies" -}}
{{- $policies := .Values.policies | default dict -}}
{{- if $policies.files }}durward-policies{{ else }}{{ $policies.configMap }}{{ end -}}
{{- end -}}

{{/* A nested value, or the default. Argument: list of the object, the path with dots, and the default. */}}
{{- define "durward.at" -}}
{{- $value := index . 0 -}}
{{- range splitList "." (index . 1) -}}
{{- if kindIs "map" $value }}{{ $value = get $value . }}{{ else }}{{ $value = "" }}{{ end -}}
{{- end -}}
{{- if or (kindIs "invalid" $value) (eq (toString $value) "") }}{{ index . 2 }}{{ else if kindIs "float64" $value }}{{ int64 $value }}{{ else }}{{ $value }}{{ end -}}
{{- end -}}

{{/* The port of an address like 0.0.0.0:8443. */}}
{{- define "durward.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{/* Milliseconds of a duration like 1500ms, 10s, 2m or 1h. */}}
{{- define "durward.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- if not (regexMatch "^[0-9]+(ms|s|m|h)$" .) }}{{ fail (printf "config.server.shutdown: %q is not a duration: write it like 10s" .) }}{{ end -}}
{{- mul (regexFind "^[0-9]+" . | int64) (get $units (regexFind "[a-z]+$" .)) -}}
{{- end -}}

{{/* Bytes of a size like 512Ki, 8Mi, 1Gi or 1048576. */}}
{{- define "durward.bytes" -}}
{{- $units := dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- if not (regexMatch "^[0-9]+(Ki|Mi|Gi)?$" .) }}{{ fail (printf "config.server.limits.maxTotalBytes: %q is not a size: write it like 64Mi" .) }}{{ end -}}
{{- mul (regexFind "^[0-9]+" . | int64) (get $units (regexFind "[A-Za-z]*$" .)) -}}
{{- end -}}

{{/* The host by which the API server calls Durward. Argument: list of the configuration and the namespace. */}}
{{- define "durward.host" -}}
{{- $config := index . 0 -}}
{{- $url := include "durward.at" (list $config "server.webhookConfiguration.url" "") -}}
{{- if $url -}}
{{- regexReplaceAll ":[0-9]+$" (index (splitList "/" (trimPrefix "https://" $url)) 0) "" -}}
{{- else -}}
{{- include "durward.at" (list $config "server.webhookConfiguration.service.name" "durward") }}.{{ index . 1 }}.svc
{{- end -}}
{{- end -}}

{{/* The name and port of the Service, as JSON. A URL can name the Service too, for a Karmada control plane. */}}
{{- define "durward.service" -}}
{{- $config := index . 0 -}}
{{- $url := include "durward.at" (list $config "server.webhookConfiguration.url" "") -}}
{{- if $url -}}
{{- $authority := index (splitList "/" (trimPrefix "https://" $url)) 0 -}}
{{- $host := regexReplaceAll ":[0-9]+$" $authority "" -}}
{{- $parts := splitList "." $host -}}
{{- $isService := and (ge (len $parts) 3) (eq (index (append (append (append $parts "") "") "") 2) "svc") -}}
{{- $port := regexFind ":[0-9]+$" $authority | trimPrefix ":" | default "443" -}}
{{- dict "name" (ternary (index $parts 0) "durward" $isService) "namespace" (ternary (index (append $parts "") 1) "" $isService) "port" (int64 $port) | toJson -}}
{{- else -}}
{{- $port := include "durward.at" (list $config "server.webhookConfiguration.service.port" 443) -}}
{{- dict "name" (include "durward.at" (list $config "server.webhookConfiguration.service.name" "durward")) "namespace" "" "port" (int64 $port) | toJson -}}
{{- end -}}
{{- end -}}

{{/* Whether the deletion guard reads a Karmada fleet, so that the Karmada API server calls it: "true" or nothing. */}}
{{- define "durward.isKarmada" -}}
{{- $fleet := .fleet | default "none" -}}
{{- if or (eq (toString $fleet) "karmada") (and (kindIs "map" $fleet) (hasKey $fleet "karmada")) }}true{{ end -}}
{{- end -}}

{{/* The mode of server.webhookConfiguration.manage. */}}
{{- define "durward.manage" -}}
{{- include "durward.at" (list . "server.webhookConfiguration.manage" "none") -}}
{{- end -}}

{{/* The name of the CA Secret in this cluster, or nothing. Argument: the configuration. */}}
{{- define "durward.caSecret" -}}
{{- $tls := (.server | default dict).tls | default dict -}}
{{- if kindIs "map" $tls.selfManaged -}}
{{- if not $tls.selfManaged.kubeconfig }}durward-ca{{ end -}}
{{- end -}}
{{- end -}}

{{/* The pod's settings that the server and the Job before the removal share. */}}
{{- define "durward.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
# This group can read keys in Secrets.
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "durward.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* One directory contains the ConfigMap and the certificate, and the kubelet updates it atomically. */}}
{{- define "durward.volumes" -}}
- name: configuration
  projected:
    defaultMode: 0440
    sources:
    - configMap:
        name: durward
        items:
        - key: durward.yaml
          path: durward.yaml
    {{- if .Values.certManager.enabled }}
    - secret:
        name: durward-tls
        items:
        - key: tls.crt
          path: tls/tls.crt
        - key: tls.key
          path: tls/tls.key
    {{- end }}
{{- with include "durward.policies" . }}
- name: policies
  configMap:
    name: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "durward.volumeMounts" -}}
- name: configuration
  mountPath: /etc/durward
  readOnly: true
{{- if include "durward.policies" . }}
- name: policies
  mountPath: /etc/durward-policies
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The pod of a command with the account, files and API servers of the server, without its restart policy. Argument: list of the root,
the name of the container, and the arguments. */}}
{{- define "durward.commandPod" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $args := index . 2 -}}
serviceAccountName: durward
automountServiceAccountToken: true
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if $root.Values.hostNetwork }}
# The command needs the same API servers as the server.
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
securityContext:
  {{- include "durward.podSecurityContext" $root | nindent 2 }}
{{- with $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
- name: {{ $name }}
  image: {{ include "durward.image" (list $root $root.Values.image "image") }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  args:
    {{- toYaml $args | nindent 4 }}
  resources:
    requests:
      cpu: 10m
      memory: 16Mi
    limits:
      memory: 64Mi
  securityContext:
    {{- include "durward.securityContext" $root | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    {{- include "durward.volumeMounts" $root | nindent 4 }}
volumes:
  {{- include "durward.volumes" $root | nindent 2 }}
{{- end -}}
