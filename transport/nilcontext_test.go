package transport_test

import (
	"testing"

	"github.com/purerdma/purerdma/internal/niltest"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
)

func TestNilContext(t *testing.T) {
	cfg := transport.Config{Job: bootstrap.InMemory(1, nil)[0]}
	c, err := transport.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	b := make([]byte, 1)
	niltest.Refuses(t, map[string]func() error{
		"New":     func() error { _, err := transport.New(niltest.Context, cfg); return err },
		"Connect": func() error { return c.Connect(niltest.Context, transport.Links{}) },
		"Send":    func() error { return c.Send(niltest.Context, 0, b) },
		"Recv":    func() error { _, err := c.Recv(niltest.Context, 0, b); return err },
		"Group": func() error {
			g := c.NewGroup()
			g.Recv(0, b)
			return g.Wait(niltest.Context)
		},
	})
}
