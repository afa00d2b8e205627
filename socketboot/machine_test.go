package socketboot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// mutation changes one field of what an end sends. Offsets count from the begin of the message.
type mutation struct {
	name  string
	part  string // hello, devs, meta, ready
	off   int
	value any
	field string // expected in the error; a|b is either
	is    error
}

// In the merged recording the acceptor has two devices, the connector one; both have two queue pairs.
var mutations = []mutation{
	{"magic", "hello", 0, byte(0x6d), "", ErrMagic},
	{"magic's last byte", "hello", 7, byte(0x57), "", ErrMagic},
	{"type", "hello", 8, int32(3), "", ErrSocketType},
	{"no devices", "devs", 0, int32(0), "ndevs", ErrField},
	{"negative number of devices", "devs", 0, int32(-1), "ndevs", ErrField},
	{"five devices", "devs", 0, int32(5), "ndevs", ErrField},
	{"negative device", "devs", 4, int32(-7), "devs[0]", ErrField},
	{"other number of devices", "meta", 3568, int32(3), "devs[1].ib_port|devs[2].ib_port", ErrField},
	{"no devices in metadata", "meta", 3568, int32(0), "ndevs", ErrField},
	{"too many devices in metadata", "meta", 3568, int32(5), "ndevs", ErrField},
	{"negative number of devices in metadata", "meta", 3568, int32(-2147483648), "ndevs", ErrField},
	{"no queue pair", "meta", 0, int32(0), "qpInfo[1].qpn", ErrField},
	{"management queue pair", "meta", 0, int32(1), "qpInfo[0].qpn", ErrField},
	{"multicast queue pair", "meta", 0, int32(1<<24 - 1), "qpInfo[0].qpn", ErrField},
	{"25-bit queue pair", "meta", 24, int32(1 << 24), "qpInfo[1].qpn", ErrField},
	{"gap before a queue pair", "meta", 127 * 24, int32(9), "qpInfo[127].qpn", ErrField},
	{"ECE neither yes nor no", "meta", 16, int32(2), "qpInfo[0].ece_supported", ErrField},
	{"device index too large", "meta", 24 + 20, int32(2), "qpInfo[1].devIndex", ErrField},
	{"device index negative", "meta", 20, int32(-1), "qpInfo[0].devIndex", ErrField},
	{"LID of 17 bits", "meta", 3072, int32(1 << 16), "devs[0].lid", ErrField},
	{"port 0", "meta", 3072 + 4, byte(0), "devs[0].ib_port", ErrField},
	{"MTU 0", "meta", 3072 + 8, int32(0), "devs[0].mtu", ErrField},
	{"MTU 6", "meta", 3072 + 8, int32(6), "devs[0].mtu", ErrField},
	{"MTU in bytes", "meta", 3072 + 8, int32(1024), "devs[0].mtu", ErrField},
	{"link layer 0", "meta", 3072 + 12, byte(0), "devs[0].link_layer", ErrField},
	{"link layer 3", "meta", 3072 + 12, byte(3), "devs[0].link_layer", ErrField},
	{"InfiniBand without LID", "meta", 3072 + 12, byte(1), "devs[0].lid", ErrField},
	{"no GID", "meta", 3072 + 16, [16]byte{}, "devs[0].gid", ErrField},
	{"multicast GID", "meta", 3072 + 16, byte(0xff), "devs[0].gid", ErrField},
	{"no key", "meta", 3072 + 32, int32(0), "devs[0].fifoRkey", ErrField},
	{"no name", "meta", 3296, byte(0), "devName", ErrField},
	{"unprintable name", "meta", 3297, byte('\n'), "devName", ErrField},
	{"endless name", "meta", 3296, [260]byte(bytes.Repeat([]byte{'x'}, 260)), "devName", ErrField},
	{"no FIFO", "meta", 3560, int64(0), "fifoAddr", ErrField},
	{"FIFO not aligned", "meta", 3560, byte(0x81), "fifoAddr", ErrField},
	{"FIFO at the end of memory", "meta", 3560, int64(-64), "fifoAddr", ErrField},
	{"ready 0", "ready", 0, int32(0), "ready", ErrField},
	{"ready 256", "ready", 0, int32(256), "ready", ErrField},
}

