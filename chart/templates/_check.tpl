{{- /*
SPDX-License-Identifier: Apache-2.0
Copyright Authors of podweir

What values.schema.json cannot say: values that are wrong beside others, or wrong in a way
that a pattern would not explain.
*/ -}}

{{- /* Refuse values that cannot work, by name, with what is accepted. */}}
{{- define "podweir.check" -}}
{{- with (.Values.global).imageRegistry }}
{{- fail (printf "global.imageRegistry %q is not accepted: set image.registry, which AWS replaces by its name" .) }}
{{- end }}
{{- include "podweir.checkPresent" . }}
{{- include "podweir.checkRates" . }}
{{- include "podweir.checkShares" . }}
{{- include "podweir.checkBursts" . }}
{{- include "podweir.checkSubnets" . }}
{{- include "podweir.checkPlaces" . }}
{{- include "podweir.checkPorts" . }}
{{- include "podweir.checkMetrics" . }}
{{- include "podweir.checkNames" . }}
{{- include "podweir.checkDirectories" . }}
{{- include "podweir.checkMemory" . }}
{{- include "podweir.checkShapers" . }}
{{- include "podweir.checkPods" . }}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create false is not accepted without serviceAccount.name: name the account that the agents are to have" }}
{{- end }}
{{- if and .Values.cluster.enabled (eq (include "podweir.serviceAccount" .) (printf "%s-reader" (include "podweir.name" .))) }}
{{- fail (printf "serviceAccount.name %q is the account of the readers of the cluster, who would get tokens with the agents' rights: want another one" .Values.serviceAccount.name) }}
{{- end }}
{{- if and .Values.metrics.service.enabled (include "podweir.metricsReachable" .) (not (regexMatch (ternary "^[a-z][-a-z0-9]*$" "^[-a-z0-9]*$" (semverCompare "<1.36-0" .Capabilities.KubeVersion.Version)) (include "podweir.name" .))) }}
{{- fail (printf "the release's name %q cannot be that of a Service: set fullnameOverride to lower-case letters, digits and dashes, before Kubernetes 1.36 the first of them a letter" .Release.Name) }}
{{- end }}
{{- if not (or .Values.serviceAccount.create (empty .Values.serviceAccount.annotations)) }}
{{- fail "serviceAccount.annotations are not accepted with serviceAccount.create false: the chart does not make the account that would have them" }}
{{- end }}
{{- end }}

