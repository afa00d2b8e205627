package mlx5model

import (
	"fmt"

	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// umr is what an entry that changes a key carries.
type umr struct {
	mlx5prm.UMRCtrl
	mlx5prm.MkeyContext
	list mlx5prm.KLM // the only piece of a window, where there is one
}

// klmsRoom is what a list of up to four pieces takes of an entry.
const klmsRoom = 64

// frees says whether the entry makes a window free, rather than bind it.
func (u *umr) frees() bool { return u.Free&mlx5prm.MkeyFree != 0 }

func (u *umr) masked(bits uint64) bool { return u.MkeyMask.Get()&bits == bits }

// parse takes what is behind the head of an entry of length ds.
func (u *umr) parse(b []byte, ds int) error {
	const head = 48 + 64
	want := head
	if len(b) >= head {
		b = b[copy(bytesOf(&u.UMRCtrl), b):]
		b = b[copy(bytesOf(&u.MkeyContext), b):]
		if !u.frees() {
			want += klmsRoom
		}
	}
	switch {
	case want != (ds-1)*mlx5prm.DSUnit:
		return fmt.Errorf("a change of a key in an entry of length %d", ds)
	case u.Flags&mlx5prm.UMRInline == 0, !u.masked(mlx5prm.MkeyMaskFree | mlx5prm.MkeyMaskMkey):
		return fmt.Errorf("a change of a key with flags %#x and mask %#x", u.Flags, u.MkeyMask.Get())
	}
	if u.frees() {
		return nil
	}
	copy(bytesOf(&u.list), b)
	switch {
	case u.KLMOctowords.Get() != klmsRoom/mlx5prm.DSUnit:
		return fmt.Errorf("a window of a list of %d times 16 bytes", u.KLMOctowords.Get())
	case !u.masked(mlx5prm.MkeyMaskLen | mlx5prm.MkeyMaskStartAddr | mlx5prm.MkeyMaskLocalWrite |
		mlx5prm.MkeyMaskRemoteRead | mlx5prm.MkeyMaskRemoteWrite | mlx5prm.MkeyMaskAtomic):
		return fmt.Errorf("a bind with the mask %#x", u.MkeyMask.Get())
	case uint64(u.list.ByteCount.Get()) != u.Len.Get():
		return fmt.Errorf("a window of %d bytes with a list of %d", u.Len.Get(), u.list.ByteCount.Get())
	}
	return nil
}

// change executes an entry that binds or frees a window, and is the syndrome of a
// refusal. Of the key that it names the upper 24 bits count. That an MR covers the window
// is not looked at before something goes through it.
func (q *qp) change(e *entry) uint8 {
	u := &e.umr
	w := q.c.m.mws[index(e.Imm.Get())]
	if w == nil || w.pd != q.pd {
		return mlx5prm.SyndromeMWBindErr
	}
	if w.typ == mwType2 {
		check := uint8(mlx5prm.UMRCheckFree)
		if u.frees() {
			check = mlx5prm.UMRCheckQPN
		}
		if u.Flags&check == 0 || !u.masked(mlx5prm.MkeyMaskQPN) {
			q.c.m.faultf("queue pair %#x: entry %d changes a window of type 2 with flags %#x and mask %#x", q.num, e.index, u.Flags, u.MkeyMask.Get())
		}
	}
	switch {
	case u.Flags&mlx5prm.UMRCheckFree != 0 && !w.free, u.Flags&mlx5prm.UMRCheckQPN != 0 && w.qpn != q.num:
		return mlx5prm.SyndromeMWBindErr
	}
	word := u.QPNMkey.Get()
	w.free, w.key = u.frees(), w.key&^0xff|word&0xff
	if u.masked(mlx5prm.MkeyMaskQPN) {
		w.qpn = word >> 8
	}
	if w.free {
		return 0
	}
	w.start, w.length, w.memory, w.access = u.StartAddr.Get(), u.Len.Get(), u.list, 0
	for bit, right := range map[uint8]uint32{
		mlx5prm.MkeyAccessLocalWrite: localWrite, mlx5prm.MkeyAccessRemoteWrite: remoteWrite,
		mlx5prm.MkeyAccessRemoteRead: remoteRead, mlx5prm.MkeyAccessAtomic: remoteAtomic,
	} {
		if u.AccessFlags&bit != 0 {
			w.access |= right
		}
	}
	return 0
}
