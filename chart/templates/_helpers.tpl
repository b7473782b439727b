{{- /*
SPDX-License-Identifier: Apache-2.0
Copyright Authors of podweir
*/ -}}
{{- define "podweir.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- /* Labels by which objects find the pods; they can never change. */}}
{{- define "podweir.selector" -}}
app.kubernetes.io/name: podweir
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
{{- end }}

{{- define "podweir.labels" -}}
{{ include "podweir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: agent
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Labels of an object by which others choose it: its own come before the chart's. Called with
the root and its own. */}}
{{- define "podweir.labelsWith" -}}
{{- merge (dict) (last . | default dict) (include "podweir.labels" (first .) | fromYaml) | toYaml }}
{{- end }}

{{- /* The Secrets of the chart and of the charts above it. A name alone is taken, too. */}}
{{- define "podweir.pullSecrets" -}}
{{- with concat (.Values.imagePullSecrets | default list) ((.Values.global).imagePullSecrets | default list) -}}
imagePullSecrets:
{{- range . }}
  - name: {{ if kindIs "string" . }}{{ toYaml . }}{{ else }}{{ toYaml .name }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The settings of the agent, by the names of its flags. */}}
{{- define "podweir.settings" -}}
delivery: {{ .Values.delivery }}
log-level: {{ .Values.logLevel }}
log-format: {{ .Values.logFormat }}
doctor-interval: {{ .Values.doctorInterval }}
address: {{ printf "%s:%v" (include "podweir.address" .) .Values.metrics.port | quote }}
# The node's loopback, which the kubelet shares.
health-address: "127.0.0.1:{{ .Values.health.port }}"
{{- if .Values.cluster.enabled }}
# What "kubectl podweir" reads, and whose tokens it has to show.
cluster-address: ":{{ .Values.cluster.port }}"
cluster-reader: {{ .Release.Namespace }}/{{ include "podweir.name" . }}-reader
{{- end }}
{{- if .Values.metrics.tls.enabled }}
tls: true
{{- if .Values.metrics.tls.secretName }}
tls-dir: /etc/podweir-tls
{{- end }}
{{- end }}
pprof: {{ .Values.metrics.profiles }}
{{- if .Values.uninstall.clean }}
# Its deletion is an uninstall.
daemonset: {{ .Release.Namespace }}/{{ include "podweir.name" . }}
{{- end }}
namespace-interval: {{ .Values.namespaces.interval }}
# Where the node's root directory is in the container. The agent puts it
# before the paths of directories and of the NRI socket.
root: /host
# /var/run is a link on the node, which would lead back into the container.
nri-socket: /run/nri/nri.sock
{{- with .Values.node.confDir }}
cni-conf-dir: {{ . | quote }}
{{- end }}
{{- with .Values.node.binDir }}
cni-bin-dir: {{ . | quote }}
{{- end }}
{{- with include "podweir.criSocket" . }}
cri-socket: {{ . | quote }}
{{- end }}
{{- with include "podweir.defaults" . }}
default: {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* For the commands that are run in a container: where the node is, and what no file
on it shows. */}}
{{- define "podweir.commandEnv" -}}
- name: PODWEIR_ROOT
  value: /host
# No file on the node shows the deliveries nri and watch.
- name: PODWEIR_DELIVERY
  value: {{ .Values.delivery }}
- name: PODWEIR_HEALTH_ADDRESS
  value: "127.0.0.1:{{ .Values.health.port }}"
{{- with .Values.node.confDir }}
- name: PODWEIR_CNI_CONF_DIR
  value: {{ . | quote }}
{{- end }}
{{- with .Values.node.binDir }}
- name: PODWEIR_CNI_BIN_DIR
  value: {{ . | quote }}
{{- end }}
{{- with include "podweir.criSocket" . }}
- name: PODWEIR_CRI_SOCKET
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{- /* Which nodes have an agent. */}}
{{- define "podweir.placement" -}}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .Values.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "podweir.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "podweir.name" .) }}
{{- end }}

{{- /* The address for metrics: without TLS the loopback, unless another one is set. An
IPv6 address stands in brackets before a port. */}}
{{- define "podweir.address" -}}
{{- $address := .Values.metrics.address | default (ternary "" "127.0.0.1" .Values.metrics.tls.enabled) }}
{{- if contains ":" $address }}[{{ $address }}]{{ else }}{{ $address }}{{ end }}
{{- end }}

{{- /* "yes" if another machine reaches the metrics. */}}
{{- define "podweir.metricsReachable" -}}
{{- if not (regexMatch "(?i)^(127\\.|\\[[0:]*:(1|ffff:127\\.[0-9.]+)\\]$)" (include "podweir.address" .)) }}yes{{ end }}
{{- end }}

