{{/*
Permissions as JSON, in the cluster in which the pods run. `durward manifests --only rbac` prints the same. An end-to-end case
compares both for the configurations in ci/.
*/}}

{{/* A rule. Arguments: group, resource, verbs, and names of objects (an empty list is all). */}}
{{- define "durward.rule" -}}
{{- $rule := dict "apiGroups" (list (index . 0)) "resources" (list (index . 1)) "verbs" (index . 2) -}}
{{- if gt (len .) 3 }}{{ $_ := set $rule "resourceNames" (index . 3) }}{{ end -}}
{{- toJson $rule -}}
{{- end -}}

{{/* Rules of the deletion guard: what it lists in each cluster. */}}
{{- define "durward.rules.deletion" -}}
{{- $namespaces := .namespaces | default dict -}}
{{- $blocking := $namespaces.blockingResources -}}
{{- if kindIs "invalid" $blocking }}{{ $blocking = list "pods" "persistentvolumeclaims" "workloads" "services.loadbalancer" }}{{ end -}}
{{- $listed := list -}}
{{- if has "pods" $blocking }}{{ $listed = append $listed (list "" "pods") }}{{ end -}}
{{- if has "persistentvolumeclaims" $blocking }}{{ $listed = append $listed (list "" "persistentvolumeclaims") }}{{ end -}}
{{- if has "workloads" $blocking -}}
{{- range list "deployments" "statefulsets" "daemonsets" }}{{ $listed = append $listed (list "apps" .) }}{{ end -}}
{{- range list "jobs" "cronjobs" }}{{ $listed = append $listed (list "batch" .) }}{{ end -}}
{{- $listed = append $listed (list "apps" "replicasets") }}{{ $listed = append $listed (list "" "replicationcontrollers") -}}
{{- end -}}
{{- if has "services.loadbalancer" $blocking }}{{ $listed = append $listed (list "" "services") }}{{ end -}}
{{- range $namespaces.extraResources }}{{ $listed = append $listed (list (.group | default "") .resource) }}{{ end -}}
{{- $groups := (.crds | default dict).apiGroups | default list -}}
{{- if has "*" $groups }}{{ $groups = list "*" }}{{ end -}}
{{- range $groups }}{{ $listed = append $listed (list . "*") }}{{ end -}}
{{- $rules := list
  (include "durward.rule" (list "" "namespaces" (list "get" "list")) | fromJson)
  (include "durward.rule" (list "apiextensions.k8s.io" "customresourcedefinitions" (list "get" "list")) | fromJson) -}}
{{- range $listed }}{{ $rules = append $rules (include "durward.rule" (list (index . 0) (index . 1) (list "list")) | fromJson) }}{{ end -}}
{{- $inUse := .inUse | default dict -}}
{{- $library := include "durward.library" . | fromJson -}}
{{- range $inUse.library }}{{ $rules = concat $rules (get $library .) }}{{ end -}}
{{- range $inUse.rules -}}
{{- if kindIs "map" . -}}
{{- range .usedBy }}{{ $rules = append $rules (include "durward.rule" (list (.group | default "") .resource (list "list")) | fromJson) }}{{ end -}}
{{- $group := .protects.group | default "" -}}
{{- /* Durward reads no Secret. */ -}}
{{- if or $group (ne .protects.resource "secrets") -}}
{{- $rules = append $rules (include "durward.rule" (list $group .protects.resource (list "get" "list")) | fromJson) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $rules -}}
{{- end -}}

{{/* Rules for an entry of guards.etcd.clusters, in the namespace of its pods. Argument: list of the entry, and protectStatefulSets. */}}
{{- define "durward.rules.etcdCluster" -}}
{{- $entry := index . 0 -}}
{{- $hasSets := index . 1 -}}
{{- $rules := list
  (include "durward.rule" (list "" "pods" (list "get" "list")) | fromJson)
  (include "durward.rule" (list "apps" "statefulsets" (ternary (list "get" "list") (list "get") $hasSets)) | fromJson) -}}
{{- if $hasSets }}{{ $rules = append $rules (include "durward.rule" (list "" "persistentvolumeclaims" (list "list")) | fromJson) }}{{ end -}}
{{- with $entry.owner -}}
{{- $group := index (splitList "/" .apiVersion) 0 -}}
{{- $plural := .resource | default (printf "%ss" (lower .kind)) -}}
{{- $rules = append $rules (include "durward.rule" (list $group $plural (list "get")) | fromJson) -}}
{{- end -}}
{{- $client := $entry.client | default dict -}}
{{- $names := compact (list (($client.tls | default dict).secretName | default "") (($client.auth | default dict).secretName | default "")) -}}
{{- if $names }}{{ $rules = append $rules (include "durward.rule" (list "" "secrets" (list "get") $names) | fromJson) }}{{ end -}}
{{- toJson $rules -}}
{{- end -}}

