package drivertest

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/gpu"
)

// ping counts up to n with pong: it stores each number at mine and waits for it at
// theirs, where pong stores what it has seen.
const ping = `.version 6.4
.target sm_70
.address_size 64
.visible .entry ping(.param .u64 mine, .param .u64 theirs, .param .u32 n)
{
	.reg .u64 %m, %t;
	.reg .u32 %i, %n, %v;
	.reg .pred %p;
	ld.param.u64 %m, [mine];
	ld.param.u64 %t, [theirs];
	ld.param.u32 %n, [n];
	mov.u32 %i, 0;
next:
	setp.eq.u32 %p, %i, %n;
	@%p bra done;
	add.u32 %i, %i, 1;
	st.release.sys.global.u32 [%m], %i;
wait:
	ld.acquire.sys.global.u32 %v, [%t];
	setp.lt.u32 %p, %v, %i;
	@%p bra wait;
	bra next;
done:
	ret;
}
.visible .entry pong(.param .u64 mine, .param .u64 theirs, .param .u32 n)
{
	.reg .u64 %m, %t;
	.reg .u32 %i, %n, %v;
	.reg .pred %p;
	ld.param.u64 %m, [mine];
	ld.param.u64 %t, [theirs];
	ld.param.u32 %n, [n];
	mov.u32 %i, 0;
next:
	setp.eq.u32 %p, %i, %n;
	@%p bra done;
	add.u32 %i, %i, 1;
wait:
	ld.acquire.sys.global.u32 %v, [%t];
	setp.lt.u32 %p, %v, %i;
	@%p bra wait;
	st.release.sys.global.u32 [%m], %i;
	bra next;
done:
	ret;
}
`

func parameters(words ...any) (b []byte) {
	for _, w := range words {
		switch w := w.(type) {
		case gpu.Ptr:
			b = binary.NativeEndian.AppendUint64(b, uint64(w))
		case uint32:
			b = binary.NativeEndian.AppendUint32(b, w)
		}
	}
	return b
}

// Two kernels that wait for each other run to the end, though the second is
// launched when the first spins already: both were on the device before.
func (s suite) kernelsThatWait(t *testing.T) {
	c := s.open(t)
	module, fs, err := c.Load([]byte(ping), "ping", "pong")
	must(t, err)
	flags := get(c.Alloc(4096))(t)
	one, two := get(c.NewStream())(t), get(c.NewStream())(t)
	must(t, c.Fill(flags, 0, 4096, one))
	must(t, c.Synchronize(one))
	const n = uint32(1000)
	must(t, c.Launch(gpu.Launch{F: fs[0], Stream: one, Params: parameters(flags, flags+512, n)}))
	end := get(c.NewEvent())(t)
	must(t, c.Record(end, one))
	if done, err := c.Done(end); done || err != nil {
		t.Errorf("a kernel that waits is done: %v, %v", done, err)
	}
	must(t, c.Launch(gpu.Launch{F: fs[1], Stream: two, Params: parameters(flags+512, flags, n)}))
	must(t, c.Synchronize(two))
	must(t, c.Synchronize(one))
	if done, err := c.Done(end); !done || err != nil {
		t.Errorf("after Synchronize: %v, %v", done, err)
	}
	holds(t, c, flags, parameters(n))
	must(t, c.Unload(module))
	if err := c.Launch(gpu.Launch{F: fs[0], Stream: one}); !s.Compiles && err == nil {
		t.Error("a function of a module that was unloaded ran") // CUDA does not look
	}
}

func (s suite) loadRefuses(t *testing.T) {
	c := s.open(t)
	if s.Compiles {
		_, _, err := c.Load([]byte(strings.Replace(ping, "setp.eq.u32", "setq.eq.u32", 1)), "ping")
		if err == nil || !strings.Contains(err.Error(), "setq") {
			t.Errorf("bad text: %v; the error shows what the compiler says", err)
		}
	}
	if _, _, err := c.Load([]byte(ping), "ping", "none"); err == nil || !strings.Contains(err.Error(), "function none") {
		t.Errorf("a function that is not there: %v", err)
	}
	if err := c.Launch(gpu.Launch{Params: make([]byte, 5000)}); err == nil {
		t.Error("5000 bytes of parameters were taken")
	}
}

// A stream waits for a word and tells one.
func (s suite) streamWords(t *testing.T) {
	c := s.open(t)
	words := get(c.Alloc(4096))(t)
	one, two := get(c.NewStream())(t), get(c.NewStream())(t)
	must(t, c.Fill(words, 0, 4096, one))
	must(t, c.Synchronize(one))
	must(t, c.WaitWord(one, words, 5))
	must(t, c.WriteWord(one, words+128, 6))
	end := get(c.NewEvent())(t)
	must(t, c.Record(end, one))
	must(t, c.WriteWord(two, words, 4))
	must(t, c.Synchronize(two))
	if done, err := c.Done(end); done || err != nil {
		t.Errorf("a stream passed the word 4 when it waited for 5: %v, %v", done, err)
	}
	must(t, c.WriteWord(two, words, 5))
	must(t, c.Synchronize(one))
	holds(t, c, words+128, parameters(uint32(6)))

	must(t, c.WaitWord(one, words, 7))
	late := get(c.NewEvent())(t)
	must(t, c.Record(late, one))
	must(t, c.Wait(two, late))
	must(t, c.WriteWord(two, words+256, 9))
	third := get(c.NewStream())(t)
	must(t, c.WriteWord(third, words, 7))
	must(t, c.Synchronize(two))
	holds(t, c, words+256, parameters(uint32(9)))
}
