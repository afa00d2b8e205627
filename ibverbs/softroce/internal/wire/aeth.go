package wire

import "time"

// Syndrome is the first byte of an AETH: two bits of kind, five of value.
type Syndrome uint8

// Syndromes as they are sent. An ACK of ours tells no credits, as rxe's.
const (
	SynAck         Syndrome = 0x1f // ACK, credits not counted
	SynRNR         Syndrome = 0x20 // plus the code of the timer
	SynSequence    Syndrome = 0x60 // NAK: PSN sequence error
	SynInvalid     Syndrome = 0x61 // NAK: invalid request
	SynAccess      Syndrome = 0x62 // NAK: remote access error
	SynOperational Syndrome = 0x63 // NAK: remote operational error
)

const (
	kindMask  Syndrome = 0xe0
	valueMask Syndrome = 0x1f
	codeMask           = 31 // of both kinds of timer
)

// RNRNak is the syndrome that tells a sender to wait as the code of the timer
// says.
func RNRNak(code uint8) Syndrome { return SynRNR | Syndrome(code)&valueMask }

// IsAck says whether it acknowledges, with whatever number of credits.
func (s Syndrome) IsAck() bool { return s&kindMask == 0 }

// IsRNR says whether the receiver had nothing posted; the code is [Syndrome.RNRCode].
func (s Syndrome) IsRNR() bool { return s&kindMask == SynRNR }

// IsNak says whether it is a NAK of one of the four codes above.
func (s Syndrome) IsNak() bool { return s >= SynSequence && s <= SynOperational }

// RNRCode is the code of the timer.
func (s Syndrome) RNRCode() uint8 { return uint8(s & valueMask) }

var rnrTicks = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTime is how long the code makes a sender wait: 0 is 655.36 ms, 1 is 10 µs,
// 31 is 491.52 ms (IBTA table 45). Higher bits of the code are ignored.
func RNRTime(code uint8) time.Duration { return rnrTicks[code&codeMask] * 10 * time.Microsecond }

// AckTime is the local ACK time-out of a code: 4.096 µs · 2^code, 0 for none.
func AckTime(code uint8) time.Duration {
	if code&codeMask == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << (code & codeMask)
}
