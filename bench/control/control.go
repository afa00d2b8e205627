// Package control is how the two ends of a benchmark talk beside the data: JSON, one message a line, over any [net.Conn].
//
// The first line each end writes is its [Hello]; ends of another protocol or version are refused before anything else is read.
// Lines are bounded, writes have deadlines, and nobody may speak more than a few lines ahead. A peer's failure arrives as a line,
// its death as the end of the stream; either ends [Conn.Context], so that an end that waits for data learns of it at once.
package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
)

// MaxLine is the longest line in bytes, the newline not counted.
const MaxLine = 256 << 10

// ahead is how many lines a peer may send that nobody has asked for yet.
const ahead = 8

// writeTimeout is for one line: a peer that reads nothing does not hold us up.
const writeTimeout = 10 * time.Second

// Hello opens the conversation. Protocol and Version have to be equal on both ends; Build only helps whoever reads the error.
type Hello struct {
	Protocol string `json:"protocol"`
	Version  int    `json:"version"`
	Build    string `json:"build,omitempty"`
}

// message is a line: a type, and a body that belongs to it.
type message struct {
	Type string          `json:"type"`
	Body json.RawMessage `json:"body,omitempty"`
}

const (
	typeHello = "hello"
	typeError = "error"
)

// maxErrorText bounds what of a peer's error text is kept.
const maxErrorText = 4 << 10

type errorBody struct {
	Text string `json:"text"`
}

// ErrProtocol is in the error when what arrives is not this protocol.
var ErrProtocol = errors.New("not this benchmark's control protocol")

// PeerError is a failure that the other end told.
type PeerError struct {
	Peer string
	Text string
}

// Error names the peer and quotes it.
func (e *PeerError) Error() string {
	return fmt.Sprintf("the other end (%s) failed: %s", e.Peer, e.Text)
}

// Conn is one end. Send and Recv may each be used by one goroutine at a time; Fail and Close by any.
type Conn struct {
	nc   net.Conn
	peer string
	in   chan message
	ctx  context.Context
	end  context.CancelCauseFunc
	read sync.WaitGroup

	write  sync.Mutex
	closed sync.Once
}

// New takes nc over, says hello and waits until the deadline of ctx for the peer's. peer is how errors call the other end. An
// error closes nc.
func New(ctx context.Context, nc net.Conn, peer string, hello Hello) (*Conn, error) {
	c := &Conn{nc: nc, peer: peer, in: make(chan message, ahead)}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	c.read.Go(c.reader)
	if err := c.greet(ctx, hello); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) greet(ctx context.Context, hello Hello) error {
	if err := c.Send(typeHello, hello); err != nil {
		return err
	}
	var theirs Hello
	if err := c.Recv(ctx, typeHello, &theirs); err != nil {
		return err
	}
	if theirs.Protocol != hello.Protocol {
		return fmt.Errorf("%s speaks %.40q, this is %q: %w", c.peer, theirs.Protocol, hello.Protocol, ErrProtocol)
	}
	if theirs.Version != hello.Version {
		err := fmt.Errorf("%s has version %d of the control protocol (%.80s), this end version %d (%s); use the same build on both ends: %w",
			c.peer, theirs.Version, theirs.Build, hello.Version, hello.Build, ErrProtocol)
		c.Fail(err)
		return err
	}
	return nil
}

// Peer is how errors call the other end.
func (c *Conn) Peer() string { return c.peer }

// Context ends when the peer has failed, has gone, or broke the protocol; its cause says which.
func (c *Conn) Context() context.Context { return c.ctx }

