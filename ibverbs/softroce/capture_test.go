package softroce

import (
	"bytes"
	"io"
	"net/netip"
	"testing"
)

type captureFile struct {
	bytes.Buffer
	closed bool
}

func (f *captureFile) Close() error { f.closed = true; return nil }

// TestCapture sees that the option reaches the link; what the file holds is tested
// there.
func TestCapture(t *testing.T) {
	var f captureFile
	drv := New(Config{Addrs: []netip.Addr{addrA}, Network: OnSim(NewSim(SimConfig{})),
		Capture: func(string) (io.WriteCloser, error) { return &f, nil }})
	devices, _ := drv.Devices()
	ctx, err := devices[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := ctx.Close(); err != nil {
		t.Fatal(err)
	}
	if !f.closed || f.Len() < 28 || !bytes.HasPrefix(f.Bytes(), []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		t.Errorf("closed %v, %d bytes: %x", f.closed, f.Len(), f.Bytes())
	}
}
