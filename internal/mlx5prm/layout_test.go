package mlx5prm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// layouts is every structure here, with the one of mlx5dv.h and its members in
// order. Without a name it is in no public header.
var layouts = []struct {
	v            any
	name, fields string
	size         uintptr
}{
	{Ctrl{}, "mlx5_wqe_ctrl_seg", "opmod_idx_opcode qpn_ds signature dci_stream_channel_id fm_ce_se imm", 16},
	{RAddr{}, "mlx5_wqe_raddr_seg", "raddr rkey reserved", 16},
	{Atomic{}, "mlx5_wqe_atomic_seg", "swap_add compare", 16},
	{Data{}, "mlx5_wqe_data_seg", "byte_count lkey addr", 16},
	{Inline{}, "mlx5_wqe_inl_data_seg", "byte_count", 4},
	{AV{}, "mlx5_wqe_av", "key.qkey.qkey key.qkey.reserved dqp_dct stat_rate_sl fl_mlid rlid reserved0 rmac tclass hop_limit grh_gid_fl rgid", 48},
	{UMRCtrl{}, "mlx5_wqe_umr_ctrl_seg", "flags rsvd0 klm_octowords translation_offset mkey_mask rsvd1", 48},
	{MkeyContext{}, "mlx5_wqe_mkey_context_seg", "free reserved1 access_flags sf qpn_mkey reserved2 flags_pd start_addr len bsf_octword_size reserved3 translations_octword_size reserved4 log_page_size reserved", 64},
	{KLM{}, "mlx5_wqe_umr_klm_seg", "byte_count mkey address", 16},
	{SRQNext{}, "mlx5_wqe_srq_next_seg", "rsvd0 next_wqe_index signature rsvd1", 16},
	{CQE{}, "mlx5_cqe64", "rsvd0 wqe_id rsvd4 ml_path rsvd20 slid flags_rqpn hds_ip_ext l4_hdr_type_etc vlan_info srqn_uidx imm_inval_pkey app app_op app_info byte_cnt timestamp sop_drop_qpn wqe_counter signature op_own", 64},
	{ErrCQE{}, "mlx5_err_cqe", "rsvd0 srqn rsvd1 vendor_err_synd syndrome s_wqe_opcode_qpn wqe_counter signature op_own", 64},
	{QPRecord{}, "", "rcv snd", RecordSize},
	{CQRecord{}, "", "ci arm", RecordSize},
}

var constants = map[string]uint64{
	"MLX5_OPCODE_NOP": OpNop, "MLX5_OPCODE_SEND_INVAL": OpSendInval, "MLX5_OPCODE_RDMA_WRITE": OpWrite, "MLX5_OPCODE_RDMA_WRITE_IMM": OpWriteImm,
	"MLX5_OPCODE_SEND": OpSend, "MLX5_OPCODE_SEND_IMM": OpSendImm, "MLX5_OPCODE_RDMA_READ": OpRead, "MLX5_OPCODE_ATOMIC_CS": OpAtomicCS,
	"MLX5_OPCODE_ATOMIC_FA": OpAtomicFA, "MLX5_OPCODE_UMR": OpUMR,
	"MLX5_CQE_REQ": CQEReq, "MLX5_CQE_RESP_WR_IMM": CQERespWrImm, "MLX5_CQE_RESP_SEND": CQERespSend, "MLX5_CQE_RESP_SEND_IMM": CQERespSendImm,
	"MLX5_CQE_RESP_SEND_INV": CQERespSendInv, "MLX5_CQE_RESIZE_CQ": CQEResizeCQ, "MLX5_CQE_REQ_ERR": CQEReqErr, "MLX5_CQE_RESP_ERR": CQERespErr,
	"MLX5_CQE_INVALID": CQEInvalid, "MLX5_CQE_OWNER_MASK": OwnerMask,
	"MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR": SyndromeLocalLengthErr, "MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR": SyndromeLocalQPOpErr,
	"MLX5_CQE_SYNDROME_LOCAL_PROT_ERR": SyndromeLocalProtErr, "MLX5_CQE_SYNDROME_WR_FLUSH_ERR": SyndromeWRFlushErr,
	"MLX5_CQE_SYNDROME_MW_BIND_ERR": SyndromeMWBindErr, "MLX5_CQE_SYNDROME_BAD_RESP_ERR": SyndromeBadRespErr,
	"MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR": SyndromeLocalAccessErr, "MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR": SyndromeRemoteInvalReqErr,
	"MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR": SyndromeRemoteAccessErr, "MLX5_CQE_SYNDROME_REMOTE_OP_ERR": SyndromeRemoteOpErr,
	"MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR": SyndromeTransportRetryExcErr, "MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR": SyndromeRNRRetryExcErr,
	"MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR": SyndromeRemoteAbortedErr,
	"MLX5_WQE_CTRL_SOLICITED":              CtrlSolicited, "MLX5_WQE_CTRL_CQ_UPDATE": CtrlCQUpdate, "MLX5_WQE_CTRL_FENCE": CtrlFence,
	"MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE": CtrlInitiatorSmallFence,
	"MLX5_INLINE_SCATTER_32":              InlineScatter32, "MLX5_INLINE_SCATTER_64": InlineScatter64,
	"MLX5_WQE_UMR_CTRL_FLAG_INLINE": UMRInline, "MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE": UMRCheckFree,
	"MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET": UMRTranslationOffset, "MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN": UMRCheckQPN,
	"MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN": MkeyMaskLen, "MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR": MkeyMaskStartAddr,
	"MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY": MkeyMaskMkey, "MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN": MkeyMaskQPN,
	"MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE":  MkeyMaskLocalWrite,
	"MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ":  MkeyMaskRemoteRead,
	"MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE": MkeyMaskRemoteWrite,
	"MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC":       MkeyMaskAtomic, "MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE": MkeyMaskFree,
	"MLX5_WQE_MKEY_CONTEXT_FREE":                    MkeyFree,
	"MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ": MkeyAccessLocalRead, "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE": MkeyAccessLocalWrite,
	"MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ": MkeyAccessRemoteRead, "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE": MkeyAccessRemoteWrite,
	"MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC": MkeyAccessAtomic,
	"MLX5_SEND_WQE_BB":                          SendBB, "MLX5_INVALID_LKEY": InvalidLKey, "(unsigned)MLX5_INLINE_SEG": InlineSeg, "(unsigned)MLX5_EXTENDED_UD_AV": ExtendedUDAV,
}