{{/* The guards that the API server of this cluster calls, as JSON. With a kubeconfig of its own, a guard is called by another API server.
`durward manifests` prints its permissions there. Argument: the configuration. */}}
{{- define "durward.calledGuards" -}}
{{- $called := dict -}}
{{- if not .kubeconfig -}}
{{- range $name, $guard := .guards -}}
{{- if not (and (eq $name "deletion") (include "durward.isKarmada" ($guard | default dict))) }}{{ $_ := set $called $name ($guard | default dict) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson $called -}}
{{- end -}}

{{/* The kinds of webhook configurations that these guards need, as JSON. Argument: the configuration. */}}
{{- define "durward.webhookKinds" -}}
{{- $guards := include "durward.calledGuards" . | fromJson -}}
{{- $kinds := list -}}
{{- if hasKey $guards "lxcfs" }}{{ $kinds = append $kinds "MutatingWebhookConfiguration" }}{{ end -}}
{{- if or (hasKey $guards "deletion") (hasKey $guards "resources") (get $guards "etcd" | default dict).clusters }}{{ $kinds = append $kinds "ValidatingWebhookConfiguration" }}{{ end -}}
{{- toJson $kinds -}}
{{- end -}}

{{/* The native policies and bindings that these guards can have, as JSON. Argument: the configuration. */}}
{{- define "durward.nativePolicies" -}}
{{- $guards := include "durward.calledGuards" . | fromJson -}}
{{- $names := list -}}
{{- if (get $guards "etcd" | default dict).clusters }}{{ $names = concat $names (list "durward-etcd-pods" "durward-etcd-namespaces" "durward-etcd-sets") }}{{ end -}}
{{- if hasKey $guards "deletion" }}{{ $names = append $names "durward-deletion-labels" }}{{ end -}}
{{- if $names }}{{ $names = append $names "durward-install-namespace" }}{{ end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The bindings of native policies, as JSON: {name: true if the policy denies, false if it warns}. Argument: the configuration. */}}
{{- define "durward.bindings" -}}
{{- $guards := include "durward.calledGuards" . | fromJson -}}
{{- $bindings := dict -}}
{{- $install := dict -}}
{{- with get $guards "etcd" -}}
{{- if .clusters -}}
{{- $denies := ne (.mode | default "enforce") "audit" -}}
{{- $isLabeled := (.webhook | default dict).namespaceSelector -}}
{{- range .clusters }}{{ if .namespaceSelector }}{{ $isLabeled = true }}{{ end }}{{ end -}}
{{- $_ := set $bindings "durward-etcd-pods" $denies -}}
{{- if $isLabeled }}{{ $_ := set $bindings "durward-etcd-namespaces" $denies }}{{ end -}}
{{- if .protectStatefulSets }}{{ $_ := set $bindings "durward-etcd-sets" $denies }}{{ end -}}
{{- $_ := set $install "denies" (or $install.denies $denies) -}}
{{- end -}}
{{- end -}}
{{- if hasKey $guards "deletion" -}}
{{- $deletion := $guards.deletion -}}
{{- $denies := ne ($deletion.mode | default "enforce") "audit" -}}
{{- if or (eq ($deletion.scope | default "all") "labeled") ($deletion.webhook | default dict).namespaceSelector -}}
{{- $_ := set $bindings "durward-deletion-labels" $denies -}}
{{- end -}}
{{- $_ := set $install "denies" (or $install.denies $denies) -}}
{{- end -}}
{{- if hasKey $install "denies" }}{{ $_ := set $bindings "durward-install-namespace" $install.denies }}{{ end -}}
{{- toJson $bindings -}}
{{- end -}}

{{/* All permissions: {cluster: [rules], namespaces: {name: [rules]}}. Argument: the configuration. */}}
{{- define "durward.permissions" -}}
{{- $config := . -}}
{{- $home := .namespace -}}
{{- $cluster := list -}}
{{- $within := dict $home list -}}
{{- $guards := include "durward.calledGuards" . | fromJson -}}
{{- /* Events about cluster-wide objects are in the namespace default. */ -}}
{{- $events := list -}}
{{- if ne (toString .events) "false" }}{{ $events = list (include "durward.rule" (list "events.k8s.io" "events" (list "create")) | fromJson) }}{{ end -}}

