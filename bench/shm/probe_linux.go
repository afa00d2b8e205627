package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/internal/cpu"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
)

// line is two cache lines between which a number goes round: there is one writer for each.
type line struct {
	span        offheap.Span
	there, back *uint64
	last        uint32
	windows     []float64
}

const (
	lineBytes     = 4096
	probeWindows  = 20
	probePerRound = 200
	probeLimit    = 5 * time.Second
)

// newLine makes the memory of a probe; the other process opens the file as /proc/PID/fd/N.
func newLine() (l *line, file *os.File, err error) {
	fd, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	file = os.NewFile(uintptr(fd), "probe")
	if err := file.Truncate(lineBytes); err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	l, err = openLine(file)
	return l, file, err
}

func openLine(file *os.File) (*line, error) {
	span, err := offheap.MapFile(int(file.Fd()), 0, lineBytes)
	if err != nil {
		return nil, err
	}
	return &line{span: span, there: wordAt(span, 0), back: wordAt(span, 1024), windows: make([]float64, probeWindows)}, nil
}

// ping makes the round trips of a probe, as the one who begins, and returns the median of a round trip in seconds.
func (l *line) ping() (float64, error) {
	for w := range l.windows {
		begun := time.Now()
		for range probePerRound {
			l.last++
			mmio.StoreRelease64(l.there, uint64(l.last)<<32)
			if err := await(l.back, l.last); err != nil {
				return 0, err
			}
		}
		l.windows[w] = time.Since(begun).Seconds() / probePerRound
	}
	return stats.Median(l.windows), nil
}

// pong is the other end of ping.
func (l *line) pong() error {
	for range probeWindows * probePerRound {
		l.last++
		if err := await(l.there, l.last); err != nil {
			return err
		}
		mmio.StoreRelease64(l.back, uint64(l.last)<<32)
	}
	return nil
}

func await(p *uint64, want uint32) error {
	const looks = 10_000
	if uint32(cpu.PollHigh(p, want, looks)>>32) == want {
		return nil
	}
	for end := time.Now().Add(probeLimit); time.Now().Before(end); {
		if uint32(cpu.PollHigh(p, want, looks)>>32) == want {
			return nil
		}
	}
	return fmt.Errorf("the other end did not answer a probe within %v", probeLimit)
}

// copies is the time of one copy, in seconds.
type copies struct{ from, to []byte }

func newCopies(size int) copies {
	return copies{make([]byte, size), make([]byte, size)}
}

// time is the median of windows that together take about a millisecond.
func (c copies) time() float64 {
	const windows, step = 9, 512 << 10
	per := max(1, (128<<10)/len(c.from))
	var took [windows]float64
	for w := range took {
		begun := time.Now()
		for range per {
			for off := 0; off < len(c.from); off += step {
				end := min(off+step, len(c.from))
				copy(c.to[off:end], c.from[off:end])
			}
		}
		took[w] = time.Since(begun).Seconds() / float64(per)
	}
	return stats.Median(took[:])
}
