//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/purerdma/purerdma/transport/driver"
)

// sizes are those of the messages that are checked.
func sizes(most int) []int {
	all := []int{0, 1, 7, 8, 4096, 64<<10 + 1, 1<<20 + 1, 64 << 20, most}
	all = slices.DeleteFunc(all, func(n int) bool { return n > most })
	slices.Sort(all)
	return slices.Compact(all)
}

// mostLL is the longest message that lines carry here: they are for short ones.
const mostLL = 4 << 20

// how is a way of moving a message, by name.
type how struct {
	name     string
	most     int
	kernels  bool
	protocol driver.Protocol
}

var hows = []how{{"SIMPLE", 1 << 62, true, driver.Simple}, {"LL", mostLL, true, driver.LL}, {"copies", 1 << 62, false, driver.Simple}}

// check moves messages of all sizes between all ranks, in rounds: in each a rank sends to another one and receives from a third.
func (r *rank) check() error {
	for d := 1; d < r.n; d++ {
		to, from := (r.me+d)%r.n, (r.me-d+r.n)%r.n
		for i, n := range sizes(r.Most) {
			for _, h := range hows {
				if n > h.most || h.kernels && !r.kernels {
					continue
				}
				if err := r.checked(to, from, n, i, h); err != nil {
					return fmt.Errorf("%d bytes from rank %d to %d by %s: %w", n, from, r.me, h.name, err)
				}
				r.Checked++
			}
		}
	}
	return nil
}

// shift is where in the text a message begins, unaligned where it is short.
func shift(from, to, i, n int) int {
	at := (i*4099 + from*257 + to*31) % slack
	if n > 1<<20 {
		at &^= 15
	}
	return at
}

// guard is bytes behind a message that nobody may write.
const guard = 64

func (r *rank) checked(to, from, n, i int, h how) error {
	if err := errors.Join(r.g.Fill(r.dst, 0xee, n+guard, r.b), r.g.Synchronize(r.b)); err != nil {
		return err
	}
	if err := r.exchange(to, from, n, shift(r.me, to, i, n), h); err != nil {
		return err
	}
	if err := errors.Join(r.g.Copy(r.pinned, r.dst, n+guard, r.b), r.g.Synchronize(r.b)); err != nil {
		return err
	}
	got, at := r.host.Bytes(), shift(from, r.me, i, n)
	if !bytes.Equal(got[:n], r.text[at:at+n]) {
		for j := range n {
			if got[j] != r.text[at+j] {
				return fmt.Errorf("byte %d is %#x, want %#x", j, got[j], r.text[at+j])
			}
		}
	}
	for j, v := range got[n : n+guard] {
		if v != 0xee {
			return fmt.Errorf("byte %d behind the message was written", j)
		}
	}
	return nil
}

// exchange sends n bytes of the text from at on, and receives as many.
func (r *rank) exchange(to, from, n, at int, h how) error {
	if h.kernels {
		return errors.Join(r.send(to, h.protocol, r.src+ptr(at), n), r.recv(from, h.protocol, r.dst, n), r.g.Synchronize(r.a), r.g.Synchronize(r.b))
	}
	now := func() error { return nil }
	sent := make(chan error, 1)
	go func() { sent <- r.carry(carry{peer: to, send: true, data: r.src + ptr(at), n: n, count: 1}, now) }()
	return errors.Join(r.carry(carry{peer: from, data: r.dst, n: n, count: 1}, now), <-sent)
}
