// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package charttest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// A wrong value is refused before anything reaches the cluster, by an error
// that names it.
func TestWrongValuesAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ values, want string }{
		"misspelt key":                  {`deliverry: chain`, "deliverry"},
		"misspelt key below":            {`metrics: {prot: 9479}`, "prot"},
		"misspelt default":              {`defaults: {polcy: strict}`, "polcy"},
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
		"taint as a word":               {`startupTaint: {enabled: "yes"}`, "enabled"},
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
		"affinity of a typo":            {`affinity: {nodeAffinty: {}}`, "nodeAffinty"},
		"memory of a typo":              {`resources: {limits: {memory: 128MB}}`, "memory"},
		"limits of a typo":              {`resources: {limit: {}}`, "limit"},
		"surge with a port of the node": {`updateStrategy: {rollingUpdate: {maxSurge: 1}}`, "maxSurge"},
		"strategy":                      {`updateStrategy: {type: Recreate}`, "type"},
		"grace of nothing":              {`terminationGracePeriodSeconds: 0`, "terminationGracePeriodSeconds"},
		"pull secret as text":           {`imagePullSecrets: [registry]`, "imagePullSecrets"},
		"monitor without a service":     {`metrics: {service: {enabled: false}, serviceMonitor: {enabled: true}}`, "metrics.serviceMonitor.enabled needs metrics.service.enabled"},
		"rules of a typo":               {`metrics: {prometheusRule: {enable: true}}`, "enable"},
		"docs without scheme":           {`metrics: {prometheusRule: {docs: docs.example}}`, "docs"},
		"privileged":                    {`securityContext: {privileged: true}`, "securityContext"},
		"seccomp that lets all through": {`securityContext: {seccompProfile: {type: Unconfined}}`, "seccompProfile"},
		"digest without its kind":       {`image: {digest: 0123}`, "digest"},
		"registry of all charts":        {`global: {imageRegistry: registry.example}`, `global.imageRegistry "registry.example" is not accepted: set image.registry`},
		"label of the chart":            {`commonLabels: {app.kubernetes.io/name: x}`, "commonLabels"},
		"name of dots":                  {`fullnameOverride: a.b`, "fullnameOverride"},
		"argument without dashes":       {`extraArgs: [pass=30s]`, "extraArgs"},
		"argument that hides defaults":  {`extraArgs: ["--default=queue=fq"]`, "extraArgs"},
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
			values := map[string]any{}
			if err := yaml.Unmarshal([]byte(tc.values), &values); err != nil {
				t.Fatal(err)
			}
			if _, err := render("1.34", values); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error = %v, want one that names %s", tc.values, err, tc.want)
			}
		})
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
		given := map[string]any{}
		if err := yaml.Unmarshal([]byte(values), &given); err != nil {
			t.Fatal(err)
		}
		out, err := render("1.34", given)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(out)
		if want == "" && strings.Contains(text, "podAnnotations") || !strings.Contains(text, want) {
			t.Errorf("%s: the agent's settings lack %q, or have annotations", values, want)
		}
	}
}

// What AWS sets, and what charts above this one hand down, is no error.
func TestForeignKeysAreTaken(t *testing.T) {
	for _, values := range []map[string]any{{"k8version": "1.33"}, {"k8version": 1.3}, {"global": map[string]any{"x": 1}}} {
		if _, err := render("1.34", values); err != nil {
			t.Errorf("%v: %v", values, err)
		}
	}
}

// The three places in which values are named.
func TestValuesSchemaAndPageAgree(t *testing.T) {
	all, err := readValues()
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, v := range all {
		keys = append(keys, v.key)
		if v.comment == "" && v.leaf {
			t.Errorf("values.yaml: %s has no comment", v.key)
		}
	}
	slices.Sort(keys)
	inSchema, err := schemaKeys()
	if err != nil {
		t.Fatal(err)
	}
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
	golden(t, docsDir+"/reference/chart-values.md", valuesPage(all))
}

// Every setting that the chart makes is a flag of the command: of the agent's
// file, of its arguments and of the environment.
func TestSettingsAreFlags(t *testing.T) {
	var page string
	for _, name := range []string{"cli.md", "agent.md"} {
		text, err := os.ReadFile(docsDir + "/reference/" + name)
		if err != nil {
			t.Fatal(err)
		}
		page += string(text)
	}
	all := objects(t, "1.34", everything())
	var settings map[string]any
	for _, o := range all {
		if c, ok := o.(*core.ConfigMap); ok && c.Data["agent.yaml"] != "" {
			if err := yaml.Unmarshal([]byte(c.Data["agent.yaml"]), &settings); err != nil {
				t.Fatal(err)
			}
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
	}
}

func TestDefaultsReachTheAgent(t *testing.T) {
	want := []any{"horizon=20ms", "maxRate=1G", "policy=elephants", `unshapedSubnets=["10.0.0.0/8","fd00::/8"]`}
	for _, o := range objects(t, "1.34", everything()) {
		c, ok := o.(*core.ConfigMap)
		if !ok || c.Data["agent.yaml"] == "" {
			continue
		}
		var settings map[string]any
		if err := yaml.Unmarshal([]byte(c.Data["agent.yaml"]), &settings); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, settings["default"]); diff != "" {
			t.Error(diff)
		}
		if settings["cri-socket"] != "/host/run/x.sock" || settings["address"] != "127.0.0.1:9479" {
			t.Errorf("settings = %v", settings)
		}
	}
}
