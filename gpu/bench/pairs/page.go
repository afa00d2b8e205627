//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
)

// page is host memory that all ranks of a scenario have: words by which they start together and tell each other what is copied.
type page struct {
	span  offheap.Span
	ranks int
	file  *os.File // of who made it
}

const line = 128

// newPage makes one for so many ranks.
func newPage(ranks int) (*page, error) {
	fd, err := unix.MemfdCreate("gpupairs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	p := &page{ranks: ranks, file: os.NewFile(uintptr(fd), "memory of the ranks")}
	if err := p.file.Truncate(pageSize(ranks)); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if p.span, err = offheap.MapFile(fd, 0, int(pageSize(ranks))); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func pageSize(ranks int) int64 {
	unit := os.Getpagesize()
	return int64((line*(ranks+2*ranks*ranks) + unit - 1) / unit * unit)
}

// path is where other processes of this user open it.
func (p *page) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.file.Fd()) }

func openPage(path string, ranks int) (*page, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &page{ranks: ranks}
	p.span, err = offheap.MapFile(int(f.Fd()), 0, int(pageSize(ranks)))
	return p, err
}

func (p *page) Close() error {
	err := p.span.Release()
	if p.file != nil {
		err = errors.Join(err, p.file.Close())
	}
	return err
}

// arrived counts the barriers that a rank has come to.
func (p *page) arrived(rank int) *uint64 { return p.word(rank) }

// told counts what a rank has copied for another, and taken what that has done with it.
func (p *page) told(from, to int) *uint64 { return p.word(p.ranks + from*p.ranks + to) }
func (p *page) taken(from, to int) *uint64 {
	return p.word(p.ranks + p.ranks*p.ranks + from*p.ranks + to)
}

// patience bounds what a rank waits for another.
const patience = time.Minute

// spins is how often a rank looks before it sleeps: rarely where who would have to act has no processor meanwhile.
var spins = map[bool]int{true: 1 << 12, false: 1 << 5}[runtime.NumCPU() > 8]

// wait spins a while, then sleeps between looks, until a word has reached v. It ends early when failed is closed.
func wait(w *uint64, v uint64, failed <-chan struct{}) error {
	var limit time.Time
	for n := 1; mmio.LoadAcquire64(w) < v; n++ {
		runtime.Gosched()
		if n%spins != 0 {
			continue
		}
		select {
		case <-failed:
			return errors.New("another rank has failed")
		default:
		}
		switch now := time.Now(); {
		case limit.IsZero():
			limit = now.Add(patience)
		case now.After(limit):
			return fmt.Errorf("another rank has not come for %v", patience)
		}
		time.Sleep(20 * time.Microsecond)
	}
	return nil
}