func (mu mutation) apply(l Layout, from Role, stream []byte) ([]byte, bool) {
	at := map[string]int{"hello": 0, "devs": helloLen, "meta": helloLen + l.DevListLen(), "ready": helloLen + l.DevListLen() + l.MetadataLen()}[mu.part]
	if from == Acceptor {
		if at -= helloLen; at < 0 || mu.part == "ready" {
			return nil, false
		}
	}
	out := bytes.Clone(stream)
	b, err := binary.Append(nil, binary.LittleEndian, mu.value)
	if err != nil {
		panic(err)
	}
	copy(out[at+mu.off:], b)
	return out, true
}

func TestMutations(t *testing.T) {
	g := golden{"nccl-2.25.1/handshake-merged1to2.txt", Layout225, true}
	s := g.load(t)
	for _, mu := range mutations {
		for _, from := range []Role{Connector, Acceptor} {
			conn, acc := s.ends(t, g.layout)
			var m *Machine
			owner, stream := conn, s.fromAcc
			if from == Acceptor {
				m = mustConnector(t, g.layout, s.handle, conn)
			} else {
				m, owner, stream = mustAcceptor(t, g.layout, acc), acc, s.fromConn
			}
			bad, ok := mu.apply(g.layout, from, stream)
			if !ok {
				continue
			}
			_, err := play(m, bad, whole)
			var h *HandshakeError
			if !errors.As(err, &h) || !errors.Is(err, mu.is) || !slices.Contains(strings.Split(mu.field, "|"), h.Field) || m.Done() || owner.aborts() != 1 {
				t.Errorf("%s from the %s: got %v (field %q, done %v, %d aborts), want field %q", mu.name, from, err,
					fieldOf(h), m.Done(), owner.aborts(), mu.field)
			}
			if again := m.Input([]byte{1}); again == nil || again != m.Err() || owner.aborts() != 1 {
				t.Errorf("%s from the %s: the error does not stay", mu.name, from)
			}
		}
	}
}

func fieldOf(h *HandshakeError) string {
	if h == nil {
		return ""
	}
	return h.Field
}

func TestMutationsOfNewerLayouts(t *testing.T) {
	for _, c := range []struct {
		layout Layout
		off    int // in the stream of the connector
		value  any
		field  string
	}{
		{Layout226, 32 + 3572, int32(256), "tc"},
		{Layout226, 32 + 3576, int32(-1), "sl"},
		{Layout227, 32 + 3636, int32(1 << 30), "tc"},
		{Layout2297, 32 + 3072, int32(77), "resiliencyInfo[0].qpn"},
		{Layout230, 12 + 36, byte(2), "oooRq"},
		{Layout230, 12, int32(9), "ndevs"},
		{Layout230, 12 + 37 + 3072 + 15*24, int32(77), "resiliencyInfo[15].qpn"},
		{Layout230, 12 + 37 + 4568, int32(300), "sl"},
	} {
		i := slices.IndexFunc(goldens, func(g golden) bool { return g.layout == c.layout && !g.recorded })
		s := goldens[i].load(t)
		_, acc := s.ends(t, c.layout)
		b, _ := binary.Append(nil, binary.LittleEndian, c.value)
		copy(s.fromConn[c.off:], b)
		_, err := play(mustAcceptor(t, c.layout, acc), s.fromConn, whole)
		var h *HandshakeError
		if !errors.As(err, &h) || h.Field != c.field {
			t.Errorf("%s, byte %d: got %v, want field %s", c.layout, c.off, err, c.field)
		}
	}
}

// Each byte of what a peer sends is either checked, or told to the owner, or among those that mean nothing.
func TestEveryByteMatters(t *testing.T) {
	g := golden{"nccl-2.25.1/handshake-merged1to2.txt", Layout225, true}
	s := g.load(t)
	meaningless := func(at int) bool {
		if at < helloLen+20 {
			return at >= helloLen+8 // the connector has one device
		}
		switch o := at - helloLen - 20; {
		case o < 3072:
			return o >= 2*24 && o%24 >= 4
		case o < 3296:
			o -= 3072
			return o >= 56 || o >= 5 && o < 8 || o >= 13 && o < 16 || o >= 36
		case o < 3560:
			return o >= 3296+5
		default:
			return o >= 3572 && o < 3576
		}
	}
	for at := range s.fromConn {
		for _, flip := range []byte{1, 0x80, 0xff} {
			conn, acc := s.ends(t, g.layout)
			stream := bytes.Clone(s.fromConn)
			stream[at] ^= flip
			m := mustAcceptor(t, g.layout, acc)
			_, err := play(m, stream, whole)
			told := m.Done() && (!reflect.DeepEqual(*acc.peer, conn.md) || !reflect.DeepEqual(acc.peerDevs, conn.devs))
			if matters := err != nil || told; matters == meaningless(at) {
				t.Fatalf("byte %d xor %#x: matters %v: %v", at, flip, matters, err)
			}
			if (err != nil) != (acc.aborts() == 1) {
				t.Fatalf("byte %d xor %#x: %v, %d aborts", at, flip, err, acc.aborts())
			}
		}
	}
}

