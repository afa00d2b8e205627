package house

import (
	"go/ast"
	"strings"
	"testing"
)

// Why a context has ended is said by package cause, which tells its Err and its Cause: with Err alone the caller's reason is lost, with
// Cause alone errors.Is does not find Canceled. What the benchmarks do with contexts of their own is left out.
func TestEndsOfContextsTellTheirCause(t *testing.T) {
	eachSource(t, func(s source) {
		if s.test || within(s.folder, "bench") || within(s.folder, "tools") || strings.HasSuffix(s.folder, "internal/cause") {
			return
		}
		compared := map[ast.Expr]bool{}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				compared[n.X] = true
			case *ast.CallExpr:
				of, name := qualified(n.Fun)
				if of == "context" && name == "Cause" || strings.HasSuffix(strings.ToLower(of), "ctx") && name == "Err" && !compared[n] {
					t.Errorf("%s: %s.%s as an error; package cause tells both Err and Cause", fset.Position(n.Pos()), of, name)
				}
			}
			return true
		})
	})
}
