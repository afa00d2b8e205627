package tracer

import (
	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model/internal/stores"
	"golang.org/x/sys/unix"
)

// registers are the general ones of a task that is stopped.
type registers struct{ unix.PtraceRegs }

func registersOf(tid int) (*registers, error) {
	r := &registers{}
	return r, unix.PtraceGetRegs(tid, &r.PtraceRegs)
}

func (r *registers) store(tid int) error { return unix.PtraceSetRegs(tid, &r.PtraceRegs) }

func (r *registers) pc() uint64 { return r.Rip }
func (r *registers) skip(n int) { r.Rip += uint64(n) }

func (r *registers) arguments() [6]*uint64 {
	return [6]*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9}
}

// fxsave is struct user_fpregs_struct.
type fxsave struct {
	_   [160]byte
	xmm [16][16]byte
	_   [96]byte
}

func (r *registers) decode(tid int, code []byte) (stores.Store, error) {
	var f fxsave
	if err := vectors(tid, &f); err != nil {
		return stores.Store{}, err
	}
	from := stores.AMD64{
		General: [16]uint64{r.Rax, r.Rcx, r.Rdx, r.Rbx, r.Rsp, r.Rbp, r.Rsi, r.Rdi, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15},
		Vector:  f.xmm,
	}
	return from.Decode(code)
}
