// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/step"
)

const (
	// ServiceCIDR is where the addresses of Services come from.
	ServiceCIDR = "10.96.0.0/16"
	// PodCIDR is where those of all pods come from.
	PodCIDR = "10.77.0.0/16"
	// Nobody else has the cluster's addresses, so ports are constants: the usual ones, but
	// for this, on which other clusters listen on every address.
	apiPort = 26443
)

// startControlPlane returns when the API server is ready. Everybody has a token
// and the rights of their kind: nodes those of the Node authorizer, pods those
// that RBAC gives them.
func (c *Cluster) startControlPlane(ctx context.Context) {
	c.api = netip.AddrPortFrom(c.gateway, apiPort)
	c.writeKeys()
	clients, peers := fmt.Sprintf("http://%s:2379", c.loopback), fmt.Sprintf("http://%s:2380", c.loopback)
	step.OK(c.run("etcd", "--data-dir", c.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--initial-cluster", "default="+peers))
	step.OK(c.run("kube-apiserver",
		"--etcd-servers="+clients,
		fmt.Sprintf("--secure-port=%d", c.api.Port()),
		"--bind-address="+c.gateway.String(),
		"--advertise-address="+c.gateway.String(),
		"--endpoint-reconciler-type=none",
		"--cert-dir="+c.path("pki"),
		"--token-auth-file="+c.path("pki/tokens.csv"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.path("pki/sa.key"),
		"--service-account-signing-key-file="+c.path("pki/sa.key"),
		"--service-cluster-ip-range="+ServiceCIDR,
		"--allow-privileged=true",
		// MutatingAdmissionPolicy is beta, and off, before Kubernetes 1.36.
		"--feature-gates=MutatingAdmissionPolicy=true",
		"--runtime-config=admissionregistration.k8s.io/v1beta1=true",
		// Names of nodes are not in any DNS.
		"--kubelet-preferred-address-types=InternalIP",
	))
	err := Eventually(ctx, 2*time.Minute, func(ctx context.Context) error { return step.Err(c.Kubectl(ctx, "", "get", "--raw", "/readyz")) })
	step.Say(err, "API server")
	step.OK(errors.Join(
		c.run("kube-controller-manager", "--kubeconfig="+c.path("admin.kubeconfig"),
			"--bind-address="+c.loopback.String(),
			"--service-account-private-key-file="+c.path("pki/sa.key"),
			// The self-signed pair that the API server made.
			"--root-ca-file="+c.path("pki/apiserver.crt"),
			"--allocate-node-cidrs=true", "--cluster-cidr="+PodCIDR,
			"--leader-elect=false", "--cert-dir="+c.path("pki/controllers")),
		c.run("kube-scheduler", "--kubeconfig="+c.path("admin.kubeconfig"),
			"--bind-address="+c.loopback.String(),
			"--leader-elect=false", "--cert-dir="+c.path("pki/scheduler")),
	))
}

// writeKeys makes the key of service accounts, the tokens and a kubeconfig for
// the administrator and each node.
func (c *Cluster) writeKeys() {
	key := step.Get(rsa.GenerateKey(rand.Reader, 2048))
	step.OK(c.write("pki/sa.key", string(pem.EncodeToMemory(&pem.Block{
		Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key),
	}))))
	admin := newToken()
	var tokens strings.Builder
	tokens.WriteString(admin + ",admin,admin,system:masters\n")
	errs := []error{c.writeKubeconfig("admin.kubeconfig", admin)}
	for _, node := range c.Nodes {
		token := newToken()
		fmt.Fprintf(&tokens, "%s,system:node:%s,%s,system:nodes\n", token, node, node)
		errs = append(errs, c.writeKubeconfig("node/"+node+".kubeconfig", token))
	}
	step.OK(errors.Join(append(errs, c.write("pki/tokens.csv", tokens.String()))...))
}

func newToken() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// writeKubeconfig does without the server's certificate, which is not there yet.
// Pods verify it.
func (c *Cluster) writeKubeconfig(name, token string) error {
	return c.write(name, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://%s", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: %s}}]
`, c.api, token))
}
