package stores

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

// fill gives registers values that tell which register, and which of its bytes.
func fill(general []uint64, vector [][16]byte) {
	for i := range general {
		general[i] = 0x8070605040302010 + 0x0101010101010101*uint64(i)
	}
	for i := range vector {
		for k := range vector[i] {
			vector[i][k] = byte(i<<4 | k)
		}
	}
}

func amd64Registers() *AMD64 {
	r := &AMD64{}
	fill(r.General[:], r.Vector[:])
	return r
}

func arm64Registers() *ARM64 {
	r := &ARM64{}
	fill(r.General[:], r.Vector[:])
	return r
}

type decodes interface {
	Decode(code []byte) (Store, error)
}

type row struct{ name, code, data string }

func check(t *testing.T, r decodes, rows []row) {
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			code, err := hex.DecodeString(c.code)
			if err != nil {
				t.Fatal(err)
			}
			want, err := hex.DecodeString(c.data)
			if err != nil {
				t.Fatal(err)
			}
			s, err := r.Decode(append(code, 0x90, 0x90, 0x90, 0x90))
			var unknown *UnknownError
			switch {
			case c.data == "" && !errors.As(err, &unknown):
				t.Errorf("stores %x, %v", s.Data, err)
			case c.data != "" && (err != nil || s.Length != len(code) || !bytes.Equal(s.Data, want)):
				t.Errorf("%d bytes store %x, %v, want %x", s.Length, s.Data, err, want)
			}
			for n := range code { // an instruction that is cut off
				if s, err := r.Decode(code[:n]); err == nil {
					t.Errorf("%x stores %x", code[:n], s.Data)
				}
			}
		})
	}
}

func TestAMD64(t *testing.T) {
	const xmm1, xmm9 = "101112131415161718191a1b1c1d1e1f", "909192939495969798999a9b9c9d9e9f"
	check(t, amd64Registers(), []row{
		{"mov %cl,(%rax)", "8808", "11"},
		{"mov %ch,(%rax)", "8828", "21"},
		{"mov %sil,(%rax)", "408830", "16"},
		{"mov %r9b,0x10(%rax)", "44884810", "19"},
		{"mov %cx,(%rax)", "668908", "1121"},
		{"mov %ecx,0x800(%rdx)", "898a00080000", "11213141"},
		{"mov %rcx,(%rdx)", "48890a", "1121314151617181"},
		{"mov %r9,0x8(%r12,%rbx,4)", "4d894c9c08", "1929394959697989"},
		{"mov %r9,0x12345(,%rbx,4)", "4c890c9d45230100", "1929394959697989"},
		{"mov %rcx,0x10(%rip)", "48890d10000000", "1121314151617181"},
		{"mov %rcx,%fs:(%rax)", "64488908", "1121314151617181"},
		{"movb $0x12,(%rax)", "c60012", "12"},
		{"movw $0x1234,(%rax)", "66c7003412", "3412"},
		{"movl $0x12345678,(%rsp)", "c7042478563412", "78563412"},
		{"movq $-2,0x20(%r13)", "49c74520feffffff", "feffffffffffffff"},
		{"movnti %r9,(%rax)", "4c0fc308", "1929394959697989"},
		{"movnti %ecx,(%rax)", "0fc308", "11213141"},
		{"movups %xmm1,(%rax)", "0f1108", xmm1},
		{"movaps %xmm9,0x800(%rax)", "440f298800080000", xmm9},
		{"movntps %xmm1,(%rax)", "0f2b08", xmm1},
		{"movdqa %xmm1,(%rax)", "660f7f08", xmm1},
		{"movdqu %xmm9,(%r8)", "f3450f7f08", xmm9},
		{"movntdq %xmm1,(%rax)", "660fe708", xmm1},
		{"movq %xmm1,(%rax)", "660fd608", xmm1[:16]},
		{"movq %xmm1,(%rax) by movd", "66480f7e08", xmm1[:16]},
		{"movd %xmm1,(%rax)", "660f7e08", xmm1[:8]},
		{"movlps %xmm1,(%rax)", "0f1308", xmm1[:16]},
		{"movhps %xmm1,(%rax)", "0f1708", xmm1[16:]},
		{"movss %xmm1,(%rax)", "f30f1108", xmm1[:8]},
		{"movsd %xmm1,(%rax)", "f20f1108", xmm1[:16]},
		{"mov (%rax),%rcx", "488b08", ""},
		{"xchg %rcx,(%rax)", "488708", ""},
		{"lock xadd %rcx,(%rax)", "f0480fc108", ""},
		{"rep movsq", "f348a5", ""},
		{"vmovdqu %ymm1,(%rax)", "c5fe7f08", ""},
		{"mov %rcx,%rax", "4889c8", ""},
		{"movq (%rax),%xmm1", "f30f7e08", ""},
	})
}

