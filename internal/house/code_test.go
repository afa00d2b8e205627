package house

import (
	"bytes"
	"go/ast"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFormatted(t *testing.T) {
	eachSource(t, func(s source) {
		want, err := format.Source(s.text)
		if err != nil {
			t.Errorf("%s: %v", s.path, err)
		} else if !bytes.Equal(s.text, want) {
			t.Errorf("%s is not as gofmt writes it", s.path)
		}
	})
}

// Whoever looks for what the garbage collector and the compiler cannot check finds it by file name. Sizes and offsets are harmless,
// and so is the mere naming of a pointer that somebody else made.
func TestUnsafeCodeIsInItsFiles(t *testing.T) {
	harmless := map[string]bool{"Sizeof": true, "Offsetof": true, "Alignof": true}
	eachSource(t, func(s source) {
		if s.test || within(s.folder, "internal/mmio") || regexp.MustCompile(`_unsafe(_[a-z0-9]+)*\.go$`).MatchString(s.path) {
			return
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if of, name := qualified(call.Fun); of == "unsafe" && !harmless[name] {
					t.Errorf("%s: unsafe.%s belongs into a file named …_unsafe.go", fset.Position(call.Pos()), name)
				}
			}
			return true
		})
	})
}

// Raw system calls are behind packages that nobody outside can import.
func TestRawSystemCallsAreInternal(t *testing.T) {
	raw := regexp.MustCompile(`^(Raw)?Syscall(6|9|NoError)?$|^SYS_`)
	eachSource(t, func(s source) {
		if s.test || strings.Contains("/"+s.folder+"/", "/internal/") {
			return
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				if of, name := qualified(e); (of == "unix" || of == "syscall") && raw.MatchString(name) {
					t.Errorf("%s: %s.%s outside an internal package", fset.Position(n.Pos()), of, name)
				}
			}
			return true
		})
	})
}

func qualified(e ast.Expr) (of, name string) {
	if selector, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := selector.X.(*ast.Ident); ok {
			return x.Name, selector.Sel.Name
		}
	}
	return "", ""
}

// A skip without a reason hides that nothing was tested.
func TestSkipsSayWhy(t *testing.T) {
	eachSource(t, func(s source) {
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 0 {
				if selector, ok := call.Fun.(*ast.SelectorExpr); ok && (selector.Sel.Name == "SkipNow" || selector.Sel.Name == "Skip") {
					if x, ok := selector.X.(*ast.Ident); ok && (x.Name == "t" || x.Name == "b" || x.Name == "tb" || x.Name == "f") {
						t.Errorf("%s: skips without a reason", fset.Position(n.Pos()))
					}
				}
			}
			return true
		})
	})
}

// Nothing depends on the machine that somebody worked on, and nothing half-done is left for others to find.
func TestNoPrivatePathsAndNothingLoose(t *testing.T) {
	unwanted := regexp.MustCompile(`(^|[^\w.])/(work|home|farm|root/\w+)/|/tmp/bash|\b(TODO|FIXME|XXX)\b`)
	err := eachFile(func(path string) error {
		if within(path, "internal/house") || filepath.Base(path) == "go.sum" || path == "LICENSE" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || !utf8.Valid(text) {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if found := unwanted.FindString(line); found != "" {
				t.Errorf("%s:%d: %q does not belong here", path, i+1, strings.TrimSpace(found))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
