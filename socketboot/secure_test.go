package socketboot

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"os"
	"testing"
	"time"
)

// withTLS is how a program adds TLS: both ends show a certificate of the job's authority, here their only one.
func withTLS(cert tls.Certificate, pool *x509.CertPool) func(context.Context, net.Conn, bool) (net.Conn, error) {
	config := &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool, ServerName: "job",
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
	return func(ctx context.Context, c net.Conn, server bool) (net.Conn, error) {
		s := tls.Client(c, config)
		if server {
			s = tls.Server(c, config)
		}
		return s, s.HandshakeContext(ctx)
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"job"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestSecure(t *testing.T) {
	cert, pool := selfSigned(t)
	var d drops
	n := local
	n.Secure = withTLS(cert, pool)
	n.Dropped = d.add
	n.Deadlines.Hello = 200 * time.Millisecond
	o := newOwners(t)
	l := serve(t, n, o)

	// Peers without TLS, with another certificate, and a silent one.
	h := l.Handle()
	plain := n
	plain.Secure = nil
	if _, err := plain.Connect(t.Context(), h, connector(t)); err == nil {
		t.Error("plain peer was served")
	}
	strange := n
	otherCert, _ := selfSigned(t)
	strange.Secure = withTLS(otherCert, pool)
	if _, err := strange.Connect(t.Context(), h, connector(t)); err == nil {
		t.Error("stranger was served")
	}
	c, err := net.Dial("tcp", h.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Read(make([]byte, 1))
	for len(d.reasons()) < 3 {
		time.Sleep(time.Millisecond)
	}
	if err := d.reasons()[2]; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silent peer: %v", err)
	}
	if len(o.all()) != 0 {
		t.Error("an owner was asked for")
	}

	conn, acc := pair(t, n, l)
	conn.Close()
	if <-acc.Gone(); !errors.Is(acc.Err(), ErrPeerClosed) {
		t.Errorf("got %v", acc.Err())
	}
}
