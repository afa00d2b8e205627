package socketboot

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Machine is one end of one handshake, without I/O. Its owner sends what Output has and says so with Sent, and gives what has
// arrived to Input, until Done; [Machine.Step] and [Machine.Run] do that over a net.Conn. A machine belongs to one goroutine at
// a time, and that goroutine runs the calls of the ConnectorLocal or AcceptorLocal. An owner that gives up early must call Fail.
type Machine struct {
	role   Role
	layout Layout
	magic  uint64
	conn   ConnectorLocal // one of these two
	acc    AcceptorLocal

	state State
	done  bool
	err   *HandshakeError
	peer  string

	out   []byte // to be sent
	sent  int    // bytes sent in this state and, for Connect, the next
	hello []byte // of magic and type, what has not arrived yet
	raw   []byte // what has arrived since: device list, metadata, ready
	begin int    // where in raw the current message begins
	buf   []byte // what Step and Run read into

	devs, peerDevs DevList
	own, theirs    Metadata
}

var errNoLocal = errors.New("socketboot: the owner of the handshake is nil")

// NewConnector makes the end that opens the connection and will send data. If it returns an error, Abort has been called.
func NewConnector(l Layout, h Handle, local ConnectorLocal) (*Machine, error) {
	if local == nil {
		return nil, errNoLocal
	}
	m := &Machine{role: Connector, layout: l, magic: h.Magic(), conn: local, state: StateConnect}
	if err := errors.Join(l.check(), h.Check()); err != nil {
		return nil, m.fail(err)
	}
	m.devs = local.Devices()
	m.out = hello(m.magic)
	var err error
	if m.out, err = m.devs.append(l, m.out); err != nil {
		return nil, m.fail(fmt.Errorf("own device list: %w", err))
	}
	return m, nil
}

// NewAcceptor makes the end that was connected to and will receive data; magic is that of the listener's handle. If it returns
// an error, Abort has been called.
func NewAcceptor(l Layout, magic uint64, local AcceptorLocal) (*Machine, error) {
	if local == nil {
		return nil, errNoLocal
	}
	m := &Machine{role: Acceptor, layout: l, magic: magic, acc: local, state: StateAccept, hello: hello(magic)}
	if err := l.check(); err != nil {
		return nil, m.fail(err)
	}
	return m, nil
}

func hello(magic uint64) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 64), magic)
	return binary.LittleEndian.AppendUint32(b, SocketTypeNetIB)
}

// Role tells which end this is.
func (m *Machine) Role() Role { return m.role }

// State is where the handshake stands; after an error, where it failed.
func (m *Machine) State() State { return m.state }

// Done tells that the handshake has succeeded.
func (m *Machine) Done() bool { return m.done }

// Err is why the handshake failed, nil if it has not.
func (m *Machine) Err() error {
	if m.err == nil {
		return nil
	}
	return m.err
}

// Peer is the metadata that the other end sent, checked. It is complete once the machine is Done.
func (m *Machine) Peer() *Metadata { return &m.theirs }

// PeerDevs is the device list that the other end sent, checked.
func (m *Machine) PeerDevs() DevList { return m.peerDevs }

// Output is what must be sent to the peer now, empty if it is the peer's turn. It stays valid until Sent or Input.
func (m *Machine) Output() []byte {
	if m.err != nil {
		return nil
	}
	return m.out
}

// Sent says that the first n bytes of Output are on their way.
func (m *Machine) Sent(n int) {
	m.out = m.out[n:]
	m.sent += n
	if m.state == StateConnect && m.sent >= helloLen {
		m.state = StateSendDevList
	}
	if len(m.out) > 0 || n == 0 {
		return
	}
	switch {
	case m.state == StateConnected:
		m.done = true
	case m.state == StateSendDevList && m.role == Connector:
		m.enter(StateRecvDevList)
	case m.state == StateSendDevList:
		m.enter(StateRecv)
	case m.state == StateSend && m.role == Connector:
		m.enter(StateConnecting)
	case m.state == StateSend:
		m.enter(StatePendingReady)
	}
}