// reader hands lines on until the stream ends. What it sees last is the cause of the context's end.
func (c *Conn) reader() {
	defer close(c.in)
	lines := bufio.NewScanner(c.nc)
	lines.Buffer(make([]byte, 0, 4<<10), MaxLine+1)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.Type == "" {
			c.end(fmt.Errorf("%s sent %.60q: %w", c.peer, lines.Bytes(), ErrProtocol))
			return
		}
		if m.Type == typeError {
			var b errorBody
			_ = json.Unmarshal(m.Body, &b) // an error that cannot be read is an error all the same
			c.end(&PeerError{Peer: c.peer, Text: b.Text[:min(len(b.Text), maxErrorText)]})
			return
		}
		select {
		case c.in <- m:
		default:
			c.end(fmt.Errorf("%s sent %d messages that nobody waited for: %w", c.peer, ahead+1, ErrProtocol))
			return
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		c.end(fmt.Errorf("%s sent a line of more than %d bytes: %w", c.peer, MaxLine, ErrProtocol))
	case err != nil:
		c.end(fmt.Errorf("control connection to %s: %w", c.peer, err))
	default:
		c.end(fmt.Errorf("%s ended the control connection: it finished early, was stopped or killed: %w", c.peer, io.ErrUnexpectedEOF))
	}
}

// Send writes one message.
func (c *Conn) Send(kind string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("control message %s: %w", kind, err)
	}
	line, err := json.Marshal(message{Type: kind, Body: raw})
	if err != nil {
		return fmt.Errorf("control message %s: %w", kind, err)
	}
	if len(line) > MaxLine {
		return fmt.Errorf("control message %s of %d bytes is longer than %d", kind, len(line), MaxLine)
	}
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.nc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return c.cause(err)
	}
	if _, err := c.nc.Write(append(line, '\n')); err != nil {
		return c.cause(err)
	}
	return nil
}

// lastWord is how long a failed write waits for the reader to see why.
const lastWord = time.Second

// cause prefers what the peer said or did over what this end's socket felt of it, which may come a moment earlier.
func (c *Conn) cause(err error) error {
	select {
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	case <-time.After(lastWord):
	}
	return fmt.Errorf("control connection to %s: %w", c.peer, err)
}

// Next waits for the next message. Its type is for the caller to judge, its body for Decode. What has arrived comes before the end of
// ctx: a peer that says its last word and goes, and so ends ctx, is heard.
func (c *Conn) Next(ctx context.Context) (kind string, body Body, err error) {
	select {
	case m, ok := <-c.in:
		return c.next(m, ok)
	case <-ctx.Done():
	}
	select {
	case m, ok := <-c.in:
		return c.next(m, ok)
	default:
	}
	return "", nil, fmt.Errorf("%s did not answer: %w", c.peer, cause.Of(ctx))
}

func (c *Conn) next(m message, ok bool) (string, Body, error) {
	if !ok {
		return "", nil, context.Cause(c.ctx)
	}
	return m.Type, Body(m.Body), nil
}

// Recv waits for a message of one type and decodes its body into v, which may be nil where the type says it all.
func (c *Conn) Recv(ctx context.Context, kind string, v any) error {
	got, body, err := c.Next(ctx)
	if err != nil {
		return err
	}
	if got != kind {
		return fmt.Errorf("%s sent %.40q where %q was due: %w", c.peer, got, kind, ErrProtocol)
	}
	if v == nil {
		return nil
	}
	if err := body.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", c.peer, err)
	}
	return nil
}

// Body is the body of a message, from the peer and not yet checked.
type Body json.RawMessage

// Decode is json.Unmarshal with an error of this protocol. Values still have to be checked.
func (b Body) Decode(v any) error {
	if len(b) == 0 {
		b = Body("null")
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("body %.60q (%v): %w", string(b), err, ErrProtocol)
	}
	return nil
}

// Fail tells the peer why this end gives up. It does its best and reports nothing: the failure itself is the news.
func (c *Conn) Fail(why error) {
	text := why.Error()
	_ = c.Send(typeError, errorBody{Text: text[:min(len(text), maxErrorText)]})
}

// Close ends the conversation and waits for the reader. The peer sees the end of the stream.
func (c *Conn) Close() error {
	var err error
	c.closed.Do(func() { err = c.nc.Close() })
	c.read.Wait()
	return err
}
