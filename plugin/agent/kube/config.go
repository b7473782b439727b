// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// ErrNotInCluster means that the environment names no API server, as that of a pod does.
var ErrNotInCluster = errors.New("KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set: outside of a pod set both, and give --credentials")

// Config is how to reach an API server.
type Config struct {
	// Server is its URL.
	Server string
	// Token returns the bearer token, empty for none. It is called for each
	// request: the kubelet replaces the token of a pod about every hour.
	Token func() (string, error)
	// CA returns the certificate authorities in PEM form, none for the
	// system's.
	CA func() ([]byte, error)
}

// ServiceAccountDir is where the kubelet puts the credentials of a pod.
const ServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster returns the configuration of a pod, from its environment and from the
// credentials of its service account in dir, usually [ServiceAccountDir].
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
