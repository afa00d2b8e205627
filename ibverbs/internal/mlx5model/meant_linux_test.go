package mlx5model

import "fmt"

// opening is the differences of all scenes: lines of one trace that the other does not have,
// and how often. "-" are libmlx5's, "+" our driver's. Each group says why, here and below;
// functions are those of rdma-core 44, where this can be read.
var opening = map[string]int{
	// The driver asks for no DEVX and no static doorbell registers. libmlx5 asks for DEVX,
	// then for less and less, as older kernels want (mlx5_cmd_get_context), then for no DEVX
	// (mlx5_alloc_context).
	"+ GET_CONTEXT attribute 0x1000 flags 0x1: 32 bytes: 00000000 00000000 00000000 00000000 01000000 00000000 03000000 00000000": 1,
	"- GET_CONTEXT": 3,
	"- GET_CONTEXT attribute 0x0 flags 0x1: room for 4 bytes":                                                                     3,
	"- GET_CONTEXT attribute 0x1 flags 0x1: room for 8 bytes":                                                                     3,
	"- GET_CONTEXT attribute 0x1000 flags 0x1: 16 bytes: 10000000 04000000 01000000 00000000":                                     1,
	"- GET_CONTEXT attribute 0x1000 flags 0x1: 24 bytes: 10000000 04000000 01000000 00000000 01000000 00000000":                   1,
	"- GET_CONTEXT attribute 0x1000 flags 0x1: 32 bytes: 10000000 04000000 00000000 00000000 01000000 00000000 03000000 00000000": 1,
	"- GET_CONTEXT attribute 0x1000 flags 0x1: 32 bytes: 10000000 04000000 01000000 00000000 01000000 00000000 03000000 00000000": 1,
	"- GET_CONTEXT attribute 0x1001 flags 0x1: room for 72 bytes":                                                                 3,
	// libmlx5 asks the firmware for what it can by DEVX; the driver has no DEVX.
	"- method 4096 of object 0x1000": 1,
	// The driver opens the file of asynchronous events before it asks for limits.
	"+ ASYNC_EVENT_ALLOC":                                1,
	"+ ASYNC_EVENT_ALLOC attribute 0x0 flags 0x1: given": 1,
	"- ASYNC_EVENT_ALLOC":                                1,
	"- ASYNC_EVENT_ALLOC attribute 0x0 flags 0x1: given": 1,
	// The driver has no use for what the driver's own part of the answer says of offloads.
	"- EX_QUERY_DEVICE attribute 0x1001 flags 0x1: room for 104 bytes": 1,
	// The driver names the file of events of a CQ as mandatory. libmlx5 says that it is not,
	// for kernels without it (ibv_icmd_create_cq).
	"+ CQ_CREATE attribute 0x7 flags 0x1: given": 1,
	"- CQ_CREATE attribute 0x7 flags 0x0: given": 1,
	// The driver tries the method before the command, as rdma-core 64 does (UVERBS_METHOD_REG_MR).
	"+ method 5 of object 0x7": 1,
	// libmlx5 asks for the ports as it opens the device (mlx5_set_context).
	"- QUERY_PORT": 1,
	"- QUERY_PORT attribute 0x0 flags 0x1: 0x1":               1,
	"- QUERY_PORT attribute 0x1 flags 0x1: room for 48 bytes": 1,
	// The driver asks when a queue pair or an address needs one.
	"+ QUERY_PORT": 1,
	"+ QUERY_PORT attribute 0x0 flags 0x1: 0x1":               1,
	"+ QUERY_PORT attribute 0x1 flags 0x1: room for 48 bytes": 1,
}

// asked: the driver looks at the port's MTU of that moment when a queue pair is connected.
var asked = map[string]int{
	"+ QUERY_PORT": 1,
	"+ QUERY_PORT attribute 0x0 flags 0x1: 0x1":               1,
	"+ QUERY_PORT attribute 0x1 flags 0x1: room for 48 bytes": 1,
}

