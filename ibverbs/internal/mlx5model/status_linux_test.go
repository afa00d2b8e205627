package mlx5model

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// statusCase is a way to a status. script is what both ends do from when they are
// connected, with commas between the steps; before is what they are set up to. want is what
// comes of it: completions by their order in each queue, the states that QueryQP tells, and
// asynchronous events.
//
// Steps are: recv end id bytes key; add end operation id bytes key peer's-key offset
// immediate, which makes a list; post, which posts it; await end queue completions; move
// end state. Keys are of all rights, of local ones, of reading only, of another protection
// domain, of the window of B, and none. libmlx5 has the adapter put messages of up to 32 bytes
// into their completions, which takes no key; our driver does not.
type statusCase struct {
	name, typ, before, script, want string
}

var statusCases = []statusCase{
	{"LOC_LEN_ERR: message longer than the port's", "RC", "",
		"recv B 1 64 all, add A send 1 0x40000001 all none 0 0, add A send 2 8 all none 0 0, post, await A s 2",
		"A sent 1=LOC_LEN_ERR 2=WR_FLUSH_ERR, A=ERR B=RTS"},
	{"LOC_LEN_ERR at the responder: receive too short", "RC", "",
		"recv B 1 7 all, recv B 2 64 all, add A send 1 8 all none 0 0, add A send- 2 8 all none 0 0, post, await A s 2, await B r 2",
		"A sent 1=REM_INV_REQ_ERR 2=WR_FLUSH_ERR, B received 1=LOC_LEN_ERR 2=WR_FLUSH_ERR, A=ERR B=ERR"},
	{"LOC_QP_OP_ERR: read where none may be started", "RC", "set A reads 0",
		"add A read 1 8 all all 0 0, add A write 2 8 all all 0 0, post, await A s 2", "A sent 1=LOC_QP_OP_ERR 2=WR_FLUSH_ERR, A=ERR B=RTS"},
	{"LOC_PROT_ERR: no such key", "RC", "",
		"recv B 1 64 all, add A send- 1 8 all none 0 0, add A send- 2 8 none none 0 0, add A send 3 8 all none 0 0, post, await A s 2, await B r 1",
		"A sent 2=LOC_PROT_ERR 3=WR_FLUSH_ERR, B received 1=SUCCESS, A=ERR B=RTS"},
	{"LOC_PROT_ERR: key of another protection domain", "RC", "", "add A write 1 8 other all 0 0, post, await A s 1", "A sent 1=LOC_PROT_ERR, A=ERR B=RTS"},
	{"LOC_PROT_ERR: beyond the memory of a key", "RC", "", "add A write 1 32769 all all 0 0, post, await A s 1", "A sent 1=LOC_PROT_ERR, A=ERR B=RTS"},
	{"LOC_PROT_ERR: read into memory that may not be written", "RC", "", "add A read 1 8 read all 0 0, post, await A s 1", "A sent 1=LOC_PROT_ERR, A=ERR B=RTS"},
	{"LOC_PROT_ERR at the responder: no such key", "RC", "",
		"recv B 1 128 none, add A send 1 64 all none 0 0, post, await A s 1, await B r 1", "A sent 1=REM_OP_ERR, B received 1=LOC_PROT_ERR, A=ERR B=ERR"},
	{"LOC_PROT_ERR at the responder: receive into memory that may not be written", "RC", "",
		"recv B 1 128 read, add A imm 1 64 all none 0 0, post, await A s 1, await B r 1", "A sent 1=REM_OP_ERR, B received 1=LOC_PROT_ERR, A=ERR B=ERR"},
	{"WR_FLUSH_ERR: moved to ERR", "RC", "",
		"recv A 1 64 all, recv A 2 64 all, move A ERR, await A r 2, add A send- 3 8 all none 0 0, add A free 4 0 all none 0 0, post, await A s 2, recv A 5 64 all, await A r 1",
		"A sent 3=WR_FLUSH_ERR 4=WR_FLUSH_ERR, A received 1=WR_FLUSH_ERR 2=WR_FLUSH_ERR 5=WR_FLUSH_ERR, A=ERR B=RTS"},
	{"MW_BIND_ERR: bound already", "RC", "",
		"add A bind 1 64 all none 0 0, add A bind 2 64 all none 0 0, add A send 3 8 all none 0 0, post, await A s 3",
		"A sent 1=SUCCESS 2=MW_BIND_ERR 3=WR_FLUSH_ERR, A=ERR B=RTS"},
	{"MW_BIND_ERR: freed unbound", "RC", "", "add A free- 1 0 all none 0 0, post, await A s 1", "A sent 1=MW_BIND_ERR, A=ERR B=RTS"},
	{"REM_INV_REQ_ERR: write without the right", "RC", "set B access 1",
		"recv B 1 64 all, add A write 1 8 all all 0 0, post, await A s 1, await B r 1",
		"A sent 1=REM_INV_REQ_ERR, B received 1=WR_FLUSH_ERR, A=ERR B=ERR, B has QP_REQ_ERR"},
	{"REM_INV_REQ_ERR: read without the right", "RC", "set B access 3", "add A read 1 8 all all 0 0, post, await A s 1",
		"A sent 1=REM_INV_REQ_ERR, A=ERR B=ERR, B has QP_REQ_ERR"},
	{"REM_INV_REQ_ERR: atomic without the right", "RC", "set B access 7", "add A add 1 8 all all 0 0, post, await A s 1",
		"A sent 1=REM_INV_REQ_ERR, A=ERR B=ERR, B has QP_REQ_ERR"},
	{"REM_INV_REQ_ERR: read from who gives none", "RC", "set B gives 0", "add A read 1 8 all all 0 0, post, await A s 1",
		"A sent 1=REM_INV_REQ_ERR, A=ERR B=ERR, B has QP_REQ_ERR"},
	{"REM_INV_REQ_ERR: atomic at no multiple of 8", "RC", "", "add A swap 1 8 all all 4 0, post, await A s 1",
		"A sent 1=REM_INV_REQ_ERR, A=ERR B=ERR, B has QP_REQ_ERR"},
	{"REM_INV_REQ_ERR at the responder: invalidation of no window", "RC", "",
		"recv B 1 64 all, add A sendinv 1 8 all none 0 0, post, await A s 1, await B r 1",
		"A sent 1=RETRY_EXC_ERR, B received 1=REM_INV_REQ_ERR, A=ERR B=ERR"},
	{"REM_ACCESS_ERR: no such key", "RC", "",
		"recv B 1 64 all, add A write- 1 8 all none 0 0, add A write 2 8 all all 0 0, post, await A s 2, await B r 1",
		"A sent 1=REM_ACCESS_ERR 2=WR_FLUSH_ERR, B received 1=WR_FLUSH_ERR, A=ERR B=ERR, B has QP_ACCESS_ERR"},
	{"REM_ACCESS_ERR: key of another protection domain", "RC", "", "add A write 1 8 all other 0 0, post, await A s 1",
		"A sent 1=REM_ACCESS_ERR, A=ERR B=ERR, B has QP_ACCESS_ERR"},
	{"REM_ACCESS_ERR: write to memory for reading", "RC", "", "add A write 1 8 all read 0 0, post, await A s 1",
		"A sent 1=REM_ACCESS_ERR, A=ERR B=ERR, B has QP_ACCESS_ERR"},
	{"REM_ACCESS_ERR: read of local memory", "RC", "", "add A read 1 8 all local 0 0, post, await A s 1",
		"A sent 1=REM_ACCESS_ERR, A=ERR B=ERR, B has QP_ACCESS_ERR"},
	{"REM_ACCESS_ERR: atomic on memory for reading", "RC", "", "add A swap 1 8 all read 0 0, post, await A s 1",
		"A sent 1=REM_ACCESS_ERR, A=ERR B=ERR, B has QP_ACCESS_ERR"},
	{"REM_ACCESS_ERR: beyond the memory", "RC", "", "add A write 1 8 all all 8185 0, post, await A s 1",
		"A sent 1=REM_ACCESS_ERR, A=ERR B=ERR, B has QP_ACCESS_ERR"},
	{"REM_ACCESS_ERR: write with immediate data", "RC", "", "recv B 1 64 all, add A writeimm 1 8 all none 0 0, post, await A s 1, await B r 1",
		"A sent 1=REM_ACCESS_ERR, B received 1=WR_FLUSH_ERR, A=ERR B=ERR, B has QP_ACCESS_ERR"},
	{"REM_ACCESS_ERR: beyond a window", "RC", "",
		"add B bind 1 64 all none 0 0, post, await B s 1, add A write 1 8 all window 0 0, add A write 2 8 all window 57 0, post, await A s 2",
		"A sent 1=SUCCESS 2=REM_ACCESS_ERR, B sent 1=SUCCESS, A=ERR B=ERR, B has QP_ACCESS_ERR"},
	{"REM_ACCESS_ERR: window that is not bound", "RC", "", "add A write 1 8 all window 0 0, post, await A s 1",
		"A sent 1=REM_ACCESS_ERR, A=ERR B=ERR, B has QP_ACCESS_ERR"},
	{"RETRY_EXC_ERR: nobody answers", "RC", "", "recv A 1 64 all, move B RESET, add A write 1 8 all all 0 0, add A send 2 8 all none 0 0, post, await A s 2, await A r 1",
		"A sent 1=RETRY_EXC_ERR 2=WR_FLUSH_ERR, A received 1=WR_FLUSH_ERR, A=ERR B=RESET"},
	{"RNR_RETRY_EXC_ERR: no receive", "RC", "", "add A send 1 8 all none 0 0, add A write- 2 8 all all 0 0, post, await A s 2",
		"A sent 1=RNR_RETRY_EXC_ERR 2=WR_FLUSH_ERR, A=ERR B=RTS"},
	{"connected again after an error", "RC", "",
		"recv A 1 64 all, add A write 1 8 all none 0 0, post, await A s 1, await A r 1, move A RESET, move B RESET, join A, join B, recv B 2 64 all, add A send 2 8 all none 0 0, post, await A s 1, await B r 1",
		"A sent 1=REM_ACCESS_ERR 2=SUCCESS, A received 1=WR_FLUSH_ERR, B received 2=SUCCESS, A=RTS B=RTS, B has QP_ACCESS_ERR"},

	{"SRQ, LOC_LEN_ERR at the responder", "RC shared", "",
		"recv B 1 7 all, recv B 2 64 all, add A send 1 8 all none 0 0, post, await A s 1, await B r 1",
		"A sent 1=REM_INV_REQ_ERR, B received 1=LOC_LEN_ERR, A=ERR B=ERR, B has QP_LAST_WQE_REACHED"},
	{"SRQ, LOC_PROT_ERR at the responder", "RC shared", "",
		"recv B 1 128 other, add A send 1 64 all none 0 0, post, await A s 1, await B r 1",
		"A sent 1=REM_OP_ERR, B received 1=LOC_PROT_ERR, A=ERR B=ERR, B has QP_LAST_WQE_REACHED"},
	{"SRQ, REM_ACCESS_ERR", "RC shared", "", "recv B 1 64 all, add A write 1 8 all none 0 0, post, await A s 1",
		"A sent 1=REM_ACCESS_ERR, A=ERR B=ERR, B has QP_ACCESS_ERR QP_LAST_WQE_REACHED"},
	{"SRQ, RNR_RETRY_EXC_ERR", "RC shared", "", "add A send 1 8 all none 0 0, post, await A s 1", "A sent 1=RNR_RETRY_EXC_ERR, A=ERR B=RTS"},
	{"SRQ, moved to ERR", "RC shared", "", "recv B 1 64 all, move B ERR, add B write 1 8 all all 0 0, post, await B s 1",
		"B sent 1=WR_FLUSH_ERR, A=RTS B=ERR, B has QP_LAST_WQE_REACHED"},

	{"UC, LOC_PROT_ERR, and on from SQE", "UC", "",
		"recv A 9 64 all, recv B 1 64 all, add A send 1 8 none none 0 0, add A send 2 8 all none 0 0, post, await A s 2, move A RTS, add A send 3 8 all none 0 0, post, await A s 1, await B r 1",
		"A sent 1=LOC_PROT_ERR 2=WR_FLUSH_ERR 3=SUCCESS, B received 1=SUCCESS, A=RTS B=RTS"},
	{"UC, LOC_LEN_ERR", "UC", "", "add A write 1 0x40000001 all all 0 0, add A write- 2 8 all all 0 0, post, await A s 2",
		"A sent 1=LOC_LEN_ERR 2=WR_FLUSH_ERR, A=SQE B=RTS"},
	{"UC, MW_BIND_ERR", "UC", "", "add A free 1 0 all none 0 0, post, await A s 1", "A sent 1=MW_BIND_ERR, A=SQE B=RTS"},
	{"UC, LOC_LEN_ERR at the responder", "UC", "", "recv B 1 7 all, recv B 2 64 all, add A send 1 8 all none 0 0, post, await A s 1, await B r 2",
		"A sent 1=SUCCESS, B received 1=LOC_LEN_ERR 2=WR_FLUSH_ERR, A=RTS B=ERR"},
	{"UC, LOC_PROT_ERR at the responder", "UC", "", "recv B 1 128 none, add A send 1 64 all none 0 0, post, await A s 1, await B r 1",
		"A sent 1=SUCCESS, B received 1=LOC_PROT_ERR, A=RTS B=ERR"},
	{"UC, a write that is refused is lost", "UC", "", "add A write 1 8 all none 0 0, post, await A s 1", "A sent 1=SUCCESS, A=RTS B=RTS"},
	{"UC, WR_FLUSH_ERR", "UC", "", "recv A 1 64 all, move A ERR, add A write 2 8 all all 0 0, post, await A s 1, await A r 1",
		"A sent 2=WR_FLUSH_ERR, A received 1=WR_FLUSH_ERR, A=ERR B=RTS"},

	{"UD, LOC_LEN_ERR: datagram longer than the port's MTU", "UD", "", "add A send 1 4097 all none 0 0, add A send- 2 8 all none 0 0, post, await A s 2",
		"A sent 1=LOC_LEN_ERR 2=WR_FLUSH_ERR, A=SQE B=RTS"},
	{"UD, LOC_PROT_ERR, and on from SQE", "UD", "",
		"recv B 1 64 all, add A send 1 8 none none 0 0, post, await A s 1, move A RTS, add A send 2 8 all none 0 0, post, await A s 1, await B r 1",
		"A sent 1=LOC_PROT_ERR 2=SUCCESS, B received 1=SUCCESS, A=RTS B=RTS"},
	{"UD, LOC_LEN_ERR at the responder", "UD", "", "recv B 1 47 all, add A send 1 8 all none 0 0, post, await A s 1, await B r 1",
		"A sent 1=SUCCESS, B received 1=LOC_LEN_ERR, A=RTS B=ERR"},
	{"UD, LOC_PROT_ERR at the responder", "UD", "", "recv B 1 64 read, add A send 1 8 all none 0 0, post, await A s 1, await B r 1",
		"A sent 1=SUCCESS, B received 1=LOC_PROT_ERR, A=RTS B=ERR"},
	{"UD, another Q_Key", "UD", "set B qkey 5", "recv B 1 64 all, add A send 1 8 all none 0 0, post, await A s 1", "A sent 1=SUCCESS, A=RTS B=RTS"},
	{"UD, SRQ, LOC_LEN_ERR at the responder", "UD shared", "", "recv B 1 47 all, recv B 2 64 all, add A send 1 8 all none 0 0, post, await A s 1, await B r 1",
		"A sent 1=SUCCESS, B received 1=LOC_LEN_ERR, A=RTS B=ERR, B has QP_LAST_WQE_REACHED"},

	// What no program can bring about on the model.
	planted("BAD_RESP_ERR: an answer that is none", "RC", AtRequester, mlx5prm.SyndromeBadRespErr, "A sent 1=BAD_RESP_ERR 2=WR_FLUSH_ERR, A=ERR B=RTS"),
	planted("LOC_ACCESS_ERR at the responder", "RC", AtResponder, mlx5prm.SyndromeLocalAccessErr,
		"A sent 1=REM_OP_ERR 2=WR_FLUSH_ERR, B received 1=LOC_ACCESS_ERR 2=WR_FLUSH_ERR, A=ERR B=ERR"),
	planted("REM_ABORT_ERR", "RC", AtRequester, mlx5prm.SyndromeRemoteAbortedErr, "A sent 1=REM_ABORT_ERR 2=WR_FLUSH_ERR, A=ERR B=RTS"),
	planted("REM_ABORT_ERR at the responder", "RC", AtResponder, mlx5prm.SyndromeRemoteAbortedErr,
		"A sent 1=REM_OP_ERR 2=WR_FLUSH_ERR, B received 1=REM_ABORT_ERR 2=WR_FLUSH_ERR, A=ERR B=ERR"),
	planted("LOC_QP_OP_ERR at the responder", "RC", AtResponder, mlx5prm.SyndromeLocalQPOpErr,
		"A sent 1=REM_OP_ERR 2=WR_FLUSH_ERR, B received 1=LOC_QP_OP_ERR 2=WR_FLUSH_ERR, A=ERR B=ERR"),
	planted("UC, LOC_QP_OP_ERR", "UC", AtRequester, mlx5prm.SyndromeLocalQPOpErr, "A sent 1=LOC_QP_OP_ERR 2=WR_FLUSH_ERR, A=SQE B=RTS"),
	planted("UC, LOC_ACCESS_ERR at the responder", "UC", AtResponder, mlx5prm.SyndromeLocalAccessErr,
		"A sent 1=SUCCESS 2=SUCCESS, B received 1=LOC_ACCESS_ERR 2=WR_FLUSH_ERR, A=RTS B=ERR"),
	planted("UD, LOC_QP_OP_ERR", "UD", AtRequester, mlx5prm.SyndromeLocalQPOpErr, "A sent 1=LOC_QP_OP_ERR 2=WR_FLUSH_ERR, A=SQE B=RTS"),
	planted("UD, LOC_QP_OP_ERR at the responder", "UD", AtResponder, mlx5prm.SyndromeLocalQPOpErr,
		"A sent 1=SUCCESS 2=SUCCESS, B received 1=LOC_QP_OP_ERR 2=WR_FLUSH_ERR, A=RTS B=ERR"),
	planted("GENERAL_ERR: no syndrome that is known", "RC", AtRequester, 0x7f, "A sent 1=GENERAL_ERR 2=WR_FLUSH_ERR, A=ERR B=RTS"),
}

