package transport

import "testing"

// What a rank says of its failure goes into errors and logs, but not what would act on a terminal.
func TestTextsArePrintable(t *testing.T) {
	const said, want = "no\x1b[2J\rroom\x00 für\n\tall", "no.[2J.room. für\n\tall"
	m, err := decodeMessage((&message{failed: true, text: said}).append(nil))
	if err != nil || m.text != want {
		t.Errorf("message: %q, %v", m.text, err)
	}
	p, err := decodePlan((&plan{failed: true, text: said}).append(nil))
	if err != nil || p.text != want {
		t.Errorf("plan: %q, %v", p.text, err)
	}
}
