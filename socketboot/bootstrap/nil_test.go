package bootstrap

import (
	"testing"

	"github.com/purerdma/purerdma/internal/niltest"
)

func TestNilContext(t *testing.T) {
	niltest.Refuses(t, map[string]func() error{
		"Join":    func() error { _, err := Join(niltest.Context, Config{Size: 1}); return err },
		"NewRoot": func() error { _, err := NewRoot(niltest.Context, RootConfig{}); return err },
	})
	m, err := Join(t.Context(), Config{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range []Job{m, InMemory(1, nil)[0]} {
		niltest.Refuses(t, map[string]func() error{
			"AllGather": func() error { _, err := job.AllGather(niltest.Context, nil); return err },
			"Barrier":   func() error { return job.Barrier(niltest.Context) },
			"Send":      func() error { return job.Send(niltest.Context, 0, 1, nil) },
			"Recv":      func() error { _, err := job.Recv(niltest.Context, 0, 1); return err },
		})
		if err := job.Close(); err != nil {
			t.Error(err)
		}
	}
}