// planted is a case of two sends to two receives, of which the first has a syndrome planted.
func planted(name, typ string, at End, syndrome uint8, want string) statusCase {
	script := fmt.Sprintf("recv B 1 64 all, recv B 2 64 all, add A imm 1 8 all none 0 %#x, add A send 2 8 all none 0 0, post, await A s 2", plantedAt(at, syndrome))
	if at == AtResponder {
		script += ", await B r 2"
	}
	return statusCase{name, typ, "", script, want}
}

// plantedAt is immediate data that ask for a syndrome.
func plantedAt(at End, syndrome uint8) uint32 { return plantedMark | uint32(at)<<8 | uint32(syndrome) }

const plantedMark = 0x5ab10000

// plantable is the model's side of it.
func plantable(imm uint32) Planted {
	if imm&^0xffff != plantedMark {
		return Planted{}
	}
	return Planted{At: End(imm >> 8), Syndrome: uint8(imm)}
}

// text is the case as the players of scripts have it.
func (c statusCase) text() string {
	typ, _, shared := strings.Cut(c.typ, " ")
	lines := []string{fmt.Sprintf("case %s %d", typ, map[bool]int{true: 1}[shared])}
	for _, step := range strings.Split(c.before+",join A,join B,"+c.script+",end", ",") {
		lines = append(lines, strings.TrimSpace(step))
	}
	return strings.Join(lines, "\n") + "\n"
}

