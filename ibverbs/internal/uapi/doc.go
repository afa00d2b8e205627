// Package uapi declares the structures and constants that Linux and its RDMA
// drivers share with user space: those of ib_user_verbs.h,
// ib_user_ioctl_cmds.h, ib_user_ioctl_verbs.h, rdma_user_ioctl_cmds.h,
// rdma_user_rxe.h and rdma_netlink.h. It has no functions, and only what this
// module uses is in it.
//
// # Names
//
// A kernel name is turned into Go by dropping its prefix and spelling it as Go
// does, abbreviations whole:
//
//	struct ib_uverbs_query_port_resp         QueryPortResp
//	struct ib_uverbs_qp_cap.max_send_wr      QPCap.MaxSendWR
//	struct rxe_send_wqe, struct mminfo       RxeSendWQE, RxeMMInfo
//	UVERBS_OBJECT_QP                         ObjectQP
//	UVERBS_METHOD_QP_CREATE                  MethodQPCreate
//	UVERBS_ATTR_CREATE_QP_HANDLE             AttrCreateQPHandle
//	IB_USER_VERBS_CMD_REG_MR                 CmdRegMR
//	IB_UVERBS_…, RDMA_…                      the rest of the name
//	RDMA_NLDEV_CMD_GET, RDMA_NLDEV_ATTR_…    NLDevCmdGet, NLDevAttr…
//
// # Layout
//
// All structures are those of a 64-bit Linux. Padding and reserved fields are
// declared, so that a zero value has no byte that is not zero. A union is an
// array of its size, named after the union; its members are types of their own.
// Fields of type uint32 that hold big-endian bytes end in BE. The tests compare
// the size and every offset and every constant with the C headers.
package uapi