func TestARM64(t *testing.T) {
	const v1, v2 = "101112131415161718191a1b1c1d1e1f", "202122232425262728292a2b2c2d2e2f"
	const v3, v4 = "303132333435363738393a3b3c3d3e3f", "404142434445464748494a4b4c4d4e4f"
	check(t, arm64Registers(), []row{
		{"str x1, [x0]", "010000f9", "1121314151617181"},
		{"str x1, [x0, #8]", "010400f9", "1121314151617181"},
		{"str w1, [x0, #4]", "010400b9", "11213141"},
		{"strh w1, [x0]", "01000079", "1121"},
		{"strb w1, [x0]", "01000039", "11"},
		{"str xzr, [x0]", "1f0000f9", "0000000000000000"},
		{"stur x1, [x0, #3]", "013000f8", "1121314151617181"},
		{"str x1, [x0, x2]", "016822f8", "1121314151617181"},
		{"stlr x1, [x0]", "01fc9fc8", "1121314151617181"},
		{"stlr w1, [x0]", "01fc9f88", "11213141"},
		{"stp x2, x3, [x0]", "020c00a9", "12223242526272821323334353637383"},
		{"stp w2, w3, [x0, #8]", "020c0129", "1222324213233343"},
		{"stnp x2, x3, [x0, #16]", "020c01a8", "12223242526272821323334353637383"},
		{"str d1, [x0]", "010000fd", v1[:16]},
		{"str q1, [x0, #16]", "0104803d", v1},
		{"stp d1, d2, [x0]", "0108006d", v1[:16] + v2[:16]},
		{"stp q1, q2, [x0]", "010800ad", v1 + v2},
		{"st1 {v1.2d}, [x0]", "017c004c", v1},
		{"st1 {v1.2d-v2.2d}, [x0]", "01ac004c", v1 + v2},
		{"st1 {v1.2d-v3.2d}, [x0]", "016c004c", v1 + v2 + v3},
		{"st1 {v1.2d-v4.2d}, [x0]", "012c004c", v1 + v2 + v3 + v4},
		{"st4 {v1.2d-v4.2d}, [x0]", "010c004c", v1[:16] + v2[:16] + v3[:16] + v4[:16] + v1[16:] + v2[16:] + v3[16:] + v4[16:]},
		{"str x1, [x0], #8", "018400f8", ""},
		{"str x1, [x0, #8]!", "018c00f8", ""},
		{"stp x2, x3, [x0], #16", "020c81a8", ""},
		{"ldr x1, [x0]", "010040f9", ""},
		{"ldp x1, x2, [x0]", "010840a9", ""},
		{"swpal x1, x2, [x0]", "0280e1f8", ""},
		{"ldadd x1, x2, [x0]", "020021f8", ""},
		{"ldar x1, [x0]", "01fcdfc8", ""},
		{"ld1 {v1.2d}, [x0]", "017c404c", ""},
		{"st1 {v1.2d}, [x0], #16", "017c9f4c", ""},
		{"ldr d1, [x0]", "010040fd", ""},
		{"ldr q1, [x0]", "0100c03d", ""},
	})
}

// FuzzDecode has any bytes as instructions: what is stored is at most 64 bytes, by an
// instruction of at most 15.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{0x48, 0x89, 0x0a})
	f.Add([]byte{0x01, 0x0c, 0x00, 0x4c})
	f.Fuzz(func(t *testing.T, code []byte) {
		code = code[:min(len(code), 15)]
		for _, r := range []decodes{amd64Registers(), arm64Registers()} {
			if s, err := r.Decode(code); err == nil && (s.Length < 2 || s.Length > len(code) || len(s.Data) == 0 || len(s.Data) > 64) {
				t.Errorf("%x: %d bytes store %x", code, s.Length, s.Data)
			}
		}
	})
}
