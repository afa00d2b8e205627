package driver

import (
	"fmt"
	"strings"
)

var opcodeNames = [...]string{"RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP",
	"ATOMIC_FETCH_AND_ADD", "LOCAL_INV", "BIND_MW", "SEND_WITH_INV"}

// String is the verbs' name, IBV_WR_RDMA_WRITE for example.
func (o Opcode) String() string {
	if int(o) < len(opcodeNames) {
		return "IBV_WR_" + opcodeNames[o]
	}
	return fmt.Sprintf("IBV_WR %d", uint8(o))
}

// String is the verbs' name, IBV_WC_RECV for example.
func (o WCOpcode) String() string {
	switch o {
	case WCSend:
		return "IBV_WC_SEND"
	case WCWrite:
		return "IBV_WC_RDMA_WRITE"
	case WCRead:
		return "IBV_WC_RDMA_READ"
	case WCCmpSwap:
		return "IBV_WC_COMP_SWAP"
	case WCFetchAdd:
		return "IBV_WC_FETCH_ADD"
	case WCBindMW:
		return "IBV_WC_BIND_MW"
	case WCLocalInv:
		return "IBV_WC_LOCAL_INV"
	case WCRecv:
		return "IBV_WC_RECV"
	case WCRecvWriteWithImm:
		return "IBV_WC_RECV_RDMA_WITH_IMM"
	}
	return fmt.Sprintf("IBV_WC opcode %d", uint8(o))
}

// String names the flags, "FENCE|SIGNALED" for example.
func (f SendFlags) String() string {
	return bits(uint64(f), map[int]string{0: "FENCE", 1: "SIGNALED", 2: "SOLICITED"})
}

// String names the flags, "WITH_IMM" for example.
func (f WCFlags) String() string {
	return bits(uint64(f), map[int]string{0: "GRH", 1: "WITH_IMM", 3: "WITH_INV"})
}

// String names the rights, "LOCAL_WRITE|REMOTE_READ" for example.
func (a Access) String() string {
	return bits(uint64(a), map[int]string{0: "LOCAL_WRITE", 1: "REMOTE_WRITE", 2: "REMOTE_READ", 3: "REMOTE_ATOMIC", 4: "MW_BIND",
		5: "ZERO_BASED", 6: "ON_DEMAND", 7: "HUGETLB", 20: "RELAXED_ORDERING"})
}

// String names the fields, "STATE|PORT" for example.
func (m QPMask) String() string {
	return bits(uint64(m), map[int]string{0: "STATE", 1: "CUR_STATE", 2: "EN_SQD_ASYNC_NOTIFY", 3: "ACCESS_FLAGS", 4: "PKEY_INDEX",
		5: "PORT", 6: "QKEY", 7: "AV", 8: "PATH_MTU", 9: "TIMEOUT", 10: "RETRY_CNT", 11: "RNR_RETRY", 12: "RQ_PSN",
		13: "MAX_QP_RD_ATOMIC", 14: "ALT_PATH", 15: "MIN_RNR_TIMER", 16: "SQ_PSN", 17: "MAX_DEST_RD_ATOMIC", 18: "PATH_MIG_STATE",
		19: "CAP", 20: "DEST_QPN", 25: "RATE_LIMIT"})
}

// bits names the bits of v from the lowest, those without a name by their number,
// and is "0" for none.
func bits(v uint64, names map[int]string) string {
	var set []string
	for b := range 64 {
		if v>>b&1 == 0 {
			continue
		}
		name := names[b]
		if name == "" {
			name = fmt.Sprintf("bit %d", b)
		}
		set = append(set, name)
	}
	if set == nil {
		return "0"
	}
	return strings.Join(set, "|")
}
