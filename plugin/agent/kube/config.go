// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"crypto/tls"
	stdbase64 "encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ErrNotInCluster means that the process is not in a pod with a service account.
var ErrNotInCluster = errors.New("not in a pod of a cluster (KUBERNETES_SERVICE_HOST is not set): give --kubeconfig")

// Config is how to reach an API server.
type Config struct {
	// Server is its URL.
	Server string
	// ServerName is the name in its certificate, empty for the host of the URL.
	ServerName string
	// Token returns the bearer token, empty for none. It is called for each
	// request: the kubelet replaces the token of a pod about every hour.
	Token func() (string, error)
	// CA returns the certificate authorities in PEM form, none for the
	// system's.
	CA func() ([]byte, error)
	// Certificates are the client's.
	Certificates []tls.Certificate
	// Insecure does not check the server's certificate.
	Insecure bool
}

// ServiceAccountDir is where the kubelet puts the credentials of a pod.
const ServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster returns the configuration of a pod, from its environment and from
// its service account in dir, usually [ServiceAccountDir].
func InCluster(dir string) (*Config, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, ErrNotInCluster
	}
	return &Config{
		Server: "https://" + net.JoinHostPort(host, port),
		Token:  fromFile(filepath.Join(dir, "token")),
		CA:     func() ([]byte, error) { return os.ReadFile(filepath.Join(dir, "ca.crt")) },
	}, nil
}

func fromFile(path string) func() (string, error) {
	return func() (string, error) {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
}

// kubeconfig is the part of a kubeconfig file that is read.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string  `yaml:"name"`
		Cluster cluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User user   `yaml:"user"`
	} `yaml:"users"`
}

type cluster struct {
	Server                   string `yaml:"server"`
	TLSServerName            string `yaml:"tls-server-name"`
	InsecureSkipTLSVerify    bool   `yaml:"insecure-skip-tls-verify"`
	CertificateAuthority     string `yaml:"certificate-authority"`
	CertificateAuthorityData base64 `yaml:"certificate-authority-data"`
}

type user struct {
	Token                 string    `yaml:"token"`
	TokenFile             string    `yaml:"tokenFile"`
	ClientCertificate     string    `yaml:"client-certificate"`
	ClientCertificateData base64    `yaml:"client-certificate-data"`
	ClientKey             string    `yaml:"client-key"`
	ClientKeyData         base64    `yaml:"client-key-data"`
	Username              string    `yaml:"username"`
	Exec                  yaml.Node `yaml:"exec"`
	AuthProvider          yaml.Node `yaml:"auth-provider"`
}

// FromKubeconfig reads the current context of a kubeconfig file. Tokens and
// client certificates are understood; what starts a program (exec,
// auth-provider) or has a password is an error.
func FromKubeconfig(path string) (*Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	var k kubeconfig
	if err := yaml.Unmarshal(b, &k); err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	c, u, err := k.current()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	if err := u.supported(); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	conf := &Config{
		Server: c.Server, ServerName: c.TLSServerName, Insecure: c.InsecureSkipTLSVerify,
		Token: func() (string, error) { return u.Token, nil },
		CA:    func() ([]byte, error) { return either(dir, c.CertificateAuthorityData, c.CertificateAuthority) },
	}
	if u.Token == "" && u.TokenFile != "" {
		conf.Token = fromFile(beside(dir, u.TokenFile))
	}
	cert, err := either(dir, u.ClientCertificateData, u.ClientCertificate)
	if err != nil || cert == nil {
		return conf, err
	}
	key, err := either(dir, u.ClientKeyData, u.ClientKey)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("client certificate in kubeconfig %s: %w", path, err)
	}
	conf.Certificates = []tls.Certificate{pair}
	return conf, nil
}

func (k *kubeconfig) current() (*cluster, *user, error) {
	for i := range k.Contexts {
		if k.Contexts[i].Name != k.CurrentContext {
			continue
		}
		want := k.Contexts[i].Context
		var c *cluster
		u := &user{}
		for j := range k.Clusters {
			if k.Clusters[j].Name == want.Cluster {
				c = &k.Clusters[j].Cluster
			}
		}
		for j := range k.Users {
			if k.Users[j].Name == want.User {
				u = &k.Users[j].User
			}
		}
		if c == nil {
			return nil, nil, fmt.Errorf("context %q names cluster %q, which is not there", k.CurrentContext, want.Cluster)
		}
		return c, u, nil
	}
	return nil, nil, fmt.Errorf("current-context %q is not there", k.CurrentContext)
}

func (u *user) supported() error {
	for name, present := range map[string]bool{
		"exec": !u.Exec.IsZero(), "auth-provider": !u.AuthProvider.IsZero(), "username": u.Username != "",
	} {
		if present {
			return fmt.Errorf("%s is not accepted, want token, tokenFile or client-certificate", name)
		}
	}
	return nil
}

// either returns data, or what is in the file if there is no data; nil if
// neither is given.
func either(dir string, data base64, path string) ([]byte, error) {
	if len(data) > 0 || path == "" {
		return data, nil
	}
	return os.ReadFile(beside(dir, path))
}

// beside resolves a path of a kubeconfig, which is relative to the file.
func beside(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// base64 is bytes that YAML holds in base64.
type base64 []byte

// UnmarshalYAML implements [yaml.Unmarshaler].
func (b *base64) UnmarshalYAML(n *yaml.Node) error {
	decoded, err := stdbase64.StdEncoding.DecodeString(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*b = decoded
	return nil
}
