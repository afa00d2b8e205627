package house

import (
	"go/ast"
	"testing"
)

// Every exported name says in a comment what its user must know: staticcheck checks the form of comments, not that there is one.
// The comment of a group speaks for what is in it, that of a struct or interface for its fields and methods.
func TestExportedNamesHaveComments(t *testing.T) {
	eachSource(t, func(s source) {
		if s.test {
			return
		}
		for _, name := range undocumented(s.syntax) {
			t.Errorf("%s: exported %s has no comment", fset.Position(name.Pos()), name.Name)
		}
	})
}

func undocumented(file *ast.File) []*ast.Ident {
	var found []*ast.Ident
	miss := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		for _, c := range comments {
			if c.Text() != "" {
				return
			}
		}
		if name.IsExported() {
			found = append(found, name)
		}
	}
	for _, declared := range file.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || (exportedReceiver(d.Recv) && !wellKnown[d.Name.Name]) {
				miss(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						miss(name, d.Doc, s.Doc, s.Comment)
					}
				case *ast.TypeSpec:
					miss(s.Name, d.Doc, s.Doc, s.Comment)
				}
			}
		}
	}
	return found
}

// wellKnown are methods whose meaning the standard library fixes.
var wellKnown = map[string]bool{"Error": true, "String": true, "Unwrap": true, "Is": true, "As": true}

func exportedReceiver(receiver *ast.FieldList) bool {
	expr := receiver.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.IsExported()
		default:
			return false
		}
	}
}
