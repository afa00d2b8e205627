package transport

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport/driver"
)

// tapped records what a rank sends.
type tapped struct {
	bootstrap.Job
	mu   sync.Mutex
	sent []string
}

func (j *tapped) Send(ctx context.Context, to int, tag uint32, b []byte) error {
	blobs := "-"
	if len(b) > 0 {
		m, err := decodeMessage(b)
		if err != nil {
			return err
		}
		blobs = fmt.Sprintf("%dr%ds", len(m.recv), len(m.send))
		for i, blob := range append(m.recv, m.send...) { // channels in order, receiving ends first
			channel, send := int(blob[24]), blob[32] == 1
			if want := i % max(len(m.recv), len(m.send)); channel != want || send != (i >= len(m.recv)) {
				return fmt.Errorf("blob %d is of channel %d, send %v", i, channel, send)
			}
		}
	}
	j.mu.Lock()
	j.sent = append(j.sent, fmt.Sprintf("%d:%#x:%s", to, tag, blobs))
	j.mu.Unlock()
	return j.Job.Send(ctx, to, tag, b)
}

// What each rank sends, worked out by hand, rank by rank, from NCCL's loop: "to:tag:blobs", with "2r2s" for the blobs of two receiving ends
// and then two sending ones, and "-" for the empty message at the end. Tags are step << 8, and 0x80 more at the end; a ring's have 1 more.
// In a step the blobs for rank − step go first, those for rank + step second; at the end it is the other way round.
var sequences = []struct {
	n, channels int
	mesh        bool
	want        []string
}{
	// Two ranks: rank − 1 and rank + 1 are the same, one message.
	{2, 2, false, []string{
		"1:0x101:2r2s 1:0x181:-",
		"0:0x101:2r2s 0:0x181:-",
	}},
	// Rings touch step 1 alone: to the rank before what is received there, to the next what is sent.
	{3, 2, false, []string{
		"2:0x101:2r0s 1:0x101:0r2s 1:0x181:- 2:0x181:-",
		"0:0x101:2r0s 2:0x101:0r2s 2:0x181:- 0:0x181:-",
		"1:0x101:2r0s 0:0x101:0r2s 0:0x181:- 1:0x181:-",
	}},
	{4, 1, false, []string{
		"3:0x101:1r0s 1:0x101:0r1s 1:0x181:- 3:0x181:-",
		"0:0x101:1r0s 2:0x101:0r1s 2:0x181:- 0:0x181:-",
		"1:0x101:1r0s 3:0x101:0r1s 3:0x181:- 1:0x181:-",
		"2:0x101:1r0s 0:0x101:0r1s 0:0x181:- 2:0x181:-",
	}},
	{5, 1, false, []string{
		"4:0x101:1r0s 1:0x101:0r1s 1:0x181:- 4:0x181:-",
		"0:0x101:1r0s 2:0x101:0r1s 2:0x181:- 0:0x181:-",
		"1:0x101:1r0s 3:0x101:0r1s 3:0x181:- 1:0x181:-",
		"2:0x101:1r0s 4:0x101:0r1s 4:0x181:- 2:0x181:-",
		"3:0x101:1r0s 0:0x101:0r1s 0:0x181:- 3:0x181:-",
	}},
	{8, 4, false, []string{
		"7:0x101:4r0s 1:0x101:0r4s 1:0x181:- 7:0x181:-",
		"0:0x101:4r0s 2:0x101:0r4s 2:0x181:- 0:0x181:-",
		"1:0x101:4r0s 3:0x101:0r4s 3:0x181:- 1:0x181:-",
		"2:0x101:4r0s 4:0x101:0r4s 4:0x181:- 2:0x181:-",
		"3:0x101:4r0s 5:0x101:0r4s 5:0x181:- 3:0x181:-",
		"4:0x101:4r0s 6:0x101:0r4s 6:0x181:- 4:0x181:-",
		"5:0x101:4r0s 7:0x101:0r4s 7:0x181:- 5:0x181:-",
		"6:0x101:4r0s 0:0x101:0r4s 0:0x181:- 6:0x181:-",
	}},
	{2, 1, true, []string{
		"1:0x100:1r1s 1:0x180:-",
		"0:0x100:1r1s 0:0x180:-",
	}},
	{3, 1, true, []string{
		"2:0x100:1r0s 1:0x100:0r1s 1:0x200:1r0s 2:0x200:0r1s 1:0x180:- 2:0x180:- 2:0x280:- 1:0x280:-",
		"0:0x100:1r0s 2:0x100:0r1s 2:0x200:1r0s 0:0x200:0r1s 2:0x180:- 0:0x180:- 0:0x280:- 2:0x280:-",
		"1:0x100:1r0s 0:0x100:0r1s 0:0x200:1r0s 1:0x200:0r1s 0:0x180:- 1:0x180:- 1:0x280:- 0:0x280:-",
	}},
	// With an even number of ranks both peers are the same in the step in the middle.
	{4, 2, true, []string{
		"3:0x100:2r0s 1:0x100:0r2s 2:0x200:2r2s 1:0x300:2r0s 3:0x300:0r2s 1:0x180:- 3:0x180:- 2:0x280:- 3:0x380:- 1:0x380:-",
		"0:0x100:2r0s 2:0x100:0r2s 3:0x200:2r2s 2:0x300:2r0s 0:0x300:0r2s 2:0x180:- 0:0x180:- 3:0x280:- 0:0x380:- 2:0x380:-",
		"1:0x100:2r0s 3:0x100:0r2s 0:0x200:2r2s 3:0x300:2r0s 1:0x300:0r2s 3:0x180:- 1:0x180:- 0:0x280:- 1:0x380:- 3:0x380:-",
		"2:0x100:2r0s 0:0x100:0r2s 1:0x200:2r2s 0:0x300:2r0s 2:0x300:0r2s 0:0x180:- 2:0x180:- 1:0x280:- 2:0x380:- 0:0x380:-",
	}},
	{5, 1, true, []string{
		"4:0x100:1r0s 1:0x100:0r1s 3:0x200:1r0s 2:0x200:0r1s 2:0x300:1r0s 3:0x300:0r1s 1:0x400:1r0s 4:0x400:0r1s " +
			"1:0x180:- 4:0x180:- 2:0x280:- 3:0x280:- 3:0x380:- 2:0x380:- 4:0x480:- 1:0x480:-",
		"0:0x100:1r0s 2:0x100:0r1s 4:0x200:1r0s 3:0x200:0r1s 3:0x300:1r0s 4:0x300:0r1s 2:0x400:1r0s 0:0x400:0r1s " +
			"2:0x180:- 0:0x180:- 3:0x280:- 4:0x280:- 4:0x380:- 3:0x380:- 0:0x480:- 2:0x480:-",
		"1:0x100:1r0s 3:0x100:0r1s 0:0x200:1r0s 4:0x200:0r1s 4:0x300:1r0s 0:0x300:0r1s 3:0x400:1r0s 1:0x400:0r1s " +
			"3:0x180:- 1:0x180:- 4:0x280:- 0:0x280:- 0:0x380:- 4:0x380:- 1:0x480:- 3:0x480:-",
		"2:0x100:1r0s 4:0x100:0r1s 1:0x200:1r0s 0:0x200:0r1s 0:0x300:1r0s 1:0x300:0r1s 4:0x400:1r0s 2:0x400:0r1s " +
			"4:0x180:- 2:0x180:- 0:0x280:- 1:0x280:- 1:0x380:- 0:0x380:- 2:0x480:- 4:0x480:-",
		"3:0x100:1r0s 0:0x100:0r1s 2:0x200:1r0s 1:0x200:0r1s 1:0x300:1r0s 2:0x300:0r1s 0:0x400:1r0s 3:0x400:0r1s " +
			"0:0x180:- 3:0x180:- 1:0x280:- 2:0x280:- 2:0x380:- 1:0x380:- 3:0x480:- 0:0x480:-",
	}},
	{8, 1, true, []string{
		"7:0x100:1r0s 1:0x100:0r1s 6:0x200:1r0s 2:0x200:0r1s 5:0x300:1r0s 3:0x300:0r1s 4:0x400:1r1s 3:0x500:1r0s 5:0x500:0r1s " +
			"2:0x600:1r0s 6:0x600:0r1s 1:0x700:1r0s 7:0x700:0r1s " +
			"1:0x180:- 7:0x180:- 2:0x280:- 6:0x280:- 3:0x380:- 5:0x380:- 4:0x480:- 5:0x580:- 3:0x580:- 6:0x680:- 2:0x680:- 7:0x780:- 1:0x780:-",
		"0:0x100:1r0s 2:0x100:0r1s 7:0x200:1r0s 3:0x200:0r1s 6:0x300:1r0s 4:0x300:0r1s 5:0x400:1r1s 4:0x500:1r0s 6:0x500:0r1s " +
			"3:0x600:1r0s 7:0x600:0r1s 2:0x700:1r0s 0:0x700:0r1s " +
			"2:0x180:- 0:0x180:- 3:0x280:- 7:0x280:- 4:0x380:- 6:0x380:- 5:0x480:- 6:0x580:- 4:0x580:- 7:0x680:- 3:0x680:- 0:0x780:- 2:0x780:-",
		"1:0x100:1r0s 3:0x100:0r1s 0:0x200:1r0s 4:0x200:0r1s 7:0x300:1r0s 5:0x300:0r1s 6:0x400:1r1s 5:0x500:1r0s 7:0x500:0r1s " +
			"4:0x600:1r0s 0:0x600:0r1s 3:0x700:1r0s 1:0x700:0r1s " +
			"3:0x180:- 1:0x180:- 4:0x280:- 0:0x280:- 5:0x380:- 7:0x380:- 6:0x480:- 7:0x580:- 5:0x580:- 0:0x680:- 4:0x680:- 1:0x780:- 3:0x780:-",
		"2:0x100:1r0s 4:0x100:0r1s 1:0x200:1r0s 5:0x200:0r1s 0:0x300:1r0s 6:0x300:0r1s 7:0x400:1r1s 6:0x500:1r0s 0:0x500:0r1s " +
			"5:0x600:1r0s 1:0x600:0r1s 4:0x700:1r0s 2:0x700:0r1s " +
			"4:0x180:- 2:0x180:- 5:0x280:- 1:0x280:- 6:0x380:- 0:0x380:- 7:0x480:- 0:0x580:- 6:0x580:- 1:0x680:- 5:0x680:- 2:0x780:- 4:0x780:-",
		"3:0x100:1r0s 5:0x100:0r1s 2:0x200:1r0s 6:0x200:0r1s 1:0x300:1r0s 7:0x300:0r1s 0:0x400:1r1s 7:0x500:1r0s 1:0x500:0r1s " +
			"6:0x600:1r0s 2:0x600:0r1s 5:0x700:1r0s 3:0x700:0r1s " +
			"5:0x180:- 3:0x180:- 6:0x280:- 2:0x280:- 7:0x380:- 1:0x380:- 0:0x480:- 1:0x580:- 7:0x580:- 2:0x680:- 6:0x680:- 3:0x780:- 5:0x780:-",
		"4:0x100:1r0s 6:0x100:0r1s 3:0x200:1r0s 7:0x200:0r1s 2:0x300:1r0s 0:0x300:0r1s 1:0x400:1r1s 0:0x500:1r0s 2:0x500:0r1s " +
			"7:0x600:1r0s 3:0x600:0r1s 6:0x700:1r0s 4:0x700:0r1s " +
			"6:0x180:- 4:0x180:- 7:0x280:- 3:0x280:- 0:0x380:- 2:0x380:- 1:0x480:- 2:0x580:- 0:0x580:- 3:0x680:- 7:0x680:- 4:0x780:- 6:0x780:-",
		"5:0x100:1r0s 7:0x100:0r1s 4:0x200:1r0s 0:0x200:0r1s 3:0x300:1r0s 1:0x300:0r1s 2:0x400:1r1s 1:0x500:1r0s 3:0x500:0r1s " +
			"0:0x600:1r0s 4:0x600:0r1s 7:0x700:1r0s 5:0x700:0r1s " +
			"7:0x180:- 5:0x180:- 0:0x280:- 4:0x280:- 1:0x380:- 3:0x380:- 2:0x480:- 3:0x580:- 1:0x580:- 4:0x680:- 0:0x680:- 5:0x780:- 7:0x780:-",
		"6:0x100:1r0s 0:0x100:0r1s 5:0x200:1r0s 1:0x200:0r1s 4:0x300:1r0s 2:0x300:0r1s 3:0x400:1r1s 2:0x500:1r0s 4:0x500:0r1s " +
			"1:0x600:1r0s 5:0x600:0r1s 0:0x700:1r0s 6:0x700:0r1s " +
			"0:0x180:- 6:0x180:- 1:0x280:- 5:0x280:- 2:0x380:- 4:0x380:- 3:0x480:- 4:0x580:- 2:0x580:- 5:0x680:- 1:0x680:- 6:0x780:- 0:0x780:-",
	}},
}

