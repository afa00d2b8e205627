package mlx5prm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"
	"unsafe"
)

// The bytes are what the inline functions of mlx5dv.h make (mlx5dv_set_ctrl_seg,
// mlx5dv_set_data_seg, mlx5dv_set_dgram_seg).
const (
	goldenCtrl = "00fffe0900abcd2a5a00008a12345678"
	goldenData = "000010000000abcdfedcba9876543210"
	goldenAV   = "1122334400000000800abcde35070042" + "0000000001020304050611400800abcd000102030405060708090a0b0c0d0e0f"
)

func goldenSegments() (c Ctrl, d Data, a AV) {
	c.SetHead(0xfffe, OpWriteImm, 0xabcd, 0x2a)
	c.Signature = 0x5a
	c.FmCeSe = CtrlCQUpdate | CtrlSolicited | CtrlFence
	c.Imm.Set(0x12345678)
	d.ByteCount.Set(4096)
	d.LKey.Set(0xabcd)
	d.Addr.Set(0xfedcba9876543210)
	a.QKey.Set(0x11223344)
	a.DQPDCT.Set(0xabcde | ExtendedUDAV)
	a.StatRateSL, a.FLMLID = 0x35, 7
	a.RLID.Set(0x42)
	a.RMAC = [6]uint8{1, 2, 3, 4, 5, 6}
	a.TClass, a.HopLimit = 0x11, 0x40
	a.GRHGIDFL.Set(0x0800abcd)
	for i := range a.RGID {
		a.RGID[i] = uint8(i)
	}
	return c, d, a
}

func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

func TestGoldenSegments(t *testing.T) {
	c, d, a := goldenSegments()
	for name, b := range map[string][2]string{
		"ctrl": {hex.EncodeToString(bytesOf(&c)), goldenCtrl},
		"data": {hex.EncodeToString(bytesOf(&d)), goldenData},
		"av":   {hex.EncodeToString(bytesOf(&a)), goldenAV},
	} {
		if b[0] != b[1] {
			t.Errorf("%s is %s, want %s", name, b[0], b[1])
		}
	}
	if c.Index() != 0xfffe || c.Opcode() != OpWriteImm || c.Opmod() != 0 || c.QPN() != 0xabcd || c.DS() != 0x2a {
		t.Errorf("read back %x %x %x %x %x", c.Index(), c.Opcode(), c.Opmod(), c.QPN(), c.DS())
	}
	var reg [8]byte
	binary.NativeEndian.PutUint64(reg[:], SendRegister(&c))
	if !bytes.Equal(reg[:], bytesOf(&c)[:8]) {
		t.Errorf("the doorbell is %x", reg)
	}
}

// TestGoldenIsTheHeaders makes the golden bytes anew.
func TestGoldenIsTheHeaders(t *testing.T) {
	out := runC(t, `#include <stdio.h>
#include <infiniband/mlx5dv.h>
static void show(void *p, int n) { for (int i = 0; i < n; i++) printf("%02x", ((unsigned char *)p)[i]); puts(""); }
int main(void) {
struct mlx5_wqe_ctrl_seg c = {0};
struct mlx5_wqe_data_seg d = {0};
struct mlx5_wqe_datagram_seg a = {0};
uint8_t mac[6] = {1,2,3,4,5,6}, gid[16];
for (int i = 0; i < 16; i++) gid[i] = i;
mlx5dv_set_ctrl_seg(&c, 0xfffe, MLX5_OPCODE_RDMA_WRITE_IMM, 0, 0xabcd, MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_SOLICITED | MLX5_WQE_CTRL_FENCE, 0x2a, 0x5a, htobe32(0x12345678));
mlx5dv_set_data_seg(&d, 4096, 0xabcd, 0xfedcba9876543210);
mlx5dv_set_dgram_seg(&a, 0x1122334400000000, 0xabcde, 1, 0x35, 7, 0x42, mac, 0x11, 0x40, 0x0800abcd, gid);
show(&c, sizeof c); show(&d, sizeof d); show(&a, sizeof a);
return 0; }
`)
	if want := goldenCtrl + "\n" + goldenData + "\n" + goldenAV + "\n"; out != want {
		t.Errorf("the header makes\n%swant\n%s", out, want)
	}
}

func TestCQEFields(t *testing.T) {
	b := make([]byte, 64)
	b[23] = 7
	c := (*CQE)(unsafe.Pointer(unsafe.SliceData(b)))
	c.SOpDropQPN.Set(OpRead<<24 | 0x123456)
	c.OpOwn = CQEReqErr<<4 | SolicitedEvent | OwnerMask
	c.FlagsRQPN.Set(2<<28 | 5<<24 | 0xbadbad)
	if c.Opcode() != CQEReqErr || c.Owner() != 1 || c.QPN() != 0x123456 || c.SendOpcode() != OpRead ||
		c.GRH() != 2 || c.SL() != 5 || c.SrcQP() != 0xbadbad || c.SLID.Get() != 7 {
		t.Errorf("%+v", c)
	}
	e := (*ErrCQE)(unsafe.Pointer(c))
	b[54], b[55] = 0x87, SyndromeRNRRetryExcErr
	if e.VendorErrSynd != 0x87 || e.Syndrome != SyndromeRNRRetryExcErr || e.SWQEOpcodeQPN.Get() != OpRead<<24|0x123456 || e.OpOwn != c.OpOwn {
		t.Errorf("%+v", e)
	}
}

// TestValidOverTurns follows the owner bit of each entry over several turns, past
// the width of the consumer index.
func TestValidOverTurns(t *testing.T) {
	const n = 8
	ring := [n]uint8{}
	for i := range ring {
		ring[i] = Initial
	}
	for start := uint32(0xffffffff - 3*n + 1); start != 5*n; start++ {
		slot := start & (n - 1)
		if Valid(ring[slot], start, n) {
			t.Fatalf("entry %#x is valid before it was written", start)
		}
		owner := uint8(0)
		if start&n != 0 {
			owner = OwnerMask
		}
		ring[slot] = CQEReq<<4 | owner
		if !Valid(ring[slot], start, n) {
			t.Fatalf("entry %#x is not valid", start)
		}
	}
}

func TestArm(t *testing.T) {
	for _, c := range []struct{ sn, flags, ci, want uint32 }{
		{0, 0, 0, 0}, {1, 0, 5, 0x10000005}, {3, ArmSolicited, 0x1ffffff, 0x31ffffff}, {4, 0, 1, 1}, {7, 0, 0x1000000, 0x30000000},
	} {
		if got := ArmWord(c.sn, c.flags, c.ci); got != c.want {
			t.Errorf("ArmWord(%d, %#x, %#x) = %#x, want %#x", c.sn, c.flags, c.ci, got, c.want)
		}
	}
	var reg [8]byte
	binary.NativeEndian.PutUint64(reg[:], ArmRegister(0x31000007, 0x1234))
	if hex.EncodeToString(reg[:]) != "3100000700001234" {
		t.Errorf("the register is %x", reg)
	}
}
