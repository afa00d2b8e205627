package fifo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestSizes(t *testing.T) {
	for _, l := range allLayouts {
		for _, around := range []uint64{0, 1 << 31, 1 << 32, 1 << 63} {
			t.Run(fmt.Sprintf("%v/%#x", l, around), func(t *testing.T) {
				ring, copies := newSizes(t, l), newSizesStaging(t)
				for k := around - 300; k != around+300; k++ {
					want := make([]int, 1+k%MaxRecvs)
					for i := range want {
						want[i] = int(k%977)*3 + i
					}
					ring.Clear(k, len(want))
					got := slices.Repeat([]int{-1}, len(want))
					if err := ring.Read(k, want, got); err != nil || slices.Max(got) != 0 {
						t.Fatalf("message %#x before its sizes: %v, %v", k, got, err)
					}
					off, n, err := copies.Fill(k, want)
					if err != nil {
						t.Fatal(err)
					}
					copy(ring.Buffer().Bytes()[l.SizesAddr(0, k):], copies.Buffer().Bytes()[off:off+n])
					if err := ring.Read(k, want, got); err != nil || !slices.Equal(got, want) {
						t.Fatalf("message %#x: %v, %v, want %v", k, got, err, want)
					}
				}
			})
		}
	}
}

func TestSizesRefused(t *testing.T) {
	for _, l := range allLayouts {
		for _, tt := range []struct {
			size   int32
			posted int
			ok     bool
		}{{0, 0, true}, {1, 0, false}, {100, 100, true}, {101, 100, false}, {-1, 100, false}, {MaxSize, MaxSize, true}, {-1 << 31, MaxSize, false}} {
			s := newSizes(t, l)
			binary.NativeEndian.PutUint32(s.Buffer().Bytes()[l.SizesAddr(0, 9)+4:], uint32(tt.size))
			got := make([]int, 2)
			err := s.Read(9, []int{50, tt.posted}, got)
			if tt.ok && (err != nil || got[1] != int(tt.size)) || !tt.ok && !errors.Is(err, ErrPeer) {
				t.Errorf("%v: size %d of %d: %v, %v", l, tt.size, tt.posted, got, err)
			}
		}
	}
}

func TestSizesCalls(t *testing.T) {
	s, copies := newSizes(t, Layout225), newSizesStaging(t)
	nine := make([]int, 9)
	for name, err := range map[string]error{
		"read none":    s.Read(0, nil, nil),
		"read nine":    s.Read(0, nine, nine),
		"read unequal": s.Read(0, nine[:2], nine[:1]),
		"fill none":    last(copies.Fill(0, nil)),
		"fill nine":    last(copies.Fill(0, nine)),
		"negative":     last(copies.Fill(0, []int{1, -1})),
		"over 2 GiB":   last(copies.Fill(0, []int{MaxSize + 1})),
	} {
		if err == nil || errors.Is(err, ErrPeer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if copies.Buffer().Bytes()[0] != 0 {
		t.Error("a refused row was written")
	}
	s.Clear(0, -1)
	s.Clear(0, 99)
	if err := errors.Join(s.Close(), copies.Close(), s.Close(), copies.Close()); err != nil {
		t.Error(err)
	}
	s.Clear(0, 1)
	if err := s.Read(0, nine[:1], nine[:1]); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := last(copies.Fill(0, nine[:1])); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func last(_, _ int, err error) error { return err }
