// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package serve

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// certificates gives the certificate for TLS: that of a directory as it is now, or one
// that the agent signed itself.
type certificates struct {
	dir string

	mu sync.Mutex
	// cert was made of the texts.
	cert            *tls.Certificate
	certPEM, keyPEM []byte
}

// Files in a directory with a certificate, as a Secret of the type kubernetes.io/tls has
// them.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
)

// newCertificates reads the certificate of a directory, or makes one if dir is empty.
func newCertificates(dir string) (*certificates, error) {
	c := &certificates{dir: dir}
	if dir == "" {
		cert, err := selfSigned()
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		c.cert = cert
		return c, nil
	}
	_, err := c.get(nil)
	return c, err
}

// selfSignedLives is above the longest time that an agent runs.
const selfSignedLives = 10 * 365 * 24 * time.Hour

func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "podweir"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedLives),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"podweir"}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// get is [tls.Config.GetCertificate]. A certificate that cannot be read any more is kept.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dir == "" {
		return c.cert, nil
	}
	err := c.read()
	if c.cert == nil {
		return nil, fmt.Errorf("certificate in %s: %w", c.dir, err)
	}
	return c.cert, nil
}

func (c *certificates) read() error {
	certPEM, err := os.ReadFile(filepath.Join(c.dir, certFile))
	if err != nil {
		return err
	}
	keyPEM, err := os.ReadFile(filepath.Join(c.dir, keyFile))
	if err != nil {
		return err
	}
	if c.cert != nil && bytes.Equal(certPEM, c.certPEM) && bytes.Equal(keyPEM, c.keyPEM) {
		return nil
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return err
	}
	c.cert, c.certPEM, c.keyPEM = &cert, certPEM, keyPEM
	return nil
}
