package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// TLS authenticates and encrypts with TLS 1.3: both ends show a certificate that an authority of the job has signed. certificate is
// asked at each handshake, so that it may be renewed; name is what every certificate of the job is issued for.
func TLS(certificate func() (*tls.Certificate, error), authorities *x509.CertPool, name string) (Wrap, error) {
	if certificate == nil || authorities == nil || name == "" {
		return nil, errors.New("secure: TLS needs a certificate, the authorities and the name in the job's certificates")
	}
	config := &tls.Config{
		MinVersion:           tls.VersionTLS13,
		RootCAs:              authorities,
		ServerName:           name,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate() },
		// The client's certificate is checked like the server's, name included: an authority may serve others too.
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			return verify(s.PeerCertificates, authorities, name)
		},
	}
	return func(ctx context.Context, c net.Conn, server bool) (net.Conn, error) {
		s := tls.Client(c, config)
		if server {
			s = tls.Server(c, config)
		}
		if err := s.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("secure: TLS with %s: %w", c.RemoteAddr(), err)
		}
		return s, nil
	}, nil
}

func verify(chain []*x509.Certificate, authorities *x509.CertPool, name string) error {
	if len(chain) == 0 {
		return errors.New("the peer showed no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: authorities, Intermediates: between, DNSName: name,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	return err
}

// TLSFromFiles is TLS with PEM files: the process's certificate and key, and the authorities. The certificate is read anew at each
// handshake.
func TLSFromFiles(certificate, key, authorities, name string) (Wrap, error) {
	load := func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(certificate, key)
		return &c, err
	}
	if _, err := load(); err != nil {
		return nil, fmt.Errorf("secure: certificate %s with key %s: %w", certificate, key, err)
	}
	pem, err := os.ReadFile(authorities)
	if err != nil {
		return nil, fmt.Errorf("secure: authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("secure: authorities: no certificate in %s", authorities)
	}
	return TLS(load, pool, name)
}
