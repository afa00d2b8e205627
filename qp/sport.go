package qp

const minSourcePort = 0xc000

// UDPSourcePort is the UDP source port of RoCE v2 packets, as Linux's
// rdma_get_udp_sport computes it and the drivers rxe, mlx5, irdma, hns and
// others use it: from the flow label, or if that is 0 from both QP numbers, the
// same in both directions. It is always 49152 or above. A device may still do
// otherwise: ask for FeatureFlowLabelPort.
func UDPSourcePort(flowLabel, localQPN, remoteQPN uint32) uint16 {
	if flowLabel == 0 {
		v := uint64(localQPN) * uint64(remoteQPN)
		v ^= v >> 20
		v ^= v >> 40
		flowLabel = uint32(v)
	}
	low, high := flowLabel&0x3fff, flowLabel&0xfc000
	return uint16(low^high>>14) | minSourcePort
}

// FlowLabelFor is a flow label that leads to the UDP source port, of which the
// low 14 bits count. It is never 0, which would leave the choice to the QP
// numbers.
func FlowLabelFor(port uint16) uint32 {
	low := uint32(port) & 0x3fff
	if low == 0 {
		return 1<<14 | 1 // folds to 0
	}
	return low
}