func TestTruncated(t *testing.T) {
	g := goldens[0]
	s := g.load(t)
	for n := range s.fromConn {
		conn, acc := s.ends(t, g.layout)
		check := func(m *Machine, owner *fake, stream []byte, complete bool) {
			t.Helper()
			_, err := play(m, stream, whole)
			if err != nil || m.Done() != complete {
				t.Fatalf("%s, %d bytes: done %v: %v", m.Role(), n, m.Done(), err)
			}
			err = m.Fail(io.EOF)
			if complete {
				if err != nil || owner.aborts() != 0 {
					t.Fatalf("%s, %d bytes: failed after it was done: %v", m.Role(), n, err)
				}
				return
			}
			var h *HandshakeError
			if !errors.As(err, &h) || !errors.Is(err, io.EOF) || owner.aborts() != 1 || m.Fail(io.EOF) != err || len(m.Output()) != 0 {
				t.Fatalf("%s, %d bytes: %v, %d aborts", m.Role(), n, err, owner.aborts())
			}
		}
		check(mustAcceptor(t, g.layout, acc), acc, s.fromConn[:n], false)
		if n <= len(s.fromAcc) {
			check(mustConnector(t, g.layout, s.handle, conn), conn, s.fromAcc[:n], n == len(s.fromAcc))
		}
	}
}

func TestSurplus(t *testing.T) {
	g := goldens[0]
	s := g.load(t)
	d, md := g.layout.DevListLen(), g.layout.MetadataLen()
	for _, c := range []struct {
		role  Role
		upTo  int // bytes of the peer that are in turn
		calls []string
	}{
		{Connector, d, []string{"Devices", "Abort"}},
		{Connector, d + md, []string{"Devices", "Prepare", "Abort"}},
		{Acceptor, helloLen + d, []string{"Abort"}},
		{Acceptor, helloLen + d + md, []string{"Devices", "Abort"}},
		{Acceptor, helloLen + d + md + 4, []string{"Devices", "Establish", "Abort"}},
	} {
		conn, acc := s.ends(t, g.layout)
		m, owner, stream := mustConnector(t, g.layout, s.handle, conn), conn, s.fromAcc
		if c.role == Acceptor {
			m, owner, stream = mustAcceptor(t, g.layout, acc), acc, s.fromConn
		}
		if _, err := play(m, stream[:c.upTo-1], whole); err != nil {
			t.Fatal(err)
		}
		for len(m.Output()) > 0 {
			m.Sent(len(m.Output()))
		}
		err := m.Input([]byte{stream[c.upTo-1], 0x55})
		if !errors.Is(err, ErrSurplus) || !reflect.DeepEqual(owner.calls, c.calls) {
			t.Errorf("%s, a byte after %d: %v, owner was asked %v, want %v", c.role, c.upTo, err, owner.calls, c.calls)
		}
		// Only one layout has more to say after its device list.
		var h *HandshakeError
		if afterList := c.upTo <= helloLen+d; !errors.As(err, &h) ||
			afterList != slices.Equal(h.LooksLike, []Layout{Layout230}) {
			t.Errorf("%s, a byte after %d: %v", c.role, c.upTo, err)
		}
	}
	conn, _ := s.ends(t, g.layout)
	m := mustConnector(t, g.layout, s.handle, conn)
	if err := m.Input(s.fromAcc[:1]); !errors.Is(err, ErrSurplus) {
		t.Errorf("an acceptor that speaks first: %v", err)
	}
	conn, _ = s.ends(t, g.layout)
	m = mustConnector(t, g.layout, s.handle, conn)
	if _, err := play(m, s.fromAcc, whole); err != nil || !m.Done() {
		t.Fatal(err)
	}
	if err := m.Input([]byte{0}); !errors.Is(err, ErrSurplus) || !m.Done() || conn.aborts() != 0 {
		t.Errorf("a byte after ready: %v, done %v, %d aborts", err, m.Done(), conn.aborts())
	}
}