func (m *Machine) enter(s State) {
	m.state = s
	m.sent = 0
	m.begin = len(m.raw)
}

// wants is how many more bytes of the current message are to come.
func (m *Machine) wants() int {
	have := len(m.raw) - m.begin
	switch m.state {
	case StateAccept:
		return len(m.hello)
	case StateRecvDevList:
		return m.layout.DevListLen() - have
	case StateRecv, StateConnecting:
		return m.layout.MetadataLen() - have
	case StatePendingReady:
		return readyLen - have
	}
	return 0
}

// Input takes bytes from the peer, however they were cut. It uses all of them or fails: nobody speaks out of turn, so there is
// never a byte to keep for later. The last byte of a message makes the machine call its owner, which may take a while. Once the
// machine is Done any byte is an [ErrSurplus], but the handshake stays done.
func (m *Machine) Input(b []byte) error {
	if m.done && len(b) > 0 {
		return fmt.Errorf("socketboot: %w: after ready", ErrSurplus)
	}
	for len(b) > 0 && m.err == nil {
		n := min(m.wants(), len(b))
		if n == 0 {
			return m.surplus(b)
		}
		if m.state == StateAccept {
			if err := m.takeHello(b[:n]); err != nil {
				return m.fail(err)
			}
			b = b[n:]
			continue
		}
		m.raw = append(m.raw, b[:n]...)
		b = b[n:]
		if err := m.early(); err != nil {
			m.keep(b)
			return m.fail(err)
		}
		if m.wants() > 0 {
			break
		}
		if len(b) > 0 {
			return m.surplus(b)
		}
		if err := m.message(m.raw[m.begin:]); err != nil {
			return m.fail(err)
		}
	}
	return m.Err()
}

// takeHello compares magic and type byte by byte, so that a stray peer is known by its first wrong byte.
func (m *Machine) takeHello(b []byte) error {
	for _, c := range b {
		if c != m.hello[0] {
			if len(m.hello) > 4 {
				return ErrMagic
			}
			return ErrSocketType
		}
		m.hello = m.hello[1:]
	}
	if len(m.hello) == 0 {
		m.enter(StateRecvDevList)
	}
	return nil
}

// early looks at the count that a device list begins with: most strays are known by it.
func (m *Machine) early() error {
	if m.state != StateRecvDevList || len(m.raw) < 4 {
		return nil
	}
	return checkCount("ndevs", int(int32(binary.LittleEndian.Uint32(m.raw))), m.layout.MaxDevs())
}

// message handles a complete message.
func (m *Machine) message(msg []byte) (err error) {
	switch m.state {
	case StateRecvDevList:
		if m.peerDevs, err = decodeDevList(m.layout, msg); err != nil {
			return err
		}
		if m.role == Acceptor {
			m.devs = m.acc.Devices()
			m.enter(StateSendDevList)
			if m.out, err = m.devs.append(m.layout, nil); err != nil {
				return fmt.Errorf("own device list: %w", err)
			}
			return nil
		}
		m.enter(StateSend)
		if m.own, err = m.conn.Prepare(m.peerDevs); err != nil {
			return err
		}
		return m.sendMetadata()
	case StateRecv:
		if err := m.metadata(msg); err != nil {
			return err
		}
		m.enter(StateSend)
		if m.own, err = m.acc.Establish(m.peerDevs, &m.theirs); err != nil {
			return err
		}
		if err := m.sendMetadata(); err != nil {
			return err
		}
		return m.agree()
	case StateConnecting:
		if err := m.metadata(msg); err != nil {
			return err
		}
		if err := m.agree(); err != nil {
			return err
		}
		m.enter(StateConnected)
		m.out = []byte{1, 0, 0, 0}
		return m.conn.Ready(&m.theirs)
	case StatePendingReady:
		if ready := binary.LittleEndian.Uint32(msg); ready != 1 {
			return &FieldError{"ready", ready, "1"}
		}
		m.done = true
	}
	return nil
}

