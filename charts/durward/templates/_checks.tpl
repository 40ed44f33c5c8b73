{{/* Refuses settings that don't work, with a sentence that names the fix. Argument: the root. */}}
{{- define "durward.checks" -}}
{{- $config := include "durward.config" . | fromJson -}}
{{- $guards := $config.guards | default dict -}}
{{- if not $guards -}}
{{- fail "config.guards is empty: turn a guard on, for example --set-json 'config.guards={\"lxcfs\":{}}'" -}}
{{- end -}}
{{- if ne $config.namespace .Release.Namespace -}}
{{- fail (printf "config.namespace is %s, but the release is installed in %s: remove config.namespace" $config.namespace .Release.Namespace) -}}
{{- end -}}
{{- $tls := (($config.server | default dict).tls) | default dict -}}
{{- $isSelfManaged := kindIs "map" $tls.selfManaged -}}
{{- if and $isSelfManaged $tls.files -}}
{{- fail "config.server.tls has selfManaged and files: set config.server.tls.selfManaged to null" -}}
{{- end -}}
{{- $own := (((.Values.config.server | default dict).tls) | default dict).files -}}
{{- if and .Values.certManager.enabled $own -}}
{{- fail "config.server.tls.files and certManager.enabled name two certificates: set one of them" -}}
{{- end -}}
{{- if not (or $isSelfManaged $tls.files) -}}
{{- fail "config.server.tls names no certificate: set selfManaged: {}, or files: {cert: …, key: …}, or certManager.enabled" -}}
{{- end -}}
{{- range $key, $default := dict "bindAddress" "0.0.0.0:8443" "metricsBindAddress" "0.0.0.0:8080" -}}
{{- $address := include "durward.at" (list $config (printf "server.%s" $key) $default) -}}
{{- $port := include "durward.port" $address | int64 -}}
{{- if not (regexMatch "^(0\\.0\\.0\\.0|\\[::\\]):[0-9]+$" $address) -}}
{{- fail (printf "config.server.%s: %s does not work in a pod, because the API server and the kubelet can't reach it: use %s" $key $address $default) -}}
{{- end -}}
{{- if eq $port 0 -}}
{{- fail (printf "config.server.%s: %s does not work in a pod, because a Service needs a fixed port: use %s" $key $address $default) -}}
{{- end -}}
{{- if lt $port 1024 -}}
{{- fail (printf "config.server.%s: %s does not work in a pod, because only root can bind ports below 1024: use %s; the port of the Service is config.server.webhookConfiguration.service.port" $key $address $default) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.lxcfs.enabled (hasKey .Values.lxcfs "library") -}}
{{- fail "lxcfs.library was removed: to upgrade LXCFS, drain the node, then delete its pod of LXCFS" -}}
{{- end -}}
{{- $lxcfsNamespace := include "durward.lxcfsNamespace" . -}}
{{- if and $lxcfsNamespace (ne $lxcfsNamespace .Release.Namespace) (lookup "apps/v1" "DaemonSet" .Release.Namespace "durward-lxcfs") -}}
{{- fail (printf "LXCFS runs in the namespace %s, and lxcfs.namespace is %s: the move would end LXCFS, and with it the files in all running containers. To stay: --set lxcfs.namespace=%s. To move, drain the nodes and delete the DaemonSet durward-lxcfs first" .Release.Namespace $lxcfsNamespace .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.egress.enabled (not .Values.networkPolicy.apiServers) -}}
{{- fail "networkPolicy.egress.enabled needs networkPolicy.apiServers: without the addresses of the API servers, Durward can't reach them" -}}
{{- end -}}
{{- $service := include "durward.service" (list $config) | fromJson -}}
{{- if and $service.namespace (ne $service.namespace .Release.Namespace) -}}
{{- fail (printf "config.server.webhookConfiguration.url is a Service in the namespace %s, but the release is installed in %s: install the release there" $service.namespace .Release.Namespace) -}}
{{- end -}}
{{- $policies := include "durward.policies" . -}}
{{- if and (.Values.policies | default dict).files (.Values.policies | default dict).configMap -}}
{{- fail "policies has files and configMap: set one of them" -}}
{{- end -}}
{{- if and $policies (not (hasKey $guards "resources")) -}}
{{- fail "policies are set, but the guard resources is off: add config.guards.resources: {}" -}}
{{- end -}}
{{- if and (hasKey $guards "resources") (not ($guards.resources | default dict).policies) -}}
{{- fail "config.guards.resources has no policies: set policies.files or policies.configMap" -}}
{{- end -}}
{{- $deletion := $guards.deletion | default dict -}}
{{- range ($deletion.inUse | default dict).rules -}}
{{- if not (kindIs "map" .) -}}
{{- fail (printf "config.guards.deletion.inUse.rules: %s is a path, and the chart can't read the file: write the rule itself" .) -}}
{{- end -}}
{{- end -}}
{{- if include "durward.isKarmada" $deletion -}}
{{- $karmada := dict -}}
{{- if kindIs "map" $deletion.fleet }}{{ $karmada = $deletion.fleet.karmada | default dict }}{{ end -}}
{{- if not (or $karmada.kubeconfig $config.kubeconfig) -}}
{{- fail "config.guards.deletion.fleet is karmada, but the pods have no kubeconfig for the Karmada API server: set fleet: {karmada: {kubeconfig: PATH}} and mount the file with extraVolumes" -}}
{{- end -}}
{{- end -}}
{{- include "durward.isOnlyRelease" . -}}
{{- end -}}

{{/* Refuses a second release in the cluster. Helm itself refuses objects that no release owns, and takes over those of its own release.
`helm template` sees no cluster, so it refuses nothing. */}}
{{- define "durward.isOnlyRelease" -}}
{{- $found := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "durward" | default dict -}}
{{- $annotations := ($found.metadata | default dict).annotations | default dict -}}
{{- $name := get $annotations "meta.helm.sh/release-name" -}}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" -}}
{{- if and $name (or (ne $name .Release.Name) (ne $namespace .Release.Namespace)) -}}
{{- fail (printf "Durward is installed in this cluster as release %s in namespace %s: a cluster can have one Durward. Upgrade that release: helm -n %s upgrade %s" $name $namespace $namespace $name) -}}
{{- end -}}
{{- end -}}
