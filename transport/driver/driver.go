// Package driver is the seam under the transports: what ranks know of each other, what a transport must offer, and the memory
// through which the two ends of a connection move data. Transports import it; programs use package transport, which has its types
// as aliases.
//
// # From a pair of ranks to a connection
//
// For each peer the set-up loop of package transport asks the transports in their order (P2P, SHM, NET, CollNet, as NCCL does)
// [Transport.CanConnect] and takes the first that can. Then, for each channel and each direction:
//
//  1. [Transport.Setup] does the local half and fills a 256-byte [Blob].
//  2. The blobs are exchanged.
//  3. [Connector.Connect] gets the peer's blob and is called again and again until it is done.
//  4. [Connector.Conn] is where the data goes.
//
// If any rank fails on the way, [Connector.Close] is called at all ranks for all that this round has made, whatever its state.
//
// # Goroutines
//
// The loop calls from one goroutine at a time, for one rank. A transport that serves several ranks of a process (tests) must
// allow calls for different ranks at the same time.
package driver

// BlobSize is the length of a [Blob]: NCCL's CONNECT_SIZE.
const BlobSize = 256

// Blob is what one end of a connection tells the other: NCCL's ncclConnect. What it holds is the transport's own; it arrives from
// the other rank unchanged and is to be checked before use.
type Blob [BlobSize]byte

// Verdict answers whether a transport can connect two ranks.
type Verdict struct {
	OK bool
	// Reason says in a few words why not, or, where there is something to say, why: "different hosts", "NCCL_SHM_DISABLE=1". It is
	// kept for whoever asks which transport was chosen, and told to the peer.
	Reason string
}

// Request is one direction of one channel to one peer.
type Request struct {
	Send       bool // this rank sends; else it receives
	Self, Peer *PeerInfo
	Channel    int // 0 to 63
	ConnIndex  int // 0 = collectives, 1 = send and receive
	// Buffers is the size in bytes of the buffer of each [Protocol]; 0 = this connection needs none. Both ranks have the same.
	Buffers [Protocols]int
}

// Transport is one way of moving data between ranks: P2P, SHM, NET or CollNet, made for this rank by its package. Whoever made it
// closes it, after the communicators that use it.
type Transport interface {
	// Name is NCCL's, "P2P", "SHM", "NET", "COLLNET": at most 15 bytes, the same at all ranks.
	Name() string
	// Describe fills in what this transport must let the peers know of this rank, such as [PeerInfo.Socket]. It is called once, before
	// the infos of all ranks are exchanged.
	Describe(self *PeerInfo) error
	// CanConnect tells whether data can move between the two ranks, in either direction. It must give the same answer on both of
	// them; the loop checks that it did, and where it did not both take the later transport, and say so. It may try (open the peer's
	// socket), but not wait for the peer to act.
	CanConnect(self, peer *PeerInfo) Verdict
	// Setup does the local half of a connection, allocates above all, and fills out, which is zero, for the peer. It must not wait
	// for the peer. After an error nothing may be left: there is no Connector to close.
	Setup(r Request, out *Blob) (Connector, error)
}

// Connector is one direction of one channel to one peer, from Setup on.
type Connector interface {
	// Connect makes what progress it can without waiting for the peer and is called again until done; in is what the peer's Setup
	// filled, the same at each call. After an error it is not called again.
	Connect(in *Blob) (done bool, err error)
	// Conn is where data goes, once Connect is done; it is the connector's and ends with Close.
	Conn() *Conn
	// Proxy moves the data where the two ends do not do it themselves; nil if they do.
	Proxy() Proxy
	// Close frees all, in any state, also in the middle of connecting; the peer may notice. A second call is nil.
	Close() error
}

// Watcher is a [Connector] whose ends share memory and that notices the end of the peer.
type Watcher interface {
	// Err is why the peer is gone, nil while it is there; io.EOF says that it has closed. Whoever waits for the peer asks now and then.
	// Any goroutine may call it once Connect is done.
	Err() error
}

// Proxy moves the data of one connector whose ends do not share memory: NCCL's proxyProgress. Its methods are called from one
// goroutine, that of the engine.
type Proxy interface {
	// Start takes on an operation; operations are done in the order of their starts.
	Start(op Op) error
	// Pending is the number of operations that have been started and have not ended. Without any the engine may sleep.
	Pending() int
	// Progress moves what can be moved now, without waiting. idle means that nothing has moved. An error is final.
	Progress() (idle bool, err error)
}

// Op is one operation of a [Proxy]: Steps steps of a connection's buffers.
type Op struct {
	Steps      int // of the connection, a multiple of SliceSteps
	SliceSteps int // how many are moved at a time, a divisor of ChunkSteps
	// ChunkSteps is a divisor of [Steps]/2; the operation begins at the next multiple of it. With larger ones the producer could wait
	// for room that only its own data can make.
	ChunkSteps int
	Bytes      int // bound of a slice
	Protocol   Protocol
}