func (m *Machine) metadata(msg []byte) (err error) {
	if m.theirs, err = DecodeMetadata(m.layout, m.role.other(), msg); err != nil {
		return err
	}
	if n := len(m.peerDevs.Devs); len(m.theirs.Devs) != n {
		return &FieldError{"ndevs", len(m.theirs.Devs), fmt.Sprintf("%d, as the device list had", n)}
	}
	return m.checkQPCount(&m.theirs)
}

func (m *Machine) sendMetadata() (err error) {
	if n := len(m.devs.Devs); len(m.own.Devs) != n {
		return fmt.Errorf("own metadata: %w", &FieldError{"ndevs", len(m.own.Devs), fmt.Sprintf("%d, as the device list had", n)})
	}
	if m.out, err = m.own.Append(m.layout, m.role, nil); err != nil {
		return fmt.Errorf("own metadata: %w", err)
	}
	if err := m.checkQPCount(&m.own); err != nil {
		return fmt.Errorf("own metadata: %w", err)
	}
	return nil
}

// checkQPCount holds a number of queue pairs against NCCL's rule: so many for each device of the end that has more.
func (m *Machine) checkQPCount(md *Metadata) error {
	devs := max(len(m.devs.Devs), len(m.peerDevs.Devs))
	if len(md.QPs)%devs != 0 {
		return &FieldError{"number of queue pairs", len(md.QPs), fmt.Sprintf("a multiple of %d, the larger number of devices", devs)}
	}
	return nil
}

// agree compares what only holds between the two ends. NCCL compares neither: a difference in the number of queue pairs
// completes messages with the sizes of others.
func (m *Machine) agree() error {
	if own, peer := len(m.own.QPs), len(m.theirs.QPs); own != peer {
		return &disagreement{fmt.Sprintf("%d queue pairs here, %d at the peer", own, peer),
			"set the same NCCL_IB_QPS_PER_CONNECTION (QPsPerConn) at both ends"}
	}
	if own, peer := m.own.Devs[0].LinkLayer, m.theirs.Devs[0].LinkLayer; own != peer {
		return &disagreement{fmt.Sprintf("link layer %s here, %s at the peer", linkName(own), linkName(peer)),
			"choose devices of one kind with NCCL_IB_HCA at both ends"}
	}
	return nil
}

type disagreement struct{ what, hint string }

func (d *disagreement) Error() string        { return d.what }
func (d *disagreement) Is(target error) bool { return target == ErrDisagree }

func linkName(l uint8) string {
	if l == LinkInfiniBand {
		return "InfiniBand"
	}
	return "Ethernet"
}

func (m *Machine) surplus(b []byte) error {
	m.keep(b)
	return m.fail(fmt.Errorf("%w: %d more", ErrSurplus, len(b)))
}

// keep adds surplus bytes to the record from which the peer's layout is guessed.
func (m *Machine) keep(b []byte) {
	const most = 8 << 10
	m.raw = append(m.raw, b[:min(len(b), max(0, most-len(m.raw)))]...)
}

// Fail tells the machine that its handshake will not go on: the connection is lost, or time is up. The owner's Abort is called,
// and the result is the [HandshakeError] that says where it stood. A machine that has failed or is done stays as it is.
func (m *Machine) Fail(reason error) error {
	if m.err != nil || m.done {
		return m.Err()
	}
	return m.fail(reason)
}

func (m *Machine) fail(reason error) error {
	e := &HandshakeError{Role: m.role, State: m.state, Peer: m.peer, Layout: m.layout, Err: reason}
	var field *FieldError
	if errors.As(reason, &field) {
		e.Field = field.Field
	}
	e.LooksLike, e.Hint = m.diagnose(reason)
	m.err = e
	m.out, m.raw = nil, nil
	if m.role == Connector {
		m.conn.Abort(e)
	} else {
		m.acc.Abort(e)
	}
	return e
}