// A peer of another layout is named as far as its bytes show it.
func TestOtherLayouts(t *testing.T) {
	sessions := map[Layout]session{}
	for _, g := range goldens {
		if !g.recorded {
			sessions[g.layout] = g.load(t)
		}
	}
	for ours := range Layout(layouts) {
		for theirs := range Layout(layouts) {
			peer := sessions[theirs]
			same := ours.DevListLen() == theirs.DevListLen() && ours.MetadataLen() == theirs.MetadataLen()
			for _, bytewise := range []bool{false, true} {
				_, acc := sessions[ours].ends(t, ours)
				err := feedLayout(mustAcceptor(t, ours, acc), peer.fromConn, bytewise,
					helloLen, helloLen+theirs.DevListLen(), helloLen+theirs.DevListLen()+theirs.MetadataLen())
				if same {
					if err != nil {
						t.Errorf("%s and %s have the same bytes: %v", ours, theirs, err)
					}
					continue
				}
				var h *HandshakeError
				// Where the last fields lie elsewhere in longer metadata, it is wrong before its own last fields have arrived.
				unknowable := bytewise && ours.DevListLen() == theirs.DevListLen() && ours.MetadataLen() < theirs.MetadataLen() &&
					ours.shape().ndevs != theirs.shape().ndevs
				if !errors.As(err, &h) || slices.Contains(h.LooksLike, theirs) == unknowable {
					t.Errorf("acceptor of %s, connector of %s, bytewise %v: %v", ours, theirs, bytewise, err)
				}
			}
		}
	}
}

// feedLayout gives m a stream that was made for another layout, each message when its sender would send it, and then silence.
func feedLayout(m *Machine, stream []byte, bytewise bool, ends ...int) error {
	at := 0
	for _, end := range ends {
		for at < end {
			for len(m.Output()) > 0 {
				m.Sent(len(m.Output()))
			}
			n := end - at
			if bytewise {
				n = 1
			}
			if err := m.Input(stream[at : at+n]); err != nil {
				return err
			}
			at += n
		}
		sent := len(m.Output()) > 0
		for len(m.Output()) > 0 {
			m.Sent(len(m.Output()))
		}
		if !sent && end != helloLen {
			return m.Fail(os.ErrDeadlineExceeded) // it waits for more and so does the peer
		}
	}
	if err := m.Input(stream[at:]); err != nil {
		return err
	}
	return m.Err()
}

func TestLayoutSeenByConnector(t *testing.T) {
	load := func(l Layout) session {
		i := slices.IndexFunc(goldens, func(g golden) bool { return g.layout == l && !g.recorded })
		return goldens[i].load(t)
	}
	// The acceptor's device list is too short for us, and it waits for our metadata.
	conn, _ := load(Layout230).ends(t, Layout230)
	m := mustConnector(t, Layout230, load(Layout230).handle, conn)
	if _, err := play(m, load(Layout225).fromAcc[:20], whole); err != nil {
		t.Fatal(err)
	}
	var h *HandshakeError
	if errors.As(m.Fail(os.ErrDeadlineExceeded), &h); !slices.Contains(h.LooksLike, Layout225) || slices.Contains(h.LooksLike, Layout230) {
		t.Errorf("short device list: %v", h)
	}
	// The acceptor's metadata is too short for us, then it closes as our ready is not 1 for it.
	conn, _ = load(Layout226).ends(t, Layout226)
	m = mustConnector(t, Layout226, load(Layout226).handle, conn)
	if _, err := play(m, load(Layout225).fromAcc, whole); err != nil {
		t.Fatal(err)
	}
	if errors.As(m.Fail(ErrPeerClosed), &h); !slices.Equal(h.LooksLike, []Layout{Layout225}) {
		t.Errorf("short metadata: %v", h)
	}
	// An acceptor of a newer layout says nothing after its device list.
	conn, _ = load(Layout225).ends(t, Layout225)
	m = mustConnector(t, Layout225, load(Layout225).handle, conn)
	if _, err := play(m, load(Layout225).fromAcc[:20], whole); err != nil {
		t.Fatal(err)
	}
	if errors.As(m.Fail(os.ErrDeadlineExceeded), &h); !strings.Contains(h.Hint, "longer metadata") {
		t.Errorf("no metadata: %v", h)
	}
}

