package socketboot

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
)

// FuzzMetadata: what is accepted can be sent on and means the same.
func FuzzMetadata(f *testing.F) {
	for _, g := range goldens {
		s := g.load(f)
		_, conn, _, acc := s.parts(g.layout)
		f.Add(uint8(g.layout), false, conn)
		f.Add(uint8(g.layout), true, acc)
	}
	f.Fuzz(func(t *testing.T, layout uint8, acceptor bool, b []byte) {
		l, from := Layout(layout%uint8(layouts)), Connector
		if acceptor {
			from = Acceptor
		}
		m, err := DecodeMetadata(l, from, b)
		if err != nil {
			return
		}
		again, err := m.Append(l, from, nil)
		if err != nil {
			t.Fatalf("accepted, but cannot be sent: %v", err)
		}
		m2, err := DecodeMetadata(l, from, again)
		if err != nil || !reflect.DeepEqual(m, m2) {
			t.Fatalf("%+v became %+v: %v", m, m2, err)
		}
		for _, q := range m.QPs {
			_ = m.Devs[q.DevIndex]
		}
	})
}

func FuzzConnector(f *testing.F) { fuzzMachine(f, Connector) }
func FuzzAcceptor(f *testing.F)  { fuzzMachine(f, Acceptor) }

// fuzzMachine: whatever the peer says, however it is cut, an end asks its owner for each thing once and in order, aborts exactly
// when it fails, and sends no more than its messages.
func fuzzMachine(f *testing.F, role Role) {
	sessions := map[Layout]session{}
	for _, g := range goldens {
		s := g.load(f)
		sessions[g.layout] = s
		stream := s.fromConn
		if role == Connector {
			stream = s.fromAcc
		}
		f.Add(uint8(g.layout), uint16(0), stream)
		f.Add(uint8(g.layout), uint16(1000), stream)
	}
	f.Fuzz(func(t *testing.T, layout uint8, cut uint16, stream []byte) {
		l := Layout(layout % uint8(layouts))
		s := sessions[l]
		conn, acc := s.ends(t, l)
		m, owner, want, whole := mustConnector(t, l, s.handle, conn), conn, []string{"Devices", "Prepare", "Ready"}, s.fromConn
		if role == Acceptor {
			m, owner, want, whole = mustAcceptor(t, l, acc), acc, []string{"Devices", "Establish"}, s.fromAcc
		}
		sent, err := play(m, stream, func(int, int) int { return int(cut) })
		if !bytes.HasPrefix(whole, sent) {
			t.Fatal("other bytes were sent than those of the session")
		}
		if m.Done() {
			if err != nil || !slices.Equal(owner.calls, want) || len(sent) != len(whole) {
				t.Fatalf("done: %v, owner was asked %v, %d bytes sent", err, owner.calls, len(sent))
			}
			return
		}
		if m.Fail(ErrPeerClosed) == nil || owner.aborts() != 1 || len(m.Output()) != 0 {
			t.Fatalf("not done: %v, %d aborts", m.Err(), owner.aborts())
		}
		calls := owner.calls[:len(owner.calls)-1]
		if len(calls) > len(want) || !slices.Equal(calls, want[:len(calls)]) {
			t.Fatalf("owner was asked %v", owner.calls)
		}
	})
}

func FuzzHandle(f *testing.F) {
	s := goldens[0].load(f)
	f.Add(s.handle[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHandle(b)
		if err == nil && (!h.Addr().IsValid() || h.Addr().Port() == 0 || h.Magic() == 0) {
			t.Errorf("accepted %s, magic %d", h.Addr(), h.Magic())
		}
	})
}
