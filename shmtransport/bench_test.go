//go:build linux

package shmtransport

import "testing"

// What a message costs in instructions: both ends in one goroutine, everything in the first-level cache.
func BenchmarkSendRecv(b *testing.B) {
	for _, n := range []int{8, 4096} {
		b.Run(byteName(n), func(b *testing.B) {
			x, y := pair(b)
			m := make([]byte, n)
			for b.Loop() {
				if err := x.Send(b.Context(), m); err != nil {
					b.Fatal(err)
				}
				if _, err := y.Recv(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func byteName(n int) string {
	if n < 1024 {
		return "8 B"
	}
	return "4 KiB"
}