func TestSizesAndNoHiddenPadding(t *testing.T) {
	for _, l := range layouts {
		s := reflect.TypeOf(l.v)
		var sum uintptr
		for i := range s.NumField() {
			sum += s.Field(i).Type.Size()
		}
		if s.Size() != l.size || sum != l.size || s.Align() != 1 {
			t.Errorf("%s: %d bytes, fields %d, alignment %d, want %d", s.Name(), s.Size(), sum, s.Align(), l.size)
		}
	}
}

// TestHeader compares layouts and constants with mlx5dv.h.
func TestHeader(t *testing.T) {
	var c strings.Builder
	var names []string
	var values []uint64
	show := func(name string, v uint64, expr string) {
		fmt.Fprintf(&c, "printf(\"%d %%llu\\n\", (unsigned long long)(%s));\n", len(names), expr)
		names, values = append(names, name), append(values, v)
	}
	for _, l := range layouts {
		if l.name == "" {
			continue
		}
		s := reflect.TypeOf(l.v)
		show(s.Name(), uint64(s.Size()), "sizeof(struct "+l.name+")")
		members := strings.Fields(l.fields)
		if len(members) != s.NumField()-1 {
			t.Fatalf("%s has %d fields, the table %d", s.Name(), s.NumField()-1, len(members))
		}
		for i, m := range members {
			f := s.Field(i + 1)
			if last := m[strings.LastIndexByte(m, '.')+1:]; !strings.EqualFold(f.Name, strings.ReplaceAll(last, "_", "")) {
				t.Errorf("%s.%s is compared with %s", s.Name(), f.Name, m)
			}
			show(s.Name()+"."+f.Name, uint64(f.Offset), fmt.Sprintf("offsetof(struct %s, %s)", l.name, m))
			show("size of "+s.Name()+"."+f.Name, uint64(f.Type.Size()), fmt.Sprintf("sizeof(((struct %s *)0)->%s)", l.name, m))
		}
	}
	for name, v := range constants {
		show(name, v, name)
	}
	out := runC(t, "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/mlx5dv.h>\nint main(void) {\n"+c.String()+"return 0; }\n")
	seen := 0
	for line := range strings.Lines(out) {
		var i int
		var v uint64
		if _, err := fmt.Sscanf(line, "%d %d", &i, &v); err != nil {
			t.Fatalf("line %q of the C program: %v", line, err)
		}
		seen++
		if values[i] != v {
			t.Errorf("%s is %#x, in C %#x", names[i], values[i], v)
		}
	}
	if seen != len(names) {
		t.Errorf("%d of %d lines", seen, len(names))
	}
}

// runC compiles and runs a program. Without a compiler or rdma-core's headers the
// test is skipped, except in CI.
func runC(t *testing.T, src string) string {
	t.Helper()
	missing := func(format string, args ...any) {
		t.Helper()
		if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		missing("nothing is compared with C: %v", err)
	}
	if _, err := os.Stat("/usr/include/infiniband/mlx5dv.h"); err != nil {
		missing("nothing is compared with C, install libibverbs-dev: %v", err)
	}
	dir := t.TempDir()
	file, exe := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), gcc, "-w", "-o", exe, file).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), exe).Output()
	if err != nil {
		t.Fatalf("C program: %v", err)
	}
	return string(out)
}
