// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// A wrong value is refused before anything reaches the cluster, by an error
// that names it.
func TestWrongValuesAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ values, want string }{
		"misspelt key":                  {`deliverry: chain`, "deliverry"},
		"misspelt key below":            {`metrics: {prot: 9479}`, "prot"},
		"unknown delivery":              {`delivery: sidecar`, "delivery"},
		"unknown policy":                {`defaults: {policy: fair}`, "policy"},
		"unknown queue":                 {`defaults: {queue: cake}`, "queue"},
		"unknown mode":                  {`defaults: {mode: xdp}`, "mode"},
		"horizon without unit":          {`defaults: {horizon: "50"}`, "horizon"},
		"horizon as a number":           {`defaults: {horizon: 50}`, "horizon"},
		"burst in bytes":                {`defaults: {egressBurst: 64kB}`, "egressBurst"},
		"share above all":               {`defaults: {lightShare: "1.5"}`, "lightShare"},
		"share of a word":               {`defaults: {heavyThreshold: much}`, "heavyThreshold"},
		"annotation of a typo":          {`defaults: {podAnnotations: [polcy]}`, "podAnnotations"},
		"annotation with a value":       {`defaults: {podAnnotations: [policy=flat]}`, "podAnnotations"},
		"annotations as text":           {`defaults: {podAnnotations: policy}`, "podAnnotations"},
		"onError of a word":             {`defaults: {onError: ignore}`, "onError"},
		"rate in bytes":                 {`defaults: {maxRate: 10MB}`, "maxRate"},
		"rate as a number":              {`defaults: {egressRate: 10}`, "egressRate"},
		"rate of milli":                 {`defaults: {defaultRate: 10m}`, "defaultRate"},
		"annotation of a rate's value":  {`defaults: {podAnnotations: [egress-rate=1G]}`, "podAnnotations"},
		"namespaces without unit":       {`namespaces: {interval: "120"}`, "interval"},
		"namespaces as a number":        {`namespaces: {interval: 0}`, "interval"},
		"action of a typo":              {`admissionPolicy: {actions: [deny]}`, "actions"},
		"no action":                     {`admissionPolicy: {actions: []}`, "actions"},
		"actions that exclude another":  {`admissionPolicy: {actions: [Deny, Warn]}`, "actions"},
		"subnet without length":         {`defaults: {unshapedSubnets: [10.0.0.0]}`, "unshapedSubnets"},
		"both kinds of subnets":         {`defaults: {unshapedSubnets: [10.0.0.0/8], shapedSubnets: [fd00::/8]}`, "defaults"},
		"port of connections":           {`metrics: {port: 40000}`, "port"},
		"port zero":                     {`metrics: {port: 0}`, "port"},
		"port as text":                  {`metrics: {port: "9479"}`, "port"},
		"address with a port":           {`metrics: {address: "localhost:1"}`, "address"},
		"tag latest":                    {`image: {tag: latest}`, "tag"},
		"empty tag":                     {`image: {tag: ""}`, "tag"},
		"registry in the repository":    {`image: {repository: "ghcr.io:443/x"}`, "repository"},
		"pull policy in lower case":     {`image: {pullPolicy: always}`, "pullPolicy"},
		"log level":                     {`logLevel: trace`, "logLevel"},
		"relative directory":            {`node: {confDir: etc/cni/net.d}`, "confDir"},
		"interval without unit":         {`metrics: {podMonitor: {interval: "30"}}`, "interval"},
		"labels as a list":              {`podLabels: [a]`, "podLabels"},
		"toleration of a typo":          {`tolerations: [{operatr: Exists}]`, "operatr"},
		"memory of a typo":              {`resources: {limits: {memory: 128MB}}`, "memory"},
		"surge with a port of the node": {`updateStrategy: {rollingUpdate: {maxSurge: 1}}`, "maxSurge"},
		"strategy":                      {`updateStrategy: {type: Recreate}`, "type"},
		"grace of nothing":              {`terminationGracePeriodSeconds: 0`, "terminationGracePeriodSeconds"},
		"pull secret as text":           {`imagePullSecrets: [registry]`, "imagePullSecrets"},
		"monitor without a service": {
			`metrics: {address: "::", service: {enabled: false}, serviceMonitor: {enabled: true}}`,
			"metrics.serviceMonitor.enabled needs metrics.service.enabled",
		},
		"two monitors":                  {`metrics: {address: "::", podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}`, "metrics.podMonitor.enabled and metrics.serviceMonitor.enabled are both set, want one of them"},
		"monitor of a loopback":         {`metrics: {podMonitor: {enabled: true}}`, "metrics.podMonitor.enabled needs metrics that Prometheus reaches"},
		"monitor of IPv6's loopback":    {`metrics: {address: "::1", serviceMonitor: {enabled: true}}`, "metrics.serviceMonitor.enabled needs metrics that Prometheus reaches"},
		"default above the maximum":     {`defaults: {defaultRate: 1.5G, maxRate: 1000M}`, `defaults.defaultRate "1.5G" is above defaults.maxRate "1000M", want at most the maximum for what is ingress`},
		"above that of a direction":     {`defaults: {defaultRate: "1e6", maxRate: 1G, egressMaxRate: 999k}`, `defaults.defaultRate "1e6" is above defaults.egressMaxRate "999k"`},
		"a direction's own above":       {`defaults: {defaultRate: 1M, ingressRate: 1Gi, maxRate: 1G}`, `defaults.ingressRate "1Gi" is above defaults.maxRate "1G"`},
		"namespaces above theirs":       {`defaults: {namespaceRate: 2G, namespaceMaxRate: 1G}`, `defaults.namespaceRate "2G" is above defaults.namespaceMaxRate "1G"`},
		"default that is no limit":      {`defaults: {maxRate: "500"}`, `defaults.maxRate "500" is not accepted, want a rate in bits per second from 1k to 400G`},
		"maximum beyond all":            {`defaults: {egressMaxRate: 401G}`, `defaults.egressMaxRate "401G" is not accepted`},
		"network of 33 bits":            {`defaults: {unshapedSubnets: [10.0.0.0/33]}`, `defaults.unshapedSubnets: "10.0.0.0/33" is not accepted, want a network as 10.0.0.0/8, of length 0 to 32`},
		"network of 129 bits":           {`defaults: {shapedSubnets: ["fd00::/129"]}`, `defaults.shapedSubnets: "fd00::/129" is not accepted`},
		"network of three numbers":      {`defaults: {unshapedSubnets: [10.0.0/8]}`, `"10.0.0/8" is not accepted`},
		"network of 256":                {`defaults: {unshapedSubnets: [10.0.256.0/24]}`, `"10.0.256.0/24" is not accepted`},
		"network of two gaps":           {`defaults: {unshapedSubnets: ["fd00::1::/64"]}`, `"fd00::1::/64" is not accepted`},
		"network of seven groups":       {`defaults: {unshapedSubnets: ["1:2:3:4:5:6:7/64"]}`, `"1:2:3:4:5:6:7/64" is not accepted`},
		"tbf where ingress is policed":  {`defaults: {mode: clsact-podside, queue: tbf}`, `defaults.queue "tbf" does not go with defaults.mode "clsact-podside"`},
		"none on a queue of our own":    {`defaults: {mode: qdisc, queue: none}`, `defaults.queue "none" does not go with defaults.mode "qdisc", want auto, tbf`},
		"a place at a hook":             {`defaults: {mode: tcx-hostside, ingressPlace: ifb}`, `defaults.ingressPlace "ifb" does not go with defaults.mode "tcx-hostside"`},
		"TCX and a filter in the pod":   {`defaults: {podHook: tcx, mode: clsact-podside}`, `defaults.podHook "tcx" does not go with defaults.mode "clsact-podside"`},
		"TCX and an ifb":                {`defaults: {podHook: tcx, ingressPlace: ifb}`, `defaults.podHook "tcx" does not go with defaults.ingressPlace "ifb"`},
		"a hook of another kind":        {`defaults: {podHook: netkit}`, "podHook"},
		"health on the metrics' port":   {`health: {port: 9479}`, "health.port and metrics.port are both 9479, want a port of its own for each"},
		"cluster on the health's port":  {`cluster: {port: 9478}`, "health.port and cluster.port are both 9478"},
		"variable of the pod":           {`extraEnv: [{name: POD_NAME, value: x}]`, `"POD_NAME"`},
		"variable of the commands":      {`extraEnv: [{name: RUN_PODWEIR_BY, value: x}]`, `the chart sets the variable "RUN_PODWEIR_BY"`},
		"argument of an unset value":    {`extraArgs: [--tls]`, `"--tls" is a setting`},
		"variable of an unset value":    {`extraEnv: [{name: PODWEIR_CNI_CONF_DIR, value: /x}]`, `the chart sets the variable "PODWEIR_CNI_CONF_DIR"`},
		"mount of the chart, a slash":   {`extraVolumeMounts: [{name: bpffs, mountPath: /run/podweir/}]`, `the chart sets the mountPath "/run/podweir"`},
		"port of the kubelet":           {`metrics: {port: 10250}`, "the kubelet and metrics.port are both 10250"},
		"port of kube-proxy":            {`health: {port: 10249}`, "kube-proxy's metrics and health.port are both 10249"},
		"length with a zero ahead":      {`defaults: {unshapedSubnets: [10.0.0.0/08]}`, `"10.0.0.0/08" is not accepted`},
		"a share of everything":         {`defaults: {lightShare: 100%}`, `defaults.lightShare "100%" is not accepted, want a share from 1% to 99%`},
		"a share of nothing":            {`defaults: {heavyThreshold: "0.004"}`, `defaults.heavyThreshold "0.004" is not accepted, want a share from 0.5% to 100%`},
		"a share for elephants":         {`defaults: {policy: elephants, heavyThreshold: 51%}`, `defaults.heavyThreshold "51%" is not accepted, want a share from 0.5% to 50%`},
		"burst of twenty seconds":       {`defaults: {egressBurst: 20s}`, `defaults.egressBurst "20s" is not accepted, want a time at the rate from 1us to 10s, or 1 to 4G bits`},
		"burst beyond all":              {`defaults: {ingressBurst: 5G}`, `defaults.ingressBurst "5G" is not accepted`},
		"burst of half a bit":           {`defaults: {ingressBurst: "0.5"}`, `defaults.ingressBurst "0.5" is not accepted`},
		"burst of nothing":              {`defaults: {ingressBurst: 0s}`, `defaults.ingressBurst "0s" is not accepted`},
		"burst of pods":                 {`defaults: {podAnnotations: [egress-burst=20s]}`, `defaults.podAnnotations: "egress-burst=20s" is not accepted, want a time from 1us to 10s`},
		"interval beyond all":           {`namespaces: {interval: 9999999h}`, "interval"},
		"label's name of two words":     {`commonLabels: {"a b": c}`, "additional properties 'a b'"},
		"label's value of two words":    {`commonLabels: {a: "b c"}`, "/commonLabels/a"},
		"label of the pods, two bars":   {`podLabels: {x/y/z: a}`, "additional properties 'x/y/z'"},
		"annotation of two words":       {`podAnnotations: {"a b": c}`, "additional properties 'a b'"},
		"selector of two words":         {`nodeSelector: {a: "b c"}`, "/nodeSelector/a"},
		"class of two words":            {`priorityClassName: A b`, "priorityClassName"},
		"Go's memory above the limit":   {`{goMemLimit: 256MiB, resources: {limits: {memory: 64Mi}}}`, `goMemLimit "256MiB" is above resources.limits.memory 64Mi`},
		"request above the limit":       {`resources: {requests: {cpu: 2}, limits: {cpu: 500m}}`, `resources.requests.cpu 2 is above resources.limits.cpu 500m`},
		"address of 256":                {`metrics: {address: 127.0.0.256}`, `metrics.address "127.0.0.256" is not accepted`},
		"address of 01":                 {`metrics: {address: 01.2.3.4}`, `metrics.address "01.2.3.4" is not accepted`},
		"directory with dots":           {`node: {confDir: /etc/cni/../cni}`, `node.confDir "/etc/cni/../cni" is not accepted`},
		"the root as a directory":       {`node: {binDir: //}`, `node.binDir "//" is not accepted`},
		"one directory for both":        {`node: {binDir: /opt/cni, confDir: /opt/cni/}`, `node.confDir or node.binDir: the chart mounts "/host/opt/cni" already`},
		"the plugins' default place":    {`node: {confDir: /opt/cni/bin}`, `the chart mounts "/host/opt/cni/bin" already`},
		"a directory of eks's":          {`node: {hostFiles: eks, confDir: /etc/cni}`, `the chart mounts "/host/etc/cni" already`},
		"a socket that eks hides":       {`node: {hostFiles: eks, criSocket: /run/crio/crio.sock}`, `node.criSocket "/run/crio/crio.sock" does not go with node.hostFiles "eks"`},
		"annotation of the chart":       {`podAnnotations: {checksum/settings: x}`, `podAnnotations: the chart sets "checksum/settings"`},
		"endpoint of the chart":         {`metrics: {tls: {enabled: true, endpoint: {path: /x}}}`, `metrics.tls.endpoint: the chart sets "path"`},
		"certificate without TLS":       {`metrics: {address: "::", tls: {secretName: x}}`, "are not accepted without metrics.tls.enabled: metrics would be in plain text"},
		"monitor of a mapped loopback":  {`metrics: {address: "::FFFF:127.0.0.1", podMonitor: {enabled: true}}`, "metrics.podMonitor.enabled needs metrics that Prometheus reaches"},
		"interval in another order":     {`metrics: {podMonitor: {interval: 1s1m}}`, "interval"},
		"toleration of any value":       {`tolerations: [{operator: Exists}, {key: a, operator: Exists, value: b}]`, "tolerations[1] is not accepted"},
		"toleration without a key":      {`tolerations: [{value: b}]`, "tolerations[0] is not accepted"},
		"toleration of some seconds":    {`tolerations: [{operator: Exists, tolerationSeconds: 0}]`, "tolerations[0] is not accepted"},
		"variable of two sources":       {`extraEnv: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]`, `extraEnv: "A" has both value and valueFrom`},
		"profile of no type":            {`securityContext: {seccompProfile: {localhostProfile: x}}`, "localhostProfile is not accepted with type RuntimeDefault"},
		"TCX and a filter at the host":  {`defaults: {hostHook: tcx, mode: clsact-hostside}`, `defaults.hostHook "tcx" does not go with defaults.mode "clsact-hostside"`},
		"Calico's lifted, none limits":  {`{liftCalicoLimits: {enabled: true}, defaults: {enforce: observe}}`, `defaults.enforce "observe" does not go with liftCalicoLimits.enabled`},
		"account of the readers":        {`serviceAccount: {name: podweir-reader}`, `serviceAccount.name "podweir-reader" is the account of the readers`},
		"mount of no volume":            {`extraVolumeMounts: [{name: x, mountPath: /x}]`, `extraVolumeMounts: there is no volume "x"`},
		"Calico's limits lifted":        {`{liftCalicoLimits: {enabled: true}, defaults: {egressShaper: calico}}`, `defaults.egressShaper or defaults.shaper "calico" does not go with liftCalicoLimits.enabled`},
		"horizon of nothing":            {`defaults: {horizon: 0s}`, `defaults.horizon "0s" is not accepted, want a time from 1ms to 1s`},
		"horizon of minutes":            {`defaults: {horizon: 1.5s}`, `defaults.horizon "1.5s" is not accepted`},
		"rate with two factors":         {`defaults: {maxRate: 1e3k}`, "maxRate"},
		"variable of another value":     {`{goMemLimit: 32MiB, extraEnv: [{name: GOMEMLIMIT, value: x}]}`, `extraEnv: the chart sets the variable "GOMEMLIMIT"`},
		"variable that is there twice":  {`extraEnv: [{name: A}, {name: A}]`, `extraEnv: the variable "A" is there twice`},
		"volume of the chart":           {`extraVolumes: [{name: bpffs, emptyDir: {}}]`, `extraVolumes: the chart sets the volume "bpffs"`},
		"mount of the chart":            {`extraVolumeMounts: [{name: bpffs, mountPath: /run/podweir}]`, `extraVolumeMounts: the chart sets the mountPath "/run/podweir"`},
		"label of the pods":             {`podLabels: {app.kubernetes.io/instance: x}`, `podLabels: the chart or commonLabels sets the label "app.kubernetes.io/instance"`},
		"label of all and of the pods":  {`{commonLabels: {a: b}, podLabels: {a: c}}`, `podLabels: the chart or commonLabels sets the label "a"`},
		"another system":                {`nodeSelector: {kubernetes.io/os: windows}`, "nodeSelector: the chart sets kubernetes.io/os: linux"},
		"account without a name":        {`serviceAccount: {create: false}`, "serviceAccount.create false is not accepted without serviceAccount.name"},
		"annotations of no account":     {`serviceAccount: {create: false, name: x, annotations: {a: b}}`, "serviceAccount.annotations are not accepted"},
		"ready for a long time":         {`minReadySeconds: 601`, "minReadySeconds"},
		"probe without a period":        {`probes: {liveness: {periodSeconds: 0}}`, "periodSeconds"},
		"probe of another path":         {`probes: {liveness: {httpGet: {path: /}}}`, "httpGet"},
		"relabelings as a map":          {`metrics: {podMonitor: {relabelings: {a: b}}}`, "relabelings"},
		"docs without scheme":           {`metrics: {prometheusRule: {docs: docs.example}}`, "docs"},
		"privileged":                    {`securityContext: {privileged: true}`, "securityContext"},
		"seccomp that lets all through": {`securityContext: {seccompProfile: {type: Unconfined}}`, "seccompProfile"},
		"digest without its kind":       {`image: {digest: 0123}`, "digest"},
		"registry of all charts":        {`global: {imageRegistry: registry.example}`, `global.imageRegistry "registry.example" is not accepted: set image.registry`},
		"label of the chart":            {`commonLabels: {app.kubernetes.io/name: x}`, "commonLabels"},
		"name of dots":                  {`fullnameOverride: a.b`, "fullnameOverride"},
		"argument without dashes":       {`extraArgs: [pass=30s]`, "extraArgs"},
		"argument that hides defaults":  {`extraArgs: ["--default=queue=tbf"]`, "extraArgs"},
		"namespaces too often":          {`namespaces: {interval: 5s}`, "interval"},
		"doctor too often":              {`doctorInterval: 5s`, "doctorInterval"},
		"rollout that cannot move":      {`updateStrategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 0}}`, "maxUnavailable"},
		"rollout that cannot move, %":   {`updateStrategy: {rollingUpdate: {maxUnavailable: 0%, maxSurge: 0}}`, "maxUnavailable"},
		"profile without a name":        {`securityContext: {seccompProfile: {type: Localhost}}`, "localhostProfile"},
		"variable of a typo":            {`extraEnv: [{name: A, valeu: b}]`, "extraEnv"},
		"doctor without unit":           {`doctorInterval: "300"`, "doctorInterval"},
		"log format":                    {`logFormat: xml`, "logFormat"},
		"memory of a processor":         {`goMemLimit: 32M`, "goMemLimit"},
		"clean as a word":               {`uninstall: {clean: "no"}`, "clean"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := render("1.34", fromYAML(t, tc.values)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error = %v, want one that names %s", tc.values, err, tc.want)
			}
		})
	}
}

