package socketboot

// ConnectorLocal is what a connector's machine asks of its owner, in this order, from the goroutine that feeds it. Once a
// machine or [Net.Connect] has been given one, either all three calls succeed and the handshake is done, or Abort is called once.
type ConnectorLocal interface {
	// Devices is the own device list. It must not block.
	Devices() DevList
	// Prepare makes the queue pairs, in INIT, and describes them; peer is the acceptor's device list. The number of queue
	// pairs is a multiple of the larger number of devices: NCCL takes NCCL_IB_QPS_PER_CONNECTION times that.
	Prepare(peer DevList) (Metadata, error)
	// Ready brings the queue pairs to RTS. The number of the acceptor's queue pairs has been compared. It may sit in the
	// kernel for a second.
	Ready(peer *Metadata) error
	// Abort frees what was made, if anything: the handshake failed, for the reason given. It may follow an error of Prepare or Ready.
	Abort(reason error)
}

// AcceptorLocal is what an acceptor's machine asks of its owner, from the goroutine that feeds it. Unlike the connector it makes
// its queue pairs in one go: it learns their number from the connector's metadata, and can describe them only when they are in
// RTS, because the device may reduce the ECE options on the way. Nothing is asked before magic, type and device list are valid.
// Then either Establish succeeds and the handshake gets done, or Abort is called once.
type AcceptorLocal interface {
	// Devices is the own device list. It must not block.
	Devices() DevList
	// Establish makes as many queue pairs as the peer's metadata has, brings them to RTS and describes them. It may sit in the
	// kernel for a second. No send may be posted before the handshake is done: the peer's queue pairs are not in RTS yet.
	Establish(peer DevList, meta *Metadata) (Metadata, error)
	// Abort frees what was made, if anything: the handshake failed, for the reason given. It may follow an error of Establish.
	Abort(reason error)
}
