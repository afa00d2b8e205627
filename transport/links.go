package transport

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// MaxChannels is NCCL's MAXCHANNELS, the width of a mask.
const MaxChannels = 64

// Graph is what connections are set up for. It goes into the tags of the messages, as NCCL's graph id + 1.
type Graph uint8

// The graphs of NCCL. The zero value is send and receive, which has none.
const (
	NoGraph Graph = iota
	RingGraph
	TreeGraph
	CollNetChainGraph
	NVLSGraph
	CollNetDirectGraph
	graphs
)

// Links is what one rank wants connected. For each peer a bit for each channel; what a rank sends on, its peer must receive on.
type Links struct {
	Send, Recv map[int]uint64
	ConnIndex  int // 0 = collectives, 1 = send and receive
	Graph      Graph
}

// Ring is the links of a ring in the order of ranks, on channels 0 to channels − 1.
func Ring(rank, size, channels int) Links {
	l := Links{Send: map[int]uint64{}, Recv: map[int]uint64{}, Graph: RingGraph}
	if size > 1 {
		mask := maskOf(channels)
		l.Send[(rank+1)%size] = mask
		l.Recv[(rank+size-1)%size] = mask
	}
	return l
}

// Mesh is the links of every rank with every other, on channels 0 to channels − 1, for send and receive.
func Mesh(rank, size, channels int) Links {
	l := Links{Send: map[int]uint64{}, Recv: map[int]uint64{}, ConnIndex: 1}
	for peer := range size {
		if peer != rank {
			l.Send[peer], l.Recv[peer] = maskOf(channels), maskOf(channels)
		}
	}
	return l
}

// Pairs is the links of every rank with every other for the messages of [Communicator.Send] and its like: Mesh with connection index 0.
// NCCL's send and receive have index 1, whose buffers many peers share.
func Pairs(rank, size, channels int) Links {
	l := Mesh(rank, size, channels)
	l.ConnIndex = 0
	return l
}

// maskOf is the channels below a number. A number that cannot be is all there are, which Links.check refuses.
func maskOf(channels int) uint64 {
	if channels < 0 || channels >= MaxChannels {
		return ^uint64(0)
	}
	return 1<<channels - 1
}

func (l *Links) check(rank, size, channels int) error {
	if l.ConnIndex < 0 || l.ConnIndex > 1 {
		return fmt.Errorf("transport: Links.ConnIndex is %d, want 0 or 1", l.ConnIndex)
	}
	if l.Graph >= graphs {
		return fmt.Errorf("transport: Links.Graph is %d, want one of NCCL's", l.Graph)
	}
	for name, masks := range map[string]map[int]uint64{"Send": l.Send, "Recv": l.Recv} {
		for peer, mask := range masks {
			if peer < 0 || peer >= size || peer == rank {
				return fmt.Errorf("transport: Links.%s has rank %d, want another rank than %d, below %d", name, peer, rank, size)
			}
			if mask&^maskOf(channels) != 0 {
				return fmt.Errorf("transport: Links.%s[%d] has channel %d, want channels below %d", name, peer, bits.Len64(mask)-1, channels)
			}
		}
	}
	return nil
}

// peers are the ranks that l connects with.
func (l *Links) peers() []int {
	all := map[int]bool{}
	for _, masks := range []map[int]uint64{l.Send, l.Recv} {
		for peer, mask := range masks {
			if mask != 0 {
				all[peer] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

type digest [16]byte

func (d *digest) add(from, to int, mask uint64) {
	var b [16]byte
	binary.LittleEndian.PutUint32(b[:], uint32(from))
	binary.LittleEndian.PutUint32(b[4:], uint32(to))
	binary.LittleEndian.PutUint64(b[8:], mask)
	sum := sha256.Sum256(b[:])
	d.xor((*digest)(sum[:]))
}

func (d *digest) xor(e *digest) {
	for i := range d {
		d[i] ^= e[i]
	}
}

// digests are sums over all masks, of what l sends on and of what it receives on. Over all ranks they are equal if every mask has its
// counterpart, so that ranks need not exchange the masks themselves to see that.
func (l *Links) digests(rank int) (send, recv digest) {
	for peer, mask := range l.Send {
		if mask != 0 {
			send.add(rank, peer, mask)
		}
	}
	for peer, mask := range l.Recv {
		if mask != 0 {
			recv.add(peer, rank, mask)
		}
	}
	return send, recv
}

// maskEntryLen is a peer (4) and its masks (8 each).
const maskEntryLen = 20

// appendMasks encodes the masks, at most max bytes of them.
func (l *Links) appendMasks(b []byte, most int) []byte {
	for _, peer := range l.peers() {
		if len(b)+maskEntryLen > most {
			break
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(peer))
		b = binary.LittleEndian.AppendUint64(b, l.Send[peer])
		b = binary.LittleEndian.AppendUint64(b, l.Recv[peer])
	}
	return b
}

// disagreement finds, in the masks of all ranks, ends without a counterpart, and tells the first of them.
func disagreement(all [][]byte) string {
	type way struct{ from, to int }
	send, recv := map[way]uint64{}, map[way]uint64{}
	ways := map[way]bool{}
	for rank, b := range all {
		for ; len(b) >= maskEntryLen; b = b[maskEntryLen:] {
			peer := int(binary.LittleEndian.Uint32(b))
			out, in := way{rank, peer}, way{peer, rank}
			send[out], recv[in] = binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint64(b[12:])
			ways[out], ways[in] = true, true
		}
	}
	var found []string
	for _, w := range slices.SortedFunc(maps.Keys(ways), func(a, b way) int { return (a.from-b.from)<<20 + a.to - b.to }) {
		s, r := send[w], recv[w]
		if s == r {
			continue
		}
		if len(found) == 4 {
			found = append(found, "and more")
			break
		}
		switch {
		case r == 0:
			found = append(found, fmt.Sprintf("rank %d sends to rank %d on channels %s, rank %d receives on none", w.from, w.to, channelList(s), w.to))
		case s == 0:
			found = append(found, fmt.Sprintf("rank %d receives from rank %d on channels %s, rank %d sends on none", w.to, w.from, channelList(r), w.from))
		default:
			found = append(found, fmt.Sprintf("rank %d sends to rank %d on channels %s, rank %d receives on %s", w.from, w.to, channelList(s), w.to, channelList(r)))
		}
	}
	return strings.Join(found, "; ")
}

// channelList is a mask in words, "0-3,7".
func channelList(mask uint64) string {
	var parts []string
	for mask != 0 {
		first := bits.TrailingZeros64(mask)
		n := bits.TrailingZeros64(^(mask >> first))
		if n == 1 {
			parts = append(parts, fmt.Sprint(first))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", first, first+n-1))
		}
		if first+n >= 64 {
			break
		}
		mask &^= 1<<(first+n) - 1
	}
	return strings.Join(parts, ",")
}