// queried: the driver asks for all attributes, since its query has no mask. mlx5_ib_query_qp
// looks at the mask for no queue pair of a type that the driver has.
var queried = map[string]int{
	"+ QUERY_QP attribute 0x0 flags 0x1: 16 bytes: response qp 0 ffff1f00": 1,
	"- QUERY_QP attribute 0x0 flags 0x1: 16 bytes: response qp 0 01000000": 1,
}

// scatter: the driver lets no data be scattered to completions, which libmlx5 asks for
// unless MLX5_SCATTER_TO_CQE is 0 (MLX5_QP_FLAG_SCATTER_CQE). shape is the words of the
// queues' sizes.
func scatter(shape string) map[string]int {
	const line = "QP_CREATE attribute 0x1000 flags 0x1: 56 bytes: address address %s %s 00000000 page 0000000000000000 00000010 00000000"
	return map[string]int{
		"+ " + fmt.Sprintf(line, shape, "00040000"): 1,
		"- " + fmt.Sprintf(line, shape, "02040000"): 1,
	}
}

// small is scatter of queues for 8 requests and receives of two parts each.
var small = scatter("20000000 08000000 05000000")

// waiting: libmlx5 doubles an SRQ, for receives whose pages the adapter has not found
// (mlx5_alloc_srq_buf, wait queue). The driver has no on-demand paging.
var waiting = map[string]int{
	"+ SRQ_CREATE attribute 0x5 flags 0x1: 4 bytes: 07000000": 1,
	"- SRQ_CREATE attribute 0x5 flags 0x1: 4 bytes: 0f000000": 1,
}

// gidEntry: the C program, and libmlx5 for an address, ask for one entry of the port's table of
// GIDs, so often. Our script knows them, and the driver asks for the table (resolved).
func gidEntry(index, times int) map[string]int {
	return map[string]int{
		"- QUERY_GID_ENTRY": times,
		"- QUERY_GID_ENTRY attribute 0x0 flags 0x1: 0x1":                          times,
		"- QUERY_GID_ENTRY attribute 0x1 flags 0x1: " + fmt.Sprintf("%#x", index): times,
		"- QUERY_GID_ENTRY attribute 0x2 flags 0x1: 4 bytes: 00000000":            times,
		"- QUERY_GID_ENTRY attribute 0x3 flags 0x1: room for 32 bytes":            times,
	}
}

// resolved: the driver learns the type of a GID from the table, libmlx5 from its entry; and
// libmlx5 gives an address handle a handle of the user's (ibv_cmd_create_ah), which no event
// names.
func resolved(addresses ...string) map[string]int {
	n := len(addresses)
	lines := map[string]int{
		"+ QUERY_GID_TABLE": n,
		"+ QUERY_GID_TABLE attribute 0x0 flags 0x1: 0x20":               n,
		"+ QUERY_GID_TABLE attribute 0x1 flags 0x1: 4 bytes: 00000000":  n,
		"+ QUERY_GID_TABLE attribute 0x2 flags 0x1: room for 256 bytes": n,
		"+ QUERY_GID_TABLE attribute 0x3 flags 0x1: room for 8 bytes":   n,
	}
	for _, a := range addresses {
		lines["+ CREATE_AH attribute 0x0 flags 0x1: 56 bytes: response 0000000000000000 pd 0 00000000 "+a] = 1
		lines["- CREATE_AH attribute 0x0 flags 0x1: 56 bytes: response address pd 0 00000000 "+a] = 1
	}
	return lines
}

// Addresses of the script.
const (
	linkAddress = "fe800000 00000000 0c42a103 00123456 21430500 01030700 00000200 00010100"
	ipv4Address = "00000000 00000000 0000ffff 0a090001 23010000 02030700 00000200 03010100"
	ipv4Members = "00000000 00000000 0000ffff efc80102 21430500 02030700 03c00000 00010100"
)
