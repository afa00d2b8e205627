package socketboot

import "fmt"

// Role is which end of a handshake one is.
type Role uint8

// The connector sends the data later, the acceptor receives it.
const (
	Connector Role = iota
	Acceptor
)

func (r Role) String() string {
	if r == Acceptor {
		return "acceptor"
	}
	return "connector"
}

func (r Role) other() Role { return Connector + Acceptor - r }

// State is where a handshake stands, with the names and numbers of NCCL's ncclIbCommState. A connector goes through Connect,
// SendDevList, RecvDevList, Send, Connecting, Connected; an acceptor through Accept, RecvDevList, SendDevList, Recv, Send,
// PendingReady.
type State uint8

// NCCL's states; 2 is unused there too.
const (
	StateStart        State = 0  // nothing happened yet
	StateConnect      State = 1  // connector: magic and type go out
	StateAccept       State = 3  // acceptor: magic and type come in
	StateSend         State = 4  // own metadata goes out
	StateRecv         State = 5  // acceptor: the connector's metadata comes in
	StateConnecting   State = 6  // connector: the acceptor's metadata comes in
	StateConnected    State = 7  // connector: ready goes out
	StatePendingReady State = 8  // acceptor: ready comes in
	StateSendDevList  State = 9  // own device list goes out
	StateRecvDevList  State = 10 // the peer's device list comes in
)

var stateNames = [...]string{StateStart: "Start", StateConnect: "Connect", StateAccept: "Accept", StateSend: "Send",
	StateRecv: "Recv", StateConnecting: "Connecting", StateConnected: "Connected", StatePendingReady: "PendingReady",
	StateSendDevList: "SendDevList", StateRecvDevList: "RecvDevList"}

func (s State) String() string {
	if int(s) < len(stateNames) && stateNames[s] != "" {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}