{{- /* What an endpoint of a monitor has beside its port; it is called with the root and the
monitor's values. */}}
{{- define "podweir.endpoint" -}}
path: /metrics
{{- if .root.Values.metrics.tls.enabled }}
{{- if not (hasKey (.root.Values.metrics.tls.endpoint | default dict) "scheme") }}
scheme: https
{{- end }}
{{- with .root.Values.metrics.tls.endpoint }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- with .monitor.interval }}
interval: {{ . }}
{{- end }}
# The metrics have the labels namespace and pod of the shaped pod, which
# otherwise become exported_namespace and exported_pod.
honorLabels: true
relabelings:
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
  {{- with .monitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .monitor.metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The keys of podweir's entry in the chain that have a value, as KEY=VALUE. An
empty list of annotations is a value: pods may set none. */}}
{{- define "podweir.defaults" -}}
{{- range $key, $value := .Values.defaults }}
{{- if or $value (and (eq $key "podAnnotations") (kindIs "slice" $value)) }}
{{- if kindIs "string" $value }}
- {{ printf "%s=%s" $key $value | quote }}
{{- else }}
- {{ printf "%s=%s" $key (toJson $value) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "podweir.confDir" -}}
{{- .Values.node.confDir | default "/etc/cni/net.d" | clean }}
{{- end }}

{{- define "podweir.binDir" -}}
{{- .Values.node.binDir | default "/opt/cni/bin" | clean }}
{{- end }}

{{- /* The runtime's socket in the container. The node's /var/run is a link that would lead back
into the container. */}}
{{- define "podweir.criSocket" -}}
{{- with .Values.node.criSocket }}/host{{ regexReplaceAll "^/var/run/" (clean .) "/run/" }}{{ end }}
{{- end }}

{{- /* "yes" if a directory of conflists or plugins is mounted by itself: it is written to, or the
few that are mounted do not have it. Called with what mounts are called with, and with it. */}}
{{- define "podweir.apart" -}}
{{- $of := first . }}
{{- if or $of.writes (and (eq $of.root.Values.node.hostFiles "eks") (not (regexMatch "^/(etc/cni|opt/cni/bin)(/|$)" (last .)))) }}yes{{ end }}
{{- end }}