{{- /* "key:" with nothing behind it takes the chart's value away. So does --reuse-values,
of what the earlier chart did not have. An absent list, label or bound of Kubernetes' means
none; these mean nothing. */}}
{{- define "podweir.checkPresent" -}}
{{- range $path := regexFindAll "[.A-Za-z]+" `
image image.pullPolicy delivery defaults namespaces namespaces.interval admissionPolicy admissionPolicy.enabled admissionPolicy.actions liftCalicoLimits
liftCalicoLimits.enabled liftCalicoLimits.apiVersion logLevel logFormat doctorInterval health
health.port cluster cluster.enabled cluster.port metrics metrics.port metrics.profiles metrics.tls
metrics.tls.enabled metrics.service metrics.service.enabled metrics.podMonitor metrics.serviceMonitor
metrics.prometheusRule metrics.prometheusRule.docs metrics.dashboard node node.hostFiles uninstall
uninstall.clean tests tests.enabled cleanUp cleanUp.formerDelivery rbac rbac.create serviceAccount
serviceAccount.create updateStrategy probes probes.startup probes.liveness probes.readiness
securityContext securityContext.seccompProfile
` -1 }}
{{- $at := $.Values }}
{{- range splitList "." $path }}
{{- $at = index $at . }}
{{- end }}
{{- if kindIs "invalid" $at }}
{{- fail (printf "%s has no value: give it one, or leave it out for the chart's own (after --reuse-values: helm upgrade --reset-then-reuse-values)" $path) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The bits per second of a rate, which is a Kubernetes quantity; 0 for none. */}}
{{- define "podweir.bits" -}}
{{- $factors := dict "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $rate := . | default "0" }}
{{- $suffix := regexFind "[kMGT]i?$|Ki$" $rate }}
{{- printf "%f" (mulf (float64 (trimSuffix $suffix $rate)) (get $factors $suffix | default 1)) }}
{{- end }}

{{- /* Rates are in podweir's range, and no default is above the maximum of its direction. */}}
{{- define "podweir.checkRates" -}}
{{- $d := .Values.defaults }}
{{- range list "defaultRate" "ingressRate" "egressRate" "maxRate" "ingressMaxRate" "egressMaxRate" "namespaceRate" "namespaceMaxRate" }}
{{- $bits := include "podweir.bits" (get $d .) | float64 }}
{{- if and (gt $bits 0.0) (or (lt $bits 1e3) (gt $bits 4e11)) }}
{{- fail (printf "defaults.%s %q is not accepted, want a rate in bits per second from 1k to 400G, or \"0\" for none" . (get $d .)) }}
{{- end }}
{{- end }}
{{- range list "ingress" "egress" }}
{{- $rate := ternary (printf "%sRate" .) "defaultRate" (ne (get $d (printf "%sRate" .)) "") }}
{{- $max := ternary (printf "%sMaxRate" .) "maxRate" (ne (get $d (printf "%sMaxRate" .)) "") }}
{{- $most := include "podweir.bits" (get $d $max) | float64 }}
{{- if and (gt $most 0.0) (gt (include "podweir.bits" (get $d $rate) | float64) $most) }}
{{- fail (printf "defaults.%s %q is above defaults.%s %q, want at most the maximum for what is %s" $rate (get $d $rate) $max (get $d $max) .) }}
{{- end }}
{{- end }}
{{- $most := include "podweir.bits" $d.namespaceMaxRate | float64 }}
{{- if and (gt $most 0.0) (gt (include "podweir.bits" $d.namespaceRate | float64) $most) }}
{{- fail (printf "defaults.namespaceRate %q is above defaults.namespaceMaxRate %q, want at most the maximum" $d.namespaceRate $d.namespaceMaxRate) }}
{{- end }}
{{- end }}

{{- /* Shares and times are in podweir's range. */}}
{{- define "podweir.checkShares" -}}
{{- $d := .Values.defaults }}
{{- range $key, $least := dict "lightShare" 1.0 "heavyThreshold" 0.5 }}
{{- with index $d $key }}
{{- $share := trimSuffix "%" . | float64 | mulf (ternary 1.0 100.0 (hasSuffix "%" .)) }}
{{- $most := ternary 99.0 (ternary 50.0 100.0 (eq ($d.policy | default "") "elephants")) (eq $key "lightShare") }}
{{- if or (lt $share $least) (gt $share $most) }}
{{- fail (printf "defaults.%s %q is not accepted, want a share from %v%% to %v%%" $key . $least $most) }}
{{- end }}
{{- end }}
{{- end }}
{{- with $d.horizon }}
{{- $us := include "podweir.microseconds" . | float64 }}
{{- if or (lt $us 1e3) (gt $us 1e6) }}
{{- fail (printf "defaults.horizon %q is not accepted, want a time from 1ms to 1s" .) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The microseconds of a time. */}}
{{- define "podweir.microseconds" -}}
{{- printf "%f" (mulf (regexFind "^[0-9.]+" . | float64) (get (dict "us" 1.0 "ms" 1e3 "s" 1e6) (regexFind "[a-z]+$" .))) }}
{{- end }}

{{- /* Bursts are in podweir's range, as times or as bits. */}}
{{- define "podweir.checkBursts" -}}
{{- range $key := list "ingressBurst" "egressBurst" }}
{{- with index $.Values.defaults $key }}
{{- $size := 0.0 }}
{{- $most := 1e7 }}
{{- if hasSuffix "s" . }}
{{- $size = include "podweir.microseconds" . | float64 }}
{{- else }}
{{- $size = include "podweir.bits" . | float64 }}
{{- $most = 4e9 }}
{{- end }}
{{- if or (lt $size 1.0) (gt $size $most) }}
{{- fail (printf "defaults.%s %q is not accepted, want a time at the rate from 1us to 10s, or 1 to 4G bits" $key .) }}
{{- end }}
{{- end }}
{{- end }}
{{- range .Values.defaults.podAnnotations }}
{{- if regexMatch "burst=" . }}
{{- $us := include "podweir.microseconds" (splitList "=" . | last) | float64 }}
{{- if or (lt $us 1.0) (gt $us 1e7) }}
{{- fail (printf "defaults.podAnnotations: %q is not accepted, want a time from 1us to 10s" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* 4 or 6 for an address of that version of IP, else nothing. */}}
{{- define "podweir.addressVersion" -}}
{{- $four := "((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\\.|$)){4}$" }}
{{- /* The end of one of version 6 may be written as one of version 4: two groups. */}}
{{- $six := regexReplaceAll (printf ":%s" $four) . ":0:0" }}
{{- $groups := len (regexFindAll "[0-9a-fA-F]+" $six -1) }}
{{- $whole := ternary (lt $groups 8) (eq $groups 8) (contains "::" $six) }}
{{- if and (regexMatch (printf "^%s" $four) .) (not (hasSuffix "." .)) }}4
{{- else if and $whole (regexMatch "^[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,8}$" $six) (not (regexMatch ":::|::.*::|^:[^:]|[^:]:$" $six)) (not (hasSuffix "." .)) }}6
{{- end }}
{{- end }}

{{- /* Networks have an address and a length that goes with it. */}}
{{- define "podweir.checkSubnets" -}}
{{- $d := .Values.defaults }}
{{- range $key := list "unshapedSubnets" "shapedSubnets" }}
{{- range index $d $key }}
{{- $address := splitList "/" . | first }}
{{- $bits := splitList "/" . | last }}
{{- $length := ternary (int $bits) 129 (regexMatch "^(0|[1-9][0-9]*)$" $bits) }}
{{- $version := include "podweir.addressVersion" $address }}
{{- if not (or (and (eq $version "4") (le $length 32)) (and (eq $version "6") (le $length 128))) }}
{{- fail (printf "defaults.%s: %q is not accepted, want a network as 10.0.0.0/8, of length 0 to 32, or as fd00::/8, of length 0 to 128" $key .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Which queues a mode has in both directions: docs/reference/configuration.md, Attachment. */}}
{{- define "podweir.checkPlaces" -}}
{{- $mode := .Values.defaults.mode | default "auto" }}
{{- $queue := .Values.defaults.queue | default "auto" }}
{{- $place := .Values.defaults.ingressPlace | default "auto" }}
{{- $queues := list "auto" "tbf" "none" }}
{{- if eq $mode "qdisc" }}
{{- $queues = list "auto" "tbf" }}
{{- else if ne $mode "auto" }}
{{- /* One of the two directions is policed at the hook, and has no queue. */}}
{{- $queues = list "auto" "none" }}
{{- end }}
{{- if not (has $queue $queues) }}
{{- fail (printf "defaults.queue %q does not go with defaults.mode %q, want %s" $queue $mode (join ", " $queues)) }}
{{- end }}
{{- if and (ne $place "auto") (not (has $mode (list "auto" "qdisc"))) }}
{{- fail (printf "defaults.ingressPlace %q does not go with defaults.mode %q, want auto, or the mode auto or qdisc" $place $mode) }}
{{- end }}
{{- if and (eq $mode "clsact-hostside") (eq (.Values.defaults.hostHook | default "auto") "tcx") }}
{{- fail (printf "defaults.hostHook %q does not go with defaults.mode %q, want hostHook auto, or another mode" "tcx" $mode) }}
{{- end }}
{{- if eq (.Values.defaults.podHook | default "auto") "tcx" }}
{{- if eq $mode "clsact-podside" }}
{{- fail (printf "defaults.podHook %q does not go with defaults.mode %q, want podHook auto or clsact, or another mode" "tcx" $mode) }}
{{- end }}
{{- if eq $place "ifb" }}
{{- fail (printf "defaults.podHook %q does not go with defaults.ingressPlace %q, want auto, host or prefer-ifb" "tcx" $place) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The agent has the node's network: no two of its ports are one. */}}
{{- define "podweir.checkPorts" -}}
{{- $ports := list (list "health.port" .Values.health.port) (list "metrics.port" .Values.metrics.port) }}
{{- if .Values.cluster.enabled }}
{{- $ports = append $ports (list "cluster.port" .Values.cluster.port) }}
{{- end }}
{{- $taken := dict "10248" "the kubelet's healthz" "10249" "kube-proxy's metrics" "10250" "the kubelet" "10256" "kube-proxy's healthz" }}
{{- range $pair := $ports }}
{{- $port := last $pair | int | toString }}
{{- with get $taken $port }}
{{- fail (printf "%s and %s are both %s, want a port of its own for each" . (first $pair) $port) }}
{{- end }}
{{- $_ := set $taken $port (first $pair) }}
{{- end }}
{{- end }}

{{- /* A monitor finds what it is to read. */}}
{{- define "podweir.checkMetrics" -}}
{{- $m := .Values.metrics }}
{{- if and $m.address (not (include "podweir.addressVersion" $m.address)) }}
{{- fail (printf "metrics.address %q is not accepted, want an address of the node as 10.0.0.1 or fd00::1" $m.address) }}
{{- end }}
{{- range list "podMonitor" "serviceMonitor" }}
{{- if and (get $m .).enabled (not (include "podweir.metricsReachable" $)) }}
{{- fail (printf "metrics.%s.enabled needs metrics that Prometheus reaches, and they are on the loopback of each node: set metrics.tls.enabled=true and metrics.tls.endpoint, or metrics.address=0.0.0.0 to let everybody read them" .) }}
{{- end }}
{{- end }}
{{- if and $m.podMonitor.enabled $m.serviceMonitor.enabled }}
{{- fail "metrics.podMonitor.enabled and metrics.serviceMonitor.enabled are both set, want one of them: Prometheus would read each agent twice" }}
{{- end }}
{{- if and $m.serviceMonitor.enabled (not $m.service.enabled) }}
{{- fail "metrics.serviceMonitor.enabled needs metrics.service.enabled: there is no Service to monitor" }}
{{- end }}
{{- if and (or $m.tls.secretName $m.tls.endpoint) (not $m.tls.enabled) }}
{{- fail "metrics.tls.secretName and metrics.tls.endpoint are not accepted without metrics.tls.enabled: metrics would be in plain text" }}
{{- end }}
{{- end }}

{{- /* Names that the chart gives are not given again: the API server refuses some of them
with a message that names no value, and takes the last of others. */}}
{{- define "podweir.checkNames" -}}
{{- $writes := true }}
{{- $env := list "POD_NAME" "POD_UID" "RUN_PODWEIR_BY" }}
{{- $args := list }}
{{- /* Settings whose value is not set are refused, too: what belongs to them, such as a volume or
the scheme of a monitor, would be missing. */}}
{{- range $key := list "address" "cluster-address" "cluster-reader" "cni-bin-dir" "cni-conf-dir" "config" "cri-socket" "daemonset" "default" "delivery" "doctor-interval" "health-address" "log-format" "log-level" "namespace-interval" "node-name" "nri-socket" "pod" "pprof" "root" "tls" "tls-dir" }}
{{- $env = append $env (printf "PODWEIR_%s" (replace "-" "_" $key | upper)) }}
{{- $args = append $args (printf "--%s" $key) }}
{{- end }}
{{- range .Values.extraArgs }}
{{- if has (splitList "=" . | first) $args }}
{{- fail (printf "extraArgs: %q is a setting that the chart makes, want the chart's own value for it" .) }}
{{- end }}
{{- end }}
{{- range include "podweir.commandEnv" . | fromYamlArray }}
{{- $env = append $env .name }}
{{- end }}
{{- if .Values.goMemLimit }}
{{- $env = append $env "GOMEMLIMIT" }}
{{- end }}
{{- include "podweir.checkFree" (dict "value" "extraEnv" "kind" "variable" "key" "name" "taken" $env "given" .Values.extraEnv) }}
{{- $volumes := list "settings" "tls" }}
{{- range include "podweir.volumes" (dict "root" . "writes" $writes) | fromYamlArray }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- include "podweir.checkFree" (dict "value" "extraVolumes" "kind" "volume" "key" "name" "taken" $volumes "given" .Values.extraVolumes) }}
{{- range .Values.extraVolumes }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- range .Values.extraVolumeMounts }}
{{- if not (has .name $volumes) }}
{{- fail (printf "extraVolumeMounts: there is no volume %q, want one of extraVolumes" .name) }}
{{- end }}
{{- end }}
{{- $mounts := list "/etc/podweir" "/etc/podweir-tls" }}
{{- range include "podweir.mounts" (dict "root" . "writes" $writes) | fromYamlArray }}
{{- if has .mountPath $mounts }}
{{- fail (printf "node.confDir or node.binDir: the chart mounts %q already, want a directory of its own for each" .mountPath) }}
{{- end }}
{{- $mounts = append $mounts .mountPath }}
{{- end }}
{{- include "podweir.checkFree" (dict "value" "extraVolumeMounts" "kind" "mountPath" "key" "mountPath" "taken" $mounts "given" .Values.extraVolumeMounts) }}
{{- range $key, $_ := .Values.podLabels }}
{{- if hasKey (include "podweir.labels" $ | fromYaml) $key }}
{{- fail (printf "podLabels: the chart or commonLabels sets the label %q, want another one" $key) }}
{{- end }}
{{- end }}
{{- if hasKey (.Values.podAnnotations | default dict) "checksum/settings" }}
{{- fail "podAnnotations: the chart sets \"checksum/settings\", want another key" }}
{{- end }}
{{- $taken := list "port" "path" "honorLabels" "relabelings" }}
{{- range list "interval" "metricRelabelings" }}
{{- if or (get $.Values.metrics.podMonitor .) (get $.Values.metrics.serviceMonitor .) }}
{{- $taken = append $taken . }}
{{- end }}
{{- end }}
{{- range $key, $_ := .Values.metrics.tls.endpoint }}
{{- if has $key $taken }}
{{- fail (printf "metrics.tls.endpoint: the chart sets %q, want another key" $key) }}
{{- end }}
{{- end }}
{{- if hasKey (.Values.nodeSelector | default dict) "kubernetes.io/os" }}
{{- fail "nodeSelector: the chart sets kubernetes.io/os: linux, and there is no agent for another system" }}
{{- end }}
{{- end }}

{{- /* Kubernetes mounts no path with "..". */}}
{{- define "podweir.checkDirectories" -}}
{{- range $key := list "confDir" "binDir" "criSocket" }}
{{- $path := get $.Values.node $key | default "/x" }}
{{- if or (has ".." (splitList "/" $path)) (eq (clean $path) "/") }}
{{- fail (printf "node.%s %q is not accepted, want a path below / without .." $key $path) }}
{{- end }}
{{- end }}
{{- if and .Values.node.criSocket (eq .Values.node.hostFiles "eks") (empty .Values.extraVolumeMounts) (not (hasPrefix "/host/run/containerd/" (include "podweir.criSocket" .))) }}
{{- fail (printf "node.criSocket %q does not go with node.hostFiles \"eks\", which shows sockets below /run/containerd alone: want node.hostFiles all" .Values.node.criSocket) }}
{{- end }}
{{- end }}

{{- /* A quantity of memory or processors as a number; GOMEMLIMIT's B is left out. */}}
{{- define "podweir.amount" -}}
{{- $text := toString . | trimSuffix "B" }}
{{- if hasSuffix "m" $text }}
{{- printf "%f" (divf (trimSuffix "m" $text | float64) 1000.0) }}
{{- else }}
{{- include "podweir.bits" $text }}
{{- end }}
{{- end }}

{{- /* No request is above its limit, and Go collects before the limit ends the agent. */}}
{{- define "podweir.checkMemory" -}}
{{- $r := .Values.resources | default dict }}
{{- range $kind := list "memory" "cpu" }}
{{- $ask := get ($r.requests | default dict) $kind }}
{{- $most := get ($r.limits | default dict) $kind }}
{{- if and $ask $most (gt (include "podweir.amount" $ask | float64) (include "podweir.amount" $most | float64)) }}
{{- fail (printf "resources.requests.%s %v is above resources.limits.%s %v, want at most the limit" $kind $ask $kind $most) }}
{{- end }}
{{- end }}
{{- with .Values.goMemLimit }}
{{- $most := get ($r.limits | default dict) "memory" }}
{{- if and $most (gt (include "podweir.amount" . | float64) (include "podweir.amount" $most | float64)) }}
{{- fail (printf "goMemLimit %q is above resources.limits.memory %v, want less than the limit" . $most) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the API server takes of the agents' pods. Helm would have made other objects before. */}}
{{- define "podweir.checkPods" -}}
{{- range $i, $t := .Values.tolerations }}
{{- if or (and (eq (.operator | default "Equal") "Exists") .value) (and (ne (.operator | default "Equal") "Exists") (not .key)) (and (hasKey . "tolerationSeconds") (ne (.effect | default "") "NoExecute")) }}
{{- fail (printf "tolerations[%d] is not accepted: want no value with the operator Exists, a key with Equal, and tolerationSeconds with the effect NoExecute alone" $i) }}
{{- end }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if and .value .valueFrom }}
{{- fail (printf "extraEnv: %q has both value and valueFrom, want one of them" .name) }}
{{- end }}
{{- end }}
{{- with .Values.securityContext.seccompProfile }}
{{- if and (eq .type "RuntimeDefault") .localhostProfile }}
{{- fail "securityContext.seccompProfile.localhostProfile is not accepted with type RuntimeDefault, want type Localhost" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Where Calico is to limit pods, or podweir limits none, Calico's limits are not lifted. */}}
{{- define "podweir.checkShapers" -}}
{{- if .Values.liftCalicoLimits.enabled }}
{{- if and (eq (.Values.defaults.enforce | default "limit") "observe") (empty .Values.liftCalicoLimits.namespaceSelector) }}
{{- fail "defaults.enforce \"observe\" does not go with liftCalicoLimits.enabled for all namespaces: nothing would limit pods; want liftCalicoLimits.namespaceSelector of those that podweir limits" }}
{{- end }}
{{- range $key := list "ingressShaper" "egressShaper" }}
{{- if eq (get $.Values.defaults $key | default $.Values.defaults.shaper | default "") "calico" }}
{{- fail (printf "defaults.%s or defaults.shaper \"calico\" does not go with liftCalicoLimits.enabled: nothing would limit pods" $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "podweir.checkFree" -}}
{{- $seen := .taken }}
{{- range .given }}
{{- $name := get . $.key | toString }}
{{- if eq $.key "mountPath" }}
{{- $name = clean $name }}
{{- end }}
{{- if has $name $.taken }}
{{- fail (printf "%s: the chart sets the %s %q, want another one" $.value $.kind $name) }}
{{- end }}
{{- if has $name $seen }}
{{- fail (printf "%s: the %s %q is there twice, want it once" $.value $.kind $name) }}
{{- end }}
{{- $seen = append $seen $name }}
{{- end }}
{{- end }}
