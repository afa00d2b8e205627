package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var hello = Hello{Protocol: "test", Version: 3, Build: "here"}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// pair is two ends that have said hello.
func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	x, y := net.Pipe()
	made := make(chan error)
	go func() {
		var err error
		b, err = New(deadline(t), y, "A", hello)
		made <- err
	}()
	a, err := New(deadline(t), x, "B", hello)
	if err = errors.Join(err, <-made); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a, b
}

func TestConversation(t *testing.T) {
	a, b := pair(t)
	type question struct {
		N    int
		Data []byte
	}
	if err := a.Send("ask", question{N: 7, Data: []byte{0, 255}}); err != nil {
		t.Fatal(err)
	}
	var q question
	if err := b.Recv(deadline(t), "ask", &q); err != nil || q.N != 7 || !bytes.Equal(q.Data, []byte{0, 255}) {
		t.Fatalf("%+v, %v", q, err)
	}
	if err := b.Send("bye", nil); err != nil {
		t.Fatal(err)
	}
	kind, body, err := a.Next(deadline(t))
	if kind != "bye" || err != nil || body.Decode(&struct{}{}) != nil {
		t.Fatalf("%q %q %v", kind, body, err)
	}
}

func TestFailureOfThePeer(t *testing.T) {
	a, b := pair(t)
	b.Fail(errors.New("device on fire"))
	var e *PeerError
	if err := a.Recv(deadline(t), "ready", nil); !errors.As(err, &e) || e.Text != "device on fire" || e.Peer != "B" {
		t.Errorf("Recv: %v", err)
	}
	<-a.Context().Done()
	if err := context.Cause(a.Context()); !errors.As(err, &e) {
		t.Errorf("cause: %v", err)
	}
}

func TestDeathOfThePeer(t *testing.T) {
	a, b := pair(t)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	<-a.Context().Done()
	err := a.Recv(deadline(t), "ready", nil)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "B ended the control connection") {
		t.Errorf("Recv: %v", err)
	}
	if err := a.Send("x", nil); err == nil || !strings.Contains(err.Error(), "B ended") {
		t.Errorf("Send: %v", err)
	}
}

func TestWhatIsDueComesFirst(t *testing.T) {
	a, b := pair(t)
	for range ahead {
		if err := b.Send("last words", nil); err != nil {
			t.Fatal(err)
		}
	}
	_ = b.Close()
	<-a.Context().Done()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range ahead { // several, since of two ready cases select takes either
		if kind, _, err := a.Next(over); kind != "last words" {
			t.Fatalf("%q, %v", kind, err)
		}
	}
}

func TestSilentPeer(t *testing.T) {
	a, _ := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := a.Recv(ctx, "ready", nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "B did not answer") {
		t.Error(err)
	}
}

// raw is an end under test against bytes.
func raw(t *testing.T, sent string) error {
	t.Helper()
	x, y := net.Pipe()
	defer func() { _ = y.Close() }()
	go func() { _, _ = io.Copy(io.Discard, y) }()
	go func() { _, _ = io.WriteString(y, sent) }()
	c, err := New(deadline(t), x, "stranger", hello)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	for err == nil {
		_, _, err = c.Next(deadline(t))
	}
	return err
}

func TestStrangers(t *testing.T) {
	good := `{"type":"hello","body":{"protocol":"test","version":3}}` + "\n"
	for _, test := range []struct{ name, sent, want string }{
		{"an HTTP client", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP"},
		{"bytes", "\x00\x01\x02\xff\n", ErrProtocol.Error()},
		{"an empty line", "\n", ErrProtocol.Error()},
		{"no type", "{}\n", ErrProtocol.Error()},
		{"a number", "7\n", ErrProtocol.Error()},
		{"no hello", `{"type":"open"}` + "\n", `"open" where "hello" was due`},
		{"another protocol", `{"type":"hello","body":{"protocol":"iperf","version":3}}` + "\n", `speaks "iperf"`},
		{"another version", `{"type":"hello","body":{"protocol":"test","version":4,"build":"v9"}}` + "\n", "version 4 of the control protocol (v9), this end version 3"},
		{"a hello that is none", `{"type":"hello","body":[1]}` + "\n", ErrProtocol.Error()},
		{"a hello without body", `{"type":"hello"}` + "\n", `speaks ""`},
		{"a long line", good + `{"type":"` + strings.Repeat("x", MaxLine) + `"}` + "\n", "a line of more than"},
		{"an endless line", strings.Repeat("x", 2*MaxLine), "a line of more than"},
		{"too eager", good + strings.Repeat(`{"type":"x"}`+"\n", 100), ""},
		{"an error that is none", good + `{"type":"error","body":7}` + "\n", "failed: "},
		{"a long error", good + `{"type":"error","body":{"text":"` + strings.Repeat("x", 100_000) + `"}}` + "\n", "failed: xxx"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := raw(t, test.sent)
			if err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 5000 {
				t.Errorf("%.300v, want %q", err, test.want)
			}
		})
	}
}

// One who floods is cut off, not buffered.
func TestFlood(t *testing.T) {
	a, b := pair(t)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = b.Send("again", nil)
		if a.Context().Err() != nil {
			break
		}
	}
	<-a.Context().Done()
	if cause := context.Cause(a.Context()); !errors.Is(cause, ErrProtocol) || !strings.Contains(cause.Error(), "nobody waited for") {
		t.Error(cause)
	}
}

func TestTooLongToSend(t *testing.T) {
	a, _ := pair(t)
	if err := a.Send("big", strings.Repeat("x", MaxLine)); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("%.100v", err)
	}
}

func FuzzPeer(f *testing.F) {
	f.Add([]byte(`{"type":"hello","body":{"protocol":"test","version":3}}` + "\n" + `{"type":"x"}` + "\n"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		x, y := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, y) }()
		go func() {
			_, _ = y.Write(sent)
			_ = y.Close()
		}()
		c, err := New(deadline(t), x, "stranger", hello)
		if err != nil {
			return
		}
		for err == nil {
			_, _, err = c.Next(deadline(t))
		}
		_ = c.Close()
	})
}