{{- /* What the container may do on the node. */}}
{{- define "podweir.rights" -}}
# The network namespaces and bpffs belong to root.
runAsUser: 0
privileged: false
allowPrivilegeEscalation: true # the kubelet asks for it beside SYS_ADMIN
readOnlyRootFilesystem: true
# containerd's own filter lets bpf() and setns() through to whoever
# has SYS_ADMIN.
seccompProfile: {{- toYaml .Values.securityContext.seccompProfile | nindent 2 }}
{{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}
# containerd's own profile forbids writing to /sys/fs/bpf.
appArmorProfile: {type: Unconfined}
{{- end }}
{{- with .Values.securityContext.seLinuxOptions }}
seLinuxOptions: {{- toYaml . | nindent 2 }}
{{- end }}
capabilities:
  drop: [ALL]
  add:
    - NET_ADMIN # qdiscs, filters and programs on the pods' devices
    - SYS_ADMIN # setns() into the pods' network namespaces; it includes BPF and PERFMON
    {{- if eq .Values.node.hostFiles "all" }}
    - SYS_PTRACE # /proc/PID/root and exe of other CNIs' agents and of the runtime: which they are, how they are set
    {{- end }}
{{- end }}

{{- /* What of the node is in the container; writes says whether files may be installed and removed. */}}
{{- define "podweir.mounts" -}}
{{- if eq .root.Values.node.hostFiles "eks" }}
# Where the runtime looks for conflists and plugins.
- {name: containerd, mountPath: /host/etc/containerd, readOnly: true}
# Its CRI socket, and below it the mounts of containers' file systems, which
# read-only does not cover.
- {name: sockets, mountPath: /host/run/containerd, readOnly: true, mountPropagation: HostToContainer}
# Its NRI socket.
- {name: nri, mountPath: /host/run/nri, readOnly: true}
# The primary CNI's conflist: the network whose name attachments have.
- {name: cni, mountPath: /host/etc/cni, readOnly: true}
{{- if not (and .writes (eq (include "podweir.binDir" .root) "/opt/cni/bin")) }}
# Its plugins, by which it is known.
- {name: binaries, mountPath: /host/opt/cni/bin, readOnly: true}
{{- end }}
# What its agents leave there, by which doctor tells whether they run.
- {name: aws-node, mountPath: /host/run/aws-node, readOnly: true}
# Names of the node's devices, by which the primary CNI is known.
- {name: devices, mountPath: /host/sys/class/net, readOnly: true}
# Pins of the network policy agent, which doctor lists.
- {name: bpffs, mountPath: /host/sys/fs/bpf, readOnly: true, mountPropagation: HostToContainer}
# Names and arguments of processes, listening sockets, the kernel's settings.
- {name: proc, mountPath: /host/proc, readOnly: true}
# Whether the kernel describes its types, which programs need.
- {name: btf, mountPath: /host/sys/kernel/btf, readOnly: true}
{{- else }}
# What is on the node: the runtime's and the primary CNI's settings,
# their processes under /host/proc, the runtime's sockets.
- {name: root, mountPath: /host, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
# Pins: what keeps programs and maps when the agent ends.
- {name: bpffs, mountPath: /sys/fs/bpf, mountPropagation: HostToContainer}
# Probe results and failure records, shared with podweir-cni.
- {name: run, mountPath: /run/podweir}
# The network namespaces of pods by the path that the runtime gives;
# they are mounted there while the agent runs.
- {name: netns, mountPath: /var/run/netns, readOnly: true, mountPropagation: HostToContainer}
- {name: netns, mountPath: /run/netns, readOnly: true, mountPropagation: HostToContainer}
{{- $only := ternary "" ", readOnly: true" .writes }}
{{- if include "podweir.apart" (list . (include "podweir.confDir" .root)) }}
# Where our conflist or drop-in goes.
- {name: conflists, mountPath: {{ printf "/host%s" (include "podweir.confDir" .root) | quote }}{{ $only }}}
{{- end }}
{{- if include "podweir.apart" (list . (include "podweir.binDir" .root)) }}
# Where the plugin's binary goes.
- {name: plugins, mountPath: {{ printf "/host%s" (include "podweir.binDir" .root) | quote }}{{ $only }}}
{{- end }}
{{- if .writes }}
# What was installed, so that it can be taken off again.
- {name: state, mountPath: /host/var/lib/podweir}
{{- end }}
{{- end }}

{{- define "podweir.volumes" -}}
{{- if eq .root.Values.node.hostFiles "eks" }}
# Part of Amazon's images.
- {name: containerd, hostPath: {path: /etc/containerd, type: Directory}}
# Made by the runtime, before any pod.
- {name: sockets, hostPath: {path: /run/containerd, type: Directory}}
# Made by the runtime unless NRI is off; empty then.
- {name: nri, hostPath: {path: /run/nri, type: DirectoryOrCreate}}
# Part of Amazon's images; aws-node fills it.
- {name: cni, hostPath: {path: /etc/cni, type: Directory}}
{{- if not (and .writes (eq (include "podweir.binDir" .root) "/opt/cni/bin")) }}
# Likewise.
- {name: binaries, hostPath: {path: /opt/cni/bin, type: Directory}}
{{- end }}
# aws-node makes it in the same way.
- {name: aws-node, hostPath: {path: /run/aws-node, type: DirectoryOrCreate}}
# The kernel's.
- {name: devices, hostPath: {path: /sys/class/net, type: Directory}}
# The kernel's.
- {name: btf, hostPath: {path: /sys/kernel/btf, type: Directory}}
# The kernel's.
- {name: proc, hostPath: {path: /proc, type: Directory}}
{{- else }}
# Read-only itself; what is mounted below it is not. A choice of directories
# would make podweir believe that a CNI is not there whose files it cannot see.
- {name: root, hostPath: {path: /, type: Directory}}
{{- end }}
# Mounted by systemd; never made by us, a directory would do as well as
# nothing.
- {name: bpffs, hostPath: {path: /sys/fs/bpf, type: Directory}}
# On tmpfs: gone with the next boot.
- {name: run, hostPath: {path: /run/podweir, type: DirectoryOrCreate}}
# Made by the runtime for the first pod that is not hostNetwork.
- {name: netns, hostPath: {path: /run/netns, type: DirectoryOrCreate}}
{{- if include "podweir.apart" (list . (include "podweir.confDir" .root)) }}
# Belongs to the primary CNI; there before any pod is.
- {name: conflists, hostPath: {path: {{ include "podweir.confDir" .root | quote }}, type: Directory}}
{{- end }}
{{- if include "podweir.apart" (list . (include "podweir.binDir" .root)) }}
# Likewise.
- {name: plugins, hostPath: {path: {{ include "podweir.binDir" .root | quote }}, type: Directory}}
{{- end }}
{{- if .writes }}
# Ours alone; empty after an uninstall.
- {name: state, hostPath: {path: /var/lib/podweir, type: DirectoryOrCreate}}
{{- end }}
{{- end }}
