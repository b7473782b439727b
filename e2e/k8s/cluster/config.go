// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import "errors"

// writeConfig makes what nodes read from /node/config.
func (n *Node) writeConfig() error {
	return errors.Join(
		n.cluster.write("node/containerd.toml", containerdConfig),
		n.cluster.write("node/kubelet.yaml", kubeletConfig),
	)
}

// restrict_oom_score_adj: to lower it takes SYS_RESOURCE, which nodes lack.
const containerdConfig = `version = 3

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'localhost/podweir/work:1'

[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
`

// The kubelet's port is reached from the network of nodes alone. Evictions and
// the removal of images are off: the machine's disk is not the cluster's.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enforceNodeAllocatable: [none]
evictionHard: {memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100
resolvConf: ""
`
