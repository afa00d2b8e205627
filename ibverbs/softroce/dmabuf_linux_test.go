package softroce

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

func TestDMABuf(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		page := os.Getpagesize()
		f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
		r.must(err)
		defer f.Close()
		r.must(f.Truncate(int64(3 * page)))
		read, write, err := os.Pipe()
		r.must(err)
		defer read.Close()
		defer write.Close()
		fd, pd := int(f.Fd()), r.b.q.pd
		const rights = driver.LocalWrite | driver.RemoteWrite
		at := func(off, n uint64) driver.DMABuf {
			return driver.DMABuf{FD: fd, Offset: off, Length: n, IOVA: 1<<40 + off}
		}
		for name, c := range map[string]struct {
			b    driver.DMABuf
			want error
		}{
			"no descriptor":     {driver.DMABuf{FD: -1, Length: 1}, syscall.EBADF},
			"closed descriptor": {driver.DMABuf{FD: 1 << 20, Length: 1}, syscall.EBADF},
			"no length":         {at(0, 0), syscall.EINVAL},
			"beyond the end":    {at(uint64(page), uint64(2*page+1)), syscall.EINVAL},
			"too long":          {at(0, math.MaxUint64), syscall.EINVAL},
			"offset wraps":      {at(math.MaxUint64-5, 4), syscall.EINVAL},
			"other in-page":     {driver.DMABuf{FD: fd, Offset: 1, Length: 1}, syscall.EINVAL},
			"cannot be mapped":  {driver.DMABuf{FD: int(read.Fd()), Length: 1}, driver.ErrNotSupported},
		} {
			if m, err := pd.RegDMABuf(c.b, rights); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, %v; want %v", name, m, err, c.want)
			}
		}

		b := at(uint64(page)-3, 10)
		m, err := pd.RegDMABuf(b, rights)
		r.must(err)
		_, key := m.Keys()
		copy(r.a.bytes(0, 10), "0123456789")
		wr := r.a.write(1, 0, 10)
		wr.Remote = driver.Remote{Addr: b.IOVA, RKey: key}
		r.a.post(wr)
		r.a.one(1, driver.Success)
		got := make([]byte, 12)
		_, err = f.ReadAt(got, int64(page)-4)
		r.must(err)
		if string(got) != "\x000123456789\x00" {
			t.Errorf("the file has %q", got)
		}
		wr.Remote.Addr++
		r.a.post(wr)
		r.a.one(1, driver.RemAccessErr)
		r.must(m.Close())
	})
}
