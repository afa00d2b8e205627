package mr

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutside compiles programs of another module: the type system, not a
// comment, keeps the Go heap out of an MR.
func TestOutside(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command to compile with")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/outside")); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	// All that our go.mod names is named here, too: so nothing has to be looked up that a build of this module has not brought.
	_, requires, ok := strings.Cut(string(ours), "\nrequire ")
	if !ok {
		t.Fatal("go.mod requires nothing")
	}
	module := "module example.org/outside\n\ngo 1.26.0\n\nrequire github.com/purerdma/purerdma v0.0.0\n\n" +
		"replace github.com/purerdma/purerdma => " + root + "\n\nrequire " + requires
	for name, text := range map[string][]byte{"go.mod": []byte(module), "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	compile := func(pkg string) (string, error) {
		c := exec.Command(tool, "build", "-mod=mod", "-o", os.DevNull, "./"+pkg)
		c.Dir = dir
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := compile("taken"); err != nil {
		t.Fatalf("what is allowed does not compile: %v\n%s", err, out)
	}
	programs, err := filepath.Glob("testdata/outside/refused/*/main.go")
	if err != nil || len(programs) < 6 {
		t.Fatalf("%d programs, %v", len(programs), err)
	}
	for _, p := range programs {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		says, ok := strings.CutPrefix(first, "// says: ")
		if !ok {
			t.Fatalf("%s does not say what the compiler says", p)
		}
		name := filepath.Base(filepath.Dir(p))
		out, err := compile("refused/" + name)
		if err == nil || !strings.Contains(out, says) {
			t.Errorf("%s: %v, want %q:\n%s", name, err, says, out)
		}
	}
}
