package tracer

import (
	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model/internal/stores"
	"golang.org/x/sys/unix"
)

// registers are the general ones of a task that is stopped.
type registers struct{ unix.PtraceRegsArm64 }

func registersOf(tid int) (*registers, error) {
	r := &registers{}
	return r, unix.PtraceGetRegSetArm64(tid, unix.NT_PRSTATUS, &r.PtraceRegsArm64)
}

func (r *registers) store(tid int) error {
	return unix.PtraceSetRegSetArm64(tid, unix.NT_PRSTATUS, &r.PtraceRegsArm64)
}

func (r *registers) pc() uint64 { return r.Pc }
func (r *registers) skip(n int) { r.Pc += uint64(n) }

func (r *registers) arguments() [6]*uint64 {
	return [6]*uint64{&r.Regs[0], &r.Regs[1], &r.Regs[2], &r.Regs[3], &r.Regs[4], &r.Regs[5]}
}

// fpsimd is struct user_fpsimd_state.
type fpsimd struct {
	v [32][16]byte
	_ [16]byte
}

func (r *registers) decode(tid int, code []byte) (stores.Store, error) {
	var f fpsimd
	if err := vectors(tid, &f); err != nil {
		return stores.Store{}, err
	}
	from := stores.ARM64{General: r.Regs, Vector: f.v}
	return from.Decode(code)
}
