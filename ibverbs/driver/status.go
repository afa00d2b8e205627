package driver

import "strconv"

// Status is enum ibv_wc_status. It is an error, so that errors.Is(err,
// ibverbs.RetryExcErr) asks for one; its text is the verbs' name.
type Status uint8

// How a request ended.
const (
	Success          Status = 0
	LocLenErr        Status = 1
	LocQPOpErr       Status = 2
	LocEECOpErr      Status = 3
	LocProtErr       Status = 4
	WRFlushErr       Status = 5
	MWBindErr        Status = 6
	BadRespErr       Status = 7
	LocAccessErr     Status = 8
	RemInvReqErr     Status = 9
	RemAccessErr     Status = 10
	RemOpErr         Status = 11
	RetryExcErr      Status = 12
	RNRRetryExcErr   Status = 13
	LocRDDViolErr    Status = 14
	RemInvRDReqErr   Status = 15
	RemAbortErr      Status = 16
	InvEECNErr       Status = 17
	InvEECStateErr   Status = 18
	FatalErr         Status = 19
	RespTimeoutErr   Status = 20
	GeneralErr       Status = 21
	TMErr            Status = 22
	TMRndvIncomplete Status = 23
)

var statusNames = [...]string{
	"IBV_WC_SUCCESS", "IBV_WC_LOC_LEN_ERR", "IBV_WC_LOC_QP_OP_ERR", "IBV_WC_LOC_EEC_OP_ERR",
	"IBV_WC_LOC_PROT_ERR", "IBV_WC_WR_FLUSH_ERR", "IBV_WC_MW_BIND_ERR", "IBV_WC_BAD_RESP_ERR",
	"IBV_WC_LOC_ACCESS_ERR", "IBV_WC_REM_INV_REQ_ERR", "IBV_WC_REM_ACCESS_ERR", "IBV_WC_REM_OP_ERR",
	"IBV_WC_RETRY_EXC_ERR", "IBV_WC_RNR_RETRY_EXC_ERR", "IBV_WC_LOC_RDD_VIOL_ERR", "IBV_WC_REM_INV_RD_REQ_ERR",
	"IBV_WC_REM_ABORT_ERR", "IBV_WC_INV_EECN_ERR", "IBV_WC_INV_EEC_STATE_ERR", "IBV_WC_FATAL_ERR",
	"IBV_WC_RESP_TIMEOUT_ERR", "IBV_WC_GENERAL_ERR", "IBV_WC_TM_ERR", "IBV_WC_TM_RNDV_INCOMPLETE",
}

// Error is the verbs' name of the status, IBV_WC_RETRY_EXC_ERR for example.
func (s Status) Error() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "IBV_WC status " + strconv.Itoa(int(s))
}