// became is what a player told of a case, in the words of the table.
func became(t testing.TB, told string) string {
	t.Helper()
	var queues [2][2][]string
	var states []string
	var events [2][]string
	for line := range strings.Lines(told) {
		var who rune
		var queue, id, n, vendor int
		switch what := strings.Fields(line)[0]; what {
		case "wc":
			if _, err := fmt.Sscanf(line, "wc %c %d %d %d %d", &who, &queue, &id, &n, &vendor); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			name := "SUCCESS"
			if n != 0 {
				name = strings.TrimPrefix(driver.Status(n).Error(), "IBV_WC_")
			}
			q := &queues[who-'A'][queue]
			*q = append(*q, fmt.Sprintf("%d=%s", id, name))
		case "state", "event":
			if _, err := fmt.Sscanf(line, what+" %c %d", &who, &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if what == "state" {
				states = append(states, fmt.Sprintf("%c=%v", who, driver.QPState(n)))
				continue
			}
			e := &events[who-'A']
			*e = append(*e, strings.TrimPrefix(driver.EventType(n).String(), "IBV_EVENT_"))
		}
	}
	var parts []string
	for i, end := range []string{"A", "B"} {
		for j, verb := range []string{" sent ", " received "} {
			if q := queues[i][j]; q != nil {
				parts = append(parts, end+verb+strings.Join(q, " "))
			}
		}
	}
	parts = append(parts, strings.Join(states, " "))
	for i, end := range []string{"A", "B"} {
		if events[i] != nil {
			parts = append(parts, end+" has "+strings.Join(events[i], " "))
		}
	}
	return strings.Join(parts, ", ")
}

// ofCases splits what a player told.
func ofCases(told string) []string {
	cases := strings.SplitAfter(told, "end\n")
	return cases[:len(cases)-1]
}

// statusScript is that of all cases of the table.
func statusScript() string {
	var b strings.Builder
	for _, c := range statusCases {
		b.WriteString(c.text())
	}
	return b.String()
}

// TestStatuses has each status by our driver.
func TestStatuses(t *testing.T) {
	told := ofCases(playStatuses(t, Config{Fault: func(s string) { t.Error("model: " + s) }, Plant: plantable}, statusScript()))
	if len(told) != len(statusCases) {
		t.Fatalf("%d cases were played, want %d", len(told), len(statusCases))
	}
	for i, c := range statusCases {
		if got := became(t, told[i]); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestStatusesAsLibmlx5 has each status by both libraries, which tell the same of it: the
// statuses, the vendor's syndromes, what is flushed, the states of both ends, and the
// asynchronous events.
func TestStatusesAsLibmlx5(t *testing.T) {
	script := statusScript() + syndromeScript()
	theirs := ofCases(libmlx5Statuses(t, script))
	ours := ofCases(playStatuses(t, Config{Plant: plantable}, script))
	if len(theirs) != len(statusCases)+1 || len(ours) != len(theirs) {
		t.Fatalf("libmlx5 has played %d cases, our driver %d, want %d", len(theirs), len(ours), len(statusCases)+1)
	}
	for i, c := range statusCases {
		if got := became(t, theirs[i]); got != c.want {
			t.Errorf("%s, libmlx5:\n got %s\nwant %s", c.name, got, c.want)
		}
		if theirs[i] != ours[i] {
			t.Errorf("%s, libmlx5:\n%sours:\n%s", c.name, theirs[i], ours[i])
		}
	}
	compareSyndromes(t, theirs[len(statusCases)], ours[len(statusCases)])
}

// syndromes is how many of the lowest have a completion planted: all, or in the short way
// those that have a meaning.
func syndromes() int {
	if testing.Short() {
		return mlx5prm.SyndromeRemoteAbortedErr + 1
	}
	return 256
}

// syndromeScript has completions of syndromes at the requester and at the responder. The
// former leave an unreliable connection in SQE.
func syndromeScript() string {
	var b strings.Builder
	b.WriteString("case UC 0\njoin A\njoin B\n")
	for s := range syndromes() {
		fmt.Fprintf(&b, "add A imm 1 8 all none 0 %#x\npost\nawait A s 1\nmove A RTS\n", plantedAt(AtRequester, uint8(s)))
		fmt.Fprintf(&b, "recv B 2 64 all\nadd A imm 3 8 all none 0 %#x\npost\nawait B r 1\nawait A s 1\nmove B RESET\njoin B\n", plantedAt(AtResponder, uint8(s)))
	}
	b.WriteString("end\n")
	return b.String()
}

// compareSyndromes sees that all of syndromeScript is there, and the same.
func compareSyndromes(t *testing.T, theirs, ours string) {
	t.Helper()
	a, b := strings.Split(theirs, "\n"), strings.Split(ours, "\n")
	if n, want := strings.Count(theirs, "wc "), 3*syndromes(); n != want || len(a) != len(b) {
		t.Fatalf("%d completions, want %d; libmlx5 tells %d lines, our driver %d", n, want, len(a), len(b))
	}
	for i := range a {
		if a[i] != b[i] {
			t.Errorf("libmlx5 has %q, our driver %q", a[i], b[i])
		}
	}
}

// libmlx5Statuses is what comes of a script by libmlx5.
func libmlx5Statuses(t *testing.T, script string) string {
	t.Helper()
	l := newLab(t, false)
	program := buildC(t, "testdata/status")
	l.m.mu.Lock()
	l.m.config.Plant = plantable
	l.m.mu.Unlock()
	cmd := l.command(t, program)
	cmd.Stdin = strings.NewReader(script)
	var errors strings.Builder
	cmd.Stderr = &errors
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, &errors, out)
	}
	return string(out)
}