func TestSequenceOfBlobs(t *testing.T) {
	for _, s := range sequences {
		t.Run(fmt.Sprintf("%d ranks, mesh %v", s.n, s.mesh), func(t *testing.T) {
			taps := make([]*tapped, s.n)
			w := newWorld(t, s.n, nil, func(rank int, c *Config) {
				taps[rank] = &tapped{Job: c.Job}
				c.Job = taps[rank]
			})
			defer w.close(t)
			links := ring(s.n, s.channels)
			if s.mesh {
				links = mesh(s.n, s.channels)
			}
			for rank, err := range w.connect(t.Context(), links) {
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
				if got := strings.Join(taps[rank].sent, " "); got != s.want[rank] {
					t.Errorf("rank %d\n got %s\nwant %s", rank, got, s.want[rank])
				}
			}
			w.connected(t, links)
		})
	}
}

// The order of Setup and Connect at one rank: receiving ends first, then, when connecting, the sending end of each channel first.
func TestOrderOfCalls(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	w := newWorld(t, 4, nil, nil)
	defer w.close(t)
	w.f.fault = func(rank int, what string, e End) error {
		mu.Lock()
		defer mu.Unlock()
		if rank == 0 {
			way := "r"
			if e.Send {
				way = "s"
			}
			calls = append(calls, fmt.Sprintf("%s:%s%d.%d", what[:1], way, e.Peer, e.Channel))
		}
		return nil
	}
	links := func(rank int) Links {
		l := Mesh(rank, 4, 2)
		return l
	}
	for _, err := range w.connect(t.Context(), links) {
		if err != nil {
			t.Error(err)
		}
	}
	want := "s:r3.0 s:r3.1 s:s1.0 s:s1.1 s:r2.0 s:r2.1 s:s2.0 s:s2.1 s:r1.0 s:r1.1 s:s3.0 s:s3.1 " +
		"c:s1.0 c:r3.0 c:s1.1 c:r3.1 c:s2.0 c:r2.0 c:s2.1 c:r2.1 c:s3.0 c:r1.0 c:s3.1 c:r1.1"
	if got := strings.Join(calls, " "); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestMessageRoundTrip(t *testing.T) {
	m := message{round: 7, transport: "SHM", text: "P2P\tno GPU\n", recv: []Blob{{1}, {2}}, send: []Blob{{3}}}
	b := m.append(nil)
	if len(b) != 36+11+3*driver.BlobSize {
		t.Errorf("%d bytes", len(b))
	}
	got, err := decodeMessage(b)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(m) {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzMessage(f *testing.F) {
	m := message{round: 7, transport: "SHM", text: "P2P\tno GPU\n", recv: []Blob{{1}}, send: []Blob{{3}}}
	f.Add(m.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		parseRefusals(m.text, 1)
		if again, err := decodeMessage(m.append(nil)); err != nil || fmt.Sprint(again) != fmt.Sprint(m) {
			t.Fatalf("%v became %v, %v", m, again, err)
		}
	})
}

func FuzzPlan(f *testing.F) {
	p := plan{round: 1, conn: 1, graph: 2, text: "why", failed: true}
	f.Add(p.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePlan(b)
		if err != nil {
			return
		}
		if again, err := decodePlan(p.append(nil)); err != nil || again != p {
			t.Fatalf("%v became %v, %v", p, again, err)
		}
	})
}