{{- if hasKey $guards "deletion" -}}
{{- $deletion := $guards.deletion -}}
{{- $_ := set $within "default" (concat (get $within "default" | default list) $events) -}}
{{- $fleet := $deletion.fleet | default "none" -}}
{{- $cluster = concat $cluster (include "durward.rules.deletion" $deletion | fromJsonArray) -}}
{{- $inUse := $deletion.inUse | default dict -}}
{{- /* Durward reads no Secret, so a denial about one has no Event. */ -}}
{{- if or $inUse.rules (without ($inUse.library | default list) "secrets") }}{{ $cluster = concat $cluster $events }}{{ end -}}
{{- if and (kindIs "map" $fleet) (hasKey $fleet "secrets") -}}
{{- $_ := set $within $home (append (get $within $home) (include "durward.rule" (list "" "secrets" (list "get" "list" "watch")) | fromJson)) -}}
{{- end -}}
{{- end -}}

{{- if hasKey $guards "etcd" -}}
{{- $etcd := $guards.etcd | default dict -}}
{{- with $etcd.clusters -}}
{{- $isSelected := false -}}
{{- range . -}}
{{- if .namespaceSelector }}{{ $isSelected = true }}{{ end -}}
{{- end -}}
{{- $cluster = append $cluster (include "durward.rule" (list "" "namespaces" (ternary (list "get" "list") (list "get") $isSelected)) | fromJson) -}}
{{- $cluster = append $cluster (include "durward.rule" (list "" "nodes" (list "get")) | fromJson) -}}
{{- range . -}}
{{- $rules := concat (include "durward.rules.etcdCluster" (list . ($etcd.protectStatefulSets | default false)) | fromJsonArray) $events -}}
{{- if .namespaceSelector -}}
{{- $cluster = concat $cluster $rules -}}
{{- else -}}
{{- $_ := set $within .namespace (concat (get $within .namespace | default list) $rules) -}}
{{- end -}}
{{- end -}}
{{- $leases := include "durward.rule" (list "coordination.k8s.io" "leases" (list "get" "create" "update" "delete")) | fromJson -}}
{{- $_ := set $within $home (append (get $within $home) $leases) -}}
{{- end -}}
{{- end -}}

{{- if hasKey $guards "lxcfs" -}}
{{- $cluster = append $cluster (include "durward.rule" (list "" "namespaces" (list "get" "list" "watch")) | fromJson) -}}
{{- end -}}

{{- if hasKey $guards "resources" -}}
{{- $cluster = append $cluster (include "durward.rule" (list "" "namespaces" (list "get" "list" "watch")) | fromJson) -}}
{{- end -}}

{{/* Durward itself: its webhook configurations, native policies, Namespace and Secret. */}}
{{- $manage := include "durward.manage" . -}}
{{- $isSelfManaged := kindIs "map" (((.server | default dict).tls | default dict).selfManaged) -}}
{{- $reads := or $isSelfManaged (hasKey $guards "resources") -}}
{{- $verbs := ternary (list "get") list $reads -}}
{{- if eq $manage "caBundle" }}{{ $verbs = list "get" "patch" }}{{ else if eq $manage "all" }}{{ $verbs = list "get" "patch" "delete" }}{{ end -}}
{{- if $verbs -}}
{{- range include "durward.webhookKinds" . | fromJsonArray -}}
{{- $cluster = append $cluster (include "durward.rule" (list "admissionregistration.k8s.io" (printf "%ss" (lower .)) $verbs (list "durward")) | fromJson) -}}
{{- end -}}
{{- end -}}
{{- $rules := get $within $home -}}
{{- if eq $manage "all" -}}
{{- $rules = append $rules (include "durward.rule" (list "" "namespaces" (list "get") (list $home)) | fromJson) -}}
{{- with include "durward.nativePolicies" . | fromJsonArray -}}
{{- $group := "admissionregistration.k8s.io" -}}
{{- /* An API server accepts a policy only from an account that can read all objects of the kind of its params. */ -}}
{{- $cluster = append $cluster (include "durward.rule" (list $group "validatingwebhookconfigurations" (list "get")) | fromJson) -}}
{{- $cluster = append $cluster (include "durward.rule" (list $group "validatingadmissionpolicies" (list "get" "create" "patch" "delete") .) | fromJson) -}}
{{- $cluster = append $cluster (include "durward.rule" (list $group "validatingadmissionpolicybindings" (list "get" "delete") .) | fromJson) -}}
{{- end -}}
{{- end -}}
{{- with include "durward.caSecret" . -}}
{{- $rules = append $rules (include "durward.rule" (list "" "secrets" (list "get" "update") (list .)) | fromJson) -}}
{{- end -}}
{{- $_ := set $within $home (uniq $rules) -}}

{{- toJson (dict "cluster" (uniq $cluster) "namespaces" $within) -}}
{{- end -}}
