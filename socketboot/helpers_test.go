package socketboot

import (
	"bufio"
	"encoding/hex"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// session is both directions of one handshake, as recorded or derived.
type session struct {
	handle   Handle
	fromConn []byte
	fromAcc  []byte
}

var handleRow = regexp.MustCompile(`^ *(\d+) +(\d+) +.*? {2,}([0-9a-f]+)(?: |$)`)

// loadSession reads the notation of testdata: rows of fields for the handle, dumps for the streams.
func loadSession(t testing.TB, path string) session {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s session
	var stream *[]byte
	inHandle, star := false, false
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "== "):
			inHandle = strings.HasPrefix(line, "== handle")
			stream = nil
			switch line {
			case "== all bytes, connector to acceptor":
				stream = &s.fromConn
			case "== all bytes, acceptor to connector":
				stream = &s.fromAcc
			}
		case inHandle && handleRow.MatchString(line):
			m := handleRow.FindStringSubmatch(line)
			off, _ := strconv.Atoi(m[1])
			b, err := hex.DecodeString(m[3])
			if err != nil {
				t.Fatalf("%s: %q: %v", path, line, err)
			}
			copy(s.handle[off:], b)
		case stream != nil && line == "*":
			star = true
		case stream != nil && line != "":
			fields := strings.Fields(line)
			off, err := strconv.ParseInt(fields[0], 16, 64)
			if err != nil {
				t.Fatalf("%s: %q: %v", path, line, err)
			}
			for star && len(*stream) < int(off) {
				*stream = append(*stream, (*stream)[len(*stream)-16:]...)
			}
			star = false
			if len(*stream) != int(off) {
				t.Fatalf("%s: %q: have %d bytes", path, line, len(*stream))
			}
			b, err := hex.DecodeString(strings.Join(fields[1:], ""))
			if err != nil {
				t.Fatalf("%s: %q: %v", path, line, err)
			}
			*stream = append(*stream, b...)
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

// parts cuts a session into its messages.
func (s session) parts(l Layout) (connDevs, connMeta, accDevs, accMeta []byte) {
	d, m := l.DevListLen(), l.MetadataLen()
	c := s.fromConn[helloLen:]
	return c[:d], c[d : d+m], s.fromAcc[:d], s.fromAcc[d : d+m]
}

// fake is the owner of either end. It records what it was asked.
type fake struct {
	devs DevList
	md   Metadata
	err  map[string]error // by call
	hook func(call string)

	mu       sync.Mutex
	calls    []string
	peerDevs DevList
	peer     *Metadata
	aborted  []error
}

func (f *fake) called(name string) error {
	f.mu.Lock()
	f.calls = append(f.calls, name)
	f.mu.Unlock()
	if f.hook != nil {
		f.hook(name)
	}
	return f.err[name]
}

func (f *fake) Devices() DevList {
	_ = f.called("Devices")
	return f.devs
}

func (f *fake) Prepare(peer DevList) (Metadata, error) {
	f.peerDevs = peer
	return f.md, f.called("Prepare")
}

func (f *fake) Ready(peer *Metadata) error {
	f.peer = peer
	return f.called("Ready")
}

func (f *fake) Establish(peer DevList, meta *Metadata) (Metadata, error) {
	f.peerDevs, f.peer = peer, meta
	return f.md, f.called("Establish")
}

func (f *fake) Abort(reason error) {
	_ = f.called("Abort")
	f.mu.Lock()
	f.aborted = append(f.aborted, reason)
	f.mu.Unlock()
}

func (f *fake) aborts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.aborted)
}

// ends makes the owners of both ends of a session: they say what was recorded.
func (s session) ends(t testing.TB, l Layout) (conn, acc *fake) {
	t.Helper()
	cd, cm, ad, am := s.parts(l)
	conn, acc = &fake{}, &fake{}
	var err [4]error
	conn.devs, err[0] = decodeDevList(l, cd)
	conn.md, err[1] = DecodeMetadata(l, Connector, cm)
	acc.devs, err[2] = decodeDevList(l, ad)
	acc.md, err[3] = DecodeMetadata(l, Acceptor, am)
	for _, e := range err {
		if e != nil {
			t.Fatal(e)
		}
	}
	return conn, acc
}

func mustConnector(t testing.TB, l Layout, h Handle, f *fake) *Machine {
	t.Helper()
	m, err := NewConnector(l, h, f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustAcceptor(t testing.TB, l Layout, f *fake) *Machine {
	t.Helper()
	m, err := NewAcceptor(l, Magic, f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// play runs m against what its peer sent, each message cut where cut says (lengths are taken modulo what is wanted, 0 means all),
// and returns what m sent. It stops when the stream is used up or m is finished.
func play(m *Machine, peer []byte, cut func(at, wanted int) int) (sent []byte, err error) {
	at := 0
	for m.Err() == nil && !m.Done() {
		if out := m.Output(); len(out) > 0 {
			sent = append(sent, out...)
			m.Sent(len(out))
			continue
		}
		n := min(m.wants(), len(peer)-at)
		if n == 0 {
			return sent, nil
		}
		if c := cut(at, n); c > 0 && c < n {
			n = c
		}
		if err := m.Input(peer[at : at+n]); err != nil {
			return sent, err
		}
		at += n
	}
	return sent, m.Err()
}

func whole(int, int) int { return 0 }
