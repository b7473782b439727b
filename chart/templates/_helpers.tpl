{{- /*
SPDX-License-Identifier: Apache-2.0
Copyright Authors of podweir
*/ -}}
{{- define "podweir.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- /* Labels by which objects find the pods; they can never change. */}}
{{- define "podweir.selector" -}}
app.kubernetes.io/name: podweir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "podweir.labels" -}}
{{ include "podweir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: agent
{{- end }}

{{- define "podweir.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "podweir.name" .) }}
{{- end }}

{{- /* An IPv6 address stands in brackets before a port. */}}
{{- define "podweir.address" -}}
{{- $address := .Values.metrics.address }}
{{- if contains ":" $address }}[{{ $address }}]{{ else }}{{ $address }}{{ end }}
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
{{- .Values.node.confDir | default "/etc/cni/net.d" }}
{{- end }}

{{- define "podweir.binDir" -}}
{{- .Values.node.binDir | default "/opt/cni/bin" }}
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
seccompProfile: {type: RuntimeDefault}
{{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}
# containerd's own profile forbids writing to /sys/fs/bpf.
appArmorProfile: {type: Unconfined}
{{- end }}
{{- with .Values.seLinuxOptions }}
seLinuxOptions: {{- toYaml . | nindent 2 }}
{{- end }}
capabilities:
  drop: [ALL]
  add:
    - NET_ADMIN # qdiscs, filters and programs on the pods' devices
    - SYS_ADMIN # setns() into the pods' network namespaces; it includes BPF and PERFMON
    - SYS_PTRACE # /proc/PID/root and exe of other CNIs' agents and of the runtime: which they are, how they are set
{{- end }}

{{- /* What of the node is in the container; writes says whether files may be installed and removed. */}}
{{- define "podweir.mounts" -}}
# What is on the node: the runtime's and the primary CNI's settings,
# their processes under /host/proc, the runtime's sockets.
- {name: root, mountPath: /host, readOnly: true, mountPropagation: HostToContainer}
# Pins: what keeps programs and maps when the agent ends.
- {name: bpffs, mountPath: /sys/fs/bpf, mountPropagation: HostToContainer}
# Probe results and failure records, shared with podweir-cni.
- {name: run, mountPath: /run/podweir}
# The network namespaces of pods by the path that the runtime gives;
# they are mounted there while the agent runs.
- {name: netns, mountPath: /var/run/netns, readOnly: true, mountPropagation: HostToContainer}
- {name: netns, mountPath: /run/netns, readOnly: true, mountPropagation: HostToContainer}
{{- if .writes }}
# Where our conflist or drop-in goes.
- {name: conflists, mountPath: {{ printf "/host%s" (include "podweir.confDir" .root) | quote }}}
# Where the plugin's binary goes.
- {name: plugins, mountPath: {{ printf "/host%s" (include "podweir.binDir" .root) | quote }}}
# What was installed, so that it can be taken off again.
- {name: state, mountPath: /host/var/lib/podweir}
{{- end }}
{{- end }}

{{- define "podweir.volumes" -}}
# Read-only. It hides nothing from an agent that has SYS_ADMIN, and a
# choice of directories would make podweir believe that a CNI is not
# there whose files it cannot see.
- {name: root, hostPath: {path: /, type: Directory}}
# Mounted by systemd; never made by us, a directory would do as well as
# nothing.
- {name: bpffs, hostPath: {path: /sys/fs/bpf, type: Directory}}
# On tmpfs: gone with the next boot.
- {name: run, hostPath: {path: /run/podweir, type: DirectoryOrCreate}}
# Made by the runtime for the first pod that is not hostNetwork.
- {name: netns, hostPath: {path: /run/netns, type: DirectoryOrCreate}}
{{- if .writes }}
# Belongs to the primary CNI; there before any pod is.
- {name: conflists, hostPath: {path: {{ include "podweir.confDir" .root | quote }}, type: Directory}}
# Likewise.
- {name: plugins, hostPath: {path: {{ include "podweir.binDir" .root | quote }}, type: Directory}}
# Ours alone; empty after an uninstall.
- {name: state, hostPath: {path: /var/lib/podweir, type: DirectoryOrCreate}}
{{- end }}
{{- end }}
