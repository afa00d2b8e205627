package mlx5

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// resizes has the kernel resize the rig's CQ: the device completes late more requests,
// which the driver has not counted, and writes the mark.
func (r *rig) resizes(late int) *uapi.MLX5ResizeCQ {
	var told uapi.MLX5ResizeCQ
	r.k.Commands[uapi.CmdResizeCQ] = func(c *uverbstest.Call) error {
		copy(bytesOf(&told), c.In(uapi.AttrUHWIn))
		c.SetOut(uapi.AttrCoreOut, c.In(uapi.AttrCoreIn)[12:16])
		for range late {
			r.number()
		}
		if late >= 0 {
			r.complete(mlx5prm.CQEResizeCQ, 0, nil)
		}
		return nil
	}
	return &told
}

// number is a completion that carries its number.
func (r *rig) number() {
	n := r.pi
	r.complete(mlx5prm.CQERespSend, 0, func(e *mlx5prm.CQE) { e.ByteCnt.Set(n) })
}

// TestResize has rings of all turns, with completions before, meanwhile and afterwards.
func TestResize(t *testing.T) {
	for _, cqe := range []int{64, 128} {
		for _, depth := range []int{3, 15, 100} {
			for before := range uint32(20) {
				for waiting := range 4 {
					t.Run(fmt.Sprintf("%d/%d/%d/%d", cqe, depth, before, waiting), func(t *testing.T) {
						r := newRig(t, newFake(), cqe, driver.QPConfig{Cap: small})
						for range before {
							r.number()
							r.poll(1)
						}
						for range waiting {
							r.number()
						}
						late := min(1, 3-waiting)
						told := r.resizes(late)
						oldMem := r.cq.mem
						if err := r.cq.Resize(depth); err != nil {
							t.Fatal(err)
						}
						if r.cq.Depth() < depth || told.BufAddr != r.cq.mem.Addr() || int(told.CQESize) != cqe || oldMem.Retain() == nil {
							t.Errorf("depth %d, the kernel was told %+v", r.cq.Depth(), told)
						}
						var want []uint32
						for i := range uint32(waiting + late) {
							want = append(want, before+i)
						}
						for i := 0; len(want) < 3*r.cq.Depth(); i++ {
							want = append(want, r.pi)
							r.number()
							if i < r.cq.Depth()-waiting-late && i%3 != 0 {
								continue // the queue fills
							}
							for _, wc := range r.poll(2) {
								if wc.ByteLen != want[0] {
									t.Fatalf("completion %d, want %d", wc.ByteLen, want[0])
								}
								want = want[1:]
							}
							if len(want) == 0 {
								break
							}
						}
					})
				}
			}
		}
	}
}

func TestResizeThatFails(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	for range 5 {
		r.number()
	}
	told := r.resizes(0)
	for name, depth := range map[string]int{"none": 0, "less than none": -1, "more than the device has": 1<<22 + 1, "less than there is": 3} {
		if err := r.cq.Resize(depth); !errors.Is(err, syscall.EINVAL) || told.BufAddr != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.cq.Resize(5); err != nil || told.BufAddr != 0 {
		t.Errorf("the size that it has: %v, the kernel was told %+v", err, told)
	}
	for errno, is := range map[error]error{syscall.EINVAL: syscall.EINVAL, syscall.EOPNOTSUPP: driver.ErrNotSupported, syscall.ENOMEM: syscall.ENOMEM} {
		r.k.Commands[uapi.CmdResizeCQ] = func(*uverbstest.Call) error { return errno }
		if err := r.cq.Resize(20); !errors.Is(err, is) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if wcs := r.poll(8); len(wcs) != 5 || r.cq.Depth() != 7 {
		t.Errorf("%d completions of a queue that was not resized, depth %d", len(wcs), r.cq.Depth())
	}
}

// TestResizeWithoutMark keeps what is there and says that the rest is lost.
func TestResizeWithoutMark(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	r.number()
	r.resizes(-1)
	if err := r.cq.Resize(20); !errors.Is(err, syscall.EPROTO) {
		t.Error(err)
	}
	if wcs := r.poll(1); len(wcs) != 1 {
		t.Errorf("%+v", wcs)
	}
	if _, err := r.cq.Poll(make([]driver.WC, 1)); err != driver.ErrCQOverrun {
		t.Error(err)
	}
}
