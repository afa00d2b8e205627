package gputest

import "github.com/purerdma/purerdma/gpu"

// Machine is what a Kernel can do. Addresses that are not there give an error,
// which the kernel returns.
type Machine struct {
	d      *Driver
	device int
	ended  <-chan struct{}
}

// Bytes is the n bytes at p, which lie in one allocation or registration.
func (m Machine) Bytes(p gpu.Ptr, n int) ([]byte, error) {
	if sp, ok := m.d.space.find(uint64(p)); ok {
		if at := uint64(p) - sp.at; at+uint64(n) <= uint64(len(sp.bytes)) {
			return sp.bytes[at : at+uint64(n) : at+uint64(n)], nil
		}
	}
	return nil, illegal("kernel", m.device, uint64(p), n)
}

// Load is an acquiring load of 64 bits, Store a releasing one.
func (m Machine) Load(p gpu.Ptr) (uint64, error) {
	b, err := m.Bytes(p, 8)
	if err != nil {
		return 0, err
	}
	return load64(b), nil
}

// Store is a releasing store of 64 bits.
func (m Machine) Store(p gpu.Ptr, v uint64) error {
	b, err := m.Bytes(p, 8)
	if err != nil {
		return err
	}
	store64(b, v)
	return nil
}

// Ended is closed when the context is: a kernel that waits gives up then.
func (m Machine) Ended() <-chan struct{} { return m.ended }

func illegal(call string, device int, at uint64, n int) error {
	return &gpu.Error{Call: call, Name: "ILLEGAL_ADDRESS", Code: 700, Device: device, Cause: gpu.ErrBroken,
		Detail: detail("%d bytes at %#x", n, at)}
}