// What is refused beside other values stands alone, and at the bounds, without a fault.
func TestValuesAtTheirBoundsAreTaken(t *testing.T) {
	for _, text := range []string{
		`defaults: {defaultRate: 1000M, maxRate: 1G}`, `defaults: {defaultRate: 2G, ingressMaxRate: "0", egressMaxRate: "0", maxRate: 1G}`,
		`defaults: {defaultRate: 1G, ingressRate: 1k, egressRate: 1k, maxRate: 1M}`, `defaults: {maxRate: 400G, defaultRate: "0"}`,
		`defaults: {unshapedSubnets: [0.0.0.0/0, 10.0.0.1/32, 255.255.255.255/32, "::/0", "::1/128", "fd00::/8", "1:2:3:4:5:6:7:8/128", "fe80::1:2/64"]}`,
		`{node: {hostFiles: eks, criSocket: /run/x/y.sock}, extraVolumes: [{name: x}], extraVolumeMounts: [{name: x, mountPath: /host/run/x}]}`,
		`defaults: {mode: tcx-podside}`, `defaults: {mode: clsact-hostside, queue: none}`, `defaults: {mode: qdisc, queue: tbf, ingressPlace: ifb}`,
		`defaults: {podHook: tcx, ingressPlace: prefer-ifb}`, `defaults: {podHook: clsact, mode: clsact-podside}`,
		`defaults: {queue: none}`, `defaults: {queue: tbf}`, `{cluster: {enabled: false, port: 9478}}`,
		`{extraEnv: [{name: GOMEMLIMIT, value: 64MiB}, {name: GOGC, value: "50"}]}`, `{metrics: {tls: {enabled: true, endpoint: {scheme: https, interval: 10m}}, serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}}`,
		`{metrics: {address: "::", serviceMonitor: {enabled: true}}}`, `{serviceAccount: {create: false, name: there}, rbac: {create: false}}`,
		`{updateStrategy: {rollingUpdate: {maxUnavailable: 3}}}`, `{terminationGracePeriodSeconds: 20}`, `{podAnnotations: {container.apparmor.security.beta.kubernetes.io/agent: unconfined}}`, `tolerations: [{key: a}, {key: b, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]`,
		`{k8version: "1.33"}`, `{k8version: 1.3}`, `{global: {x: 1}}`, // as AWS, and charts above this one, give them
		`{liftCalicoLimits: {enabled: true, apiVersion: v1beta1, namespaceSelector: {matchLabels: {a: b}}}, defaults: {enforce: observe}}`,
		`{extraArgs: [--pass=30s, --default-x=1], extraEnv: [{name: PODWEIR_PASS, value: 30s}]}`,
		`defaults: {lightShare: "0.99", heavyThreshold: 0.5%, horizon: 1ms}`, `defaults: {lightShare: 1%, heavyThreshold: "1.0", horizon: 1s}`,
		`defaults: {ingressBurst: 10s, egressBurst: 4G, podAnnotations: [egress-burst=10s]}`, `defaults: {ingressBurst: "1e3", egressBurst: 1us}`,
		`{goMemLimit: 64MiB, resources: {limits: {memory: 64Mi, cpu: 500m}, requests: {cpu: "0.5"}}}`, `{extraVolumes: [{name: x}], extraVolumeMounts: [{name: x, mountPath: /x}, {name: bpffs, mountPath: /y}]}`,
		`{commonLabels: {example.com/a: B.c}, podAnnotations: {a: "{any thing}"}, nodeSelector: {a: ""}}`, `{liftCalicoLimits: {enabled: true, apiVersion: v1beta1}, defaults: {shaper: podweir}}`,
		`{metrics: {address: "::ffff:10.0.0.1"}, podAnnotations: {Example.com/x: a}, cluster: {port: 6443}}`,
		`{liftCalicoLimits: {enabled: true, apiVersion: v1beta1}, defaults: {shaper: calico, ingressShaper: podweir, egressShaper: podweir}}`,
		`admissionPolicy: {namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}}`,
	} {
		if _, err := render("1.34", fromYAML(t, text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A key with nothing behind it takes the chart's value away: it is refused by its name,
// unless none of it is something that Kubernetes knows.
func TestKeysWithoutAValue(t *testing.T) {
	all, err := readValues()
	mustOK(t, err)
	unchanged := objects(t, "1.34", nil)
	for _, v := range all {
		values := map[string]any{}
		at := values
		path := strings.Split(v.key, ".")
		for _, key := range path[:len(path)-1] {
			below := map[string]any{}
			at[key], at = below, below
		}
		at[path[len(path)-1]] = nil
		_, err := render("1.34", values)
		switch {
		case err == nil:
			kubernetes := slices.Contains([]string{
				"priorityClassName", "revisionHistoryLimit", "minReadySeconds", "terminationGracePeriodSeconds",
			}, v.key) || slices.Contains([]string{"updateStrategy", "probes", "tolerations", "affinity", "resources"}, path[0])
			if same := reflect.DeepEqual(unchanged, objects(t, "1.34", values)); !same && !kubernetes {
				t.Errorf("%s: null changes what the chart makes, want it refused", v.key)
			}
		case !strings.Contains(err.Error(), v.key+" has no value") && !strings.Contains(err.Error(), fmt.Sprintf("missing property '%s'", path[len(path)-1])):
			t.Errorf("%s: null: error = %v, want one that names it", v.key, err)
		}
	}
}

// An empty list of annotations is no annotation for pods, and not podweir's default.
func TestPodAnnotationsReachTheNode(t *testing.T) {
	for values, want := range map[string]string{
		`defaults: {podAnnotations: []}`:                                    `- "podAnnotations=[]"`,
		`defaults: {podAnnotations: [policy=elephants, egress-burst=0.5s]}`: `- "podAnnotations=[\"policy=elephants\",\"egress-burst=0.5s\"]"`,
		`defaults: {podAnnotations: null}`:                                  "",
		`{}`:                                                                "",
	} {
		out, err := render("1.34", fromYAML(t, values))
		mustOK(t, err)
		text := fmt.Sprint(out)
		if want == "" && strings.Contains(text, "podAnnotations") || !strings.Contains(text, want) {
			t.Errorf("%s: the agent's settings lack %q, or have annotations", values, want)
		}
	}
}

// The two places in which values are named.
func TestValuesAndSchemaAgree(t *testing.T) {
	all, err := readValues()
	mustOK(t, err)
	var keys []string
	for _, v := range all {
		keys = append(keys, v.key)
		if v.comment == "" && v.leaf {
			t.Errorf("values.yaml: %s has no comment", v.key)
		}
	}
	slices.Sort(keys)
	inSchema, err := schemaKeys()
	mustOK(t, err)
	notValues := []string{"global", "k8version", "updateStrategy.rollingUpdate.maxSurge", "resources.limits.cpu"}
	for _, key := range inSchema {
		if !slices.Contains(keys, key) && !slices.Contains(notValues, key) && !free(all, key) {
			t.Errorf("values.schema.json allows %s, values.yaml does not show it", key)
		}
	}
	for _, v := range all {
		if !slices.Contains(inSchema, v.key) && !free(all, v.key) {
			t.Errorf("values.yaml shows %s, values.schema.json does not allow it", v.key)
		}
	}
}

// Every setting that the chart makes is a flag of the command: of the agent's
// file, of its arguments and of the environment.
func TestSettingsAreFlags(t *testing.T) {
	var page string
	for _, name := range []string{"cli.md", "agent.md"} {
		text, err := os.ReadFile(docsDir + "/reference/" + name)
		mustOK(t, err)
		page += string(text)
	}
	all := objects(t, "1.34", everything("podMonitor"))
	var settings map[string]any
	for _, o := range all {
		if c, ok := o.(*core.ConfigMap); ok && c.Data["agent.yaml"] != "" {
			settings = fromYAML(t, c.Data["agent.yaml"])
		}
	}
	flags := slices.Collect(maps.Keys(settings))
	container := only[*apps.DaemonSet](t, all).Spec.Template.Spec.Containers[0]
	for _, arg := range container.Args[1:] {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		flags = append(flags, name)
	}
	for _, e := range container.Env {
		if name, ours := strings.CutPrefix(e.Name, "PODWEIR_"); ours {
			flags = append(flags, strings.ReplaceAll(strings.ToLower(name), "_", "-"))
		}
	}
	if len(flags) < 12 {
		t.Fatalf("found only %v", flags)
	}
	for _, flag := range flags {
		if !strings.Contains(page, "`--"+flag+"`") {
			t.Errorf("the chart sets %s, and cli.md and agent.md in docs/reference have no flag --%s", flag, flag)
		}
		if _, err := render("1.34", map[string]any{"extraArgs": []any{"--" + flag}}); err == nil && flag != "pass" { // everything has --pass
			t.Errorf("the chart sets %s, and extraArgs may set it as well", flag)
		}
	}
}