func TestPeerBeforeDeviceLists(t *testing.T) {
	s := goldens[0].load(t)
	_, acc := s.ends(t, Layout225)
	m := mustAcceptor(t, Layout225, acc)
	// NCCL 2.23.4 sends its metadata at once.
	err := m.Input(slices.Concat(s.fromConn[:helloLen], s.fromConn[helloLen+20:][:3336]))
	if !errors.Is(err, ErrField) || !strings.Contains(err.Error(), "2.23.4") {
		t.Errorf("got %v", err)
	}
}

func TestDisagreement(t *testing.T) {
	g := goldens[1] // four queue pairs
	s := g.load(t)
	t.Run("connector", func(t *testing.T) {
		conn, _ := s.ends(t, g.layout)
		conn.md.QPs = conn.md.QPs[:2]
		_, err := play(mustConnector(t, g.layout, s.handle, conn), s.fromAcc, whole)
		if !errors.Is(err, ErrDisagree) || !strings.Contains(err.Error(), "QPS_PER_CONNECTION") || !strings.Contains(err.Error(), "both ends") {
			t.Errorf("got %v", err)
		}
		if slices.Contains(conn.calls, "Ready") {
			t.Error("queue pairs were made ready")
		}
	})
	t.Run("acceptor's owner", func(t *testing.T) {
		_, acc := s.ends(t, g.layout)
		acc.md.QPs = acc.md.QPs[:2]
		m := mustAcceptor(t, g.layout, acc)
		_, err := play(m, s.fromConn, whole)
		if !errors.Is(err, ErrDisagree) || acc.aborts() != 1 {
			t.Errorf("got %v, %d aborts", err, acc.aborts())
		}
	})
	t.Run("link layer", func(t *testing.T) {
		conn, _ := s.ends(t, g.layout)
		conn.md.Devs[0].LinkLayer, conn.md.Devs[0].LID = LinkInfiniBand, 7
		_, err := play(mustConnector(t, g.layout, s.handle, conn), s.fromAcc, whole)
		if !errors.Is(err, ErrDisagree) || !strings.Contains(err.Error(), "InfiniBand here, Ethernet at the peer") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("not a multiple of the devices", func(t *testing.T) {
		s := golden{"nccl-2.25.1/handshake-merged1to2.txt", Layout225, true}.load(t)
		conn, acc := s.ends(t, g.layout)
		conn.md.QPs = append(conn.md.QPs, QPInfo{QPN: 999})
		b, err := conn.md.Append(Layout225, Connector, nil)
		if err != nil {
			t.Fatal(err)
		}
		copy(s.fromConn[helloLen+20:], b)
		_, err = play(mustAcceptor(t, g.layout, acc), s.fromConn, whole)
		if !errors.Is(err, ErrField) || !strings.Contains(err.Error(), "number of queue pairs is 3, want a multiple of 2") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("device list and metadata", func(t *testing.T) {
		s := golden{"nccl-2.25.1/handshake-merged1to2.txt", Layout225, true}.load(t)
		conn, _ := s.ends(t, g.layout)
		s.fromAcc[0] = 1
		_, err := play(mustConnector(t, g.layout, s.handle, conn), s.fromAcc, whole)
		if !errors.Is(err, ErrField) || !strings.Contains(err.Error(), "ndevs is 2, want 1, as the device list had") {
			t.Errorf("got %v", err)
		}
	})
}

func TestOwnerFails(t *testing.T) {
	g := goldens[0]
	s := g.load(t)
	boom := errors.New("no queue pair left")
	for _, call := range []string{"Prepare", "Ready", "Establish"} {
		conn, acc := s.ends(t, g.layout)
		m, owner, stream := mustConnector(t, g.layout, s.handle, conn), conn, s.fromAcc
		if call == "Establish" {
			m, owner, stream = mustAcceptor(t, g.layout, acc), acc, s.fromConn
		}
		owner.err = map[string]error{call: boom}
		_, err := play(m, stream, whole)
		if !errors.Is(err, boom) || m.Done() || owner.aborts() != 1 || len(m.Output()) != 0 {
			t.Errorf("%s: %v, done %v, %d aborts, %d bytes to send", call, err, m.Done(), owner.aborts(), len(m.Output()))
		}
	}
}

// What an owner gets wrong about itself does not leave the process.
func TestOwnerIsChecked(t *testing.T) {
	g := goldens[0]
	s := g.load(t)
	for name, spoil := range map[string]func(*fake){
		"no queue pairs":   func(f *fake) { f.md.QPs = nil },
		"129 queue pairs":  func(f *fake) { f.md.QPs = make([]QPInfo, 129) },
		"queue pair twice": func(f *fake) { f.md.QPs = append(f.md.QPs, f.md.QPs[0]) },
		"two devices": func(f *fake) {
			f.md.Devs = append(f.md.Devs, f.md.Devs[0])
			f.md.QPs = append(f.md.QPs, QPInfo{QPN: 99, DevIndex: 1})
		},
		"mixed link layers": func(f *fake) {
			f.md.Devs = append(f.md.Devs, DevInfo{LID: 1, Port: 1, MTU: 1, LinkLayer: LinkInfiniBand, FIFORKey: 1})
		},
		"long name":     func(f *fake) { f.md.DevName = strings.Repeat("x", 260) },
		"traffic class": func(f *fake) { f.md.TrafficClass = 1 },
		"no FIFO":       func(f *fake) { f.md.FIFOAddr = 0 },
	} {
		conn, acc := s.ends(t, g.layout)
		spoil(conn)
		spoil(acc)
		if sent, err := play(mustConnector(t, g.layout, s.handle, conn), s.fromAcc, whole); err == nil || len(sent) > helloLen+20 || conn.aborts() != 1 {
			t.Errorf("%s: connector sent %d bytes: %v", name, len(sent), err)
		}
		if sent, err := play(mustAcceptor(t, g.layout, acc), s.fromConn, whole); err == nil || len(sent) > 20 || acc.aborts() != 1 {
			t.Errorf("%s: acceptor sent %d bytes: %v", name, len(sent), err)
		}
	}
	for name, devs := range map[string]DevList{"no devices": {}, "five": {Devs: make([]int32, 5)}, "negative": {Devs: []int32{-1}}} {
		f := &fake{devs: devs}
		if _, err := NewConnector(g.layout, s.handle, f); !errors.Is(err, ErrField) || f.aborts() != 1 {
			t.Errorf("connector with %s: %v", name, err)
		}
		f = &fake{devs: devs}
		if _, err := play(mustAcceptor(t, g.layout, f), s.fromConn, whole); !errors.Is(err, ErrField) || f.aborts() != 1 {
			t.Errorf("acceptor with %s: %v", name, err)
		}
	}
	f := &fake{devs: DevList{Devs: []int32{0}}}
	if _, err := NewConnector(Layout(200), s.handle, f); err == nil || f.aborts() != 1 {
		t.Errorf("connector of no layout: %v", err)
	}
	if _, err := NewAcceptor(Layout(200), Magic, f); err == nil || f.aborts() != 2 {
		t.Errorf("acceptor of no layout: %v", err)
	}
}

func TestStates(t *testing.T) {
	s := goldens[0].load(t)
	conn, acc := s.ends(t, Layout225)
	for _, c := range []struct {
		m      *Machine
		stream []byte
		want   []State
	}{
		{mustConnector(t, Layout225, s.handle, conn), s.fromAcc,
			[]State{StateConnect, StateSendDevList, StateRecvDevList, StateSend, StateConnecting, StateConnected}},
		{mustAcceptor(t, Layout225, acc), s.fromConn,
			[]State{StateAccept, StateRecvDevList, StateSendDevList, StateRecv, StateSend, StatePendingReady}},
	} {
		seen := []State{c.m.State()}
		note := func() {
			if st := c.m.State(); st != seen[len(seen)-1] {
				seen = append(seen, st)
			}
		}
		for !c.m.Done() {
			if len(c.m.Output()) > 0 {
				c.m.Sent(1)
			} else if err := c.m.Input(c.stream[:1]); err != nil {
				t.Fatal(err)
			} else {
				c.stream = c.stream[1:]
			}
			note()
		}
		if !slices.Equal(seen, c.want) {
			t.Errorf("%s: states %v, want %v", c.m.Role(), seen, c.want)
		}
	}
	if StateStart.String() != "Start" || State(2).String() != "State(2)" || State(99).String() != "State(99)" {
		t.Error("names of states")
	}
}
