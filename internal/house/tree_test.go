// Package house holds the rules of this module that no compiler and no linter knows: ARCHITECTURE.md says what they are for.
// It has tests only. A rule is worth keeping here while it is short to say and has no exceptions that need explaining.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/purerdma/purerdma"
	root   = "../.."
)

// A source is one Go file of the module.
type source struct {
	path   string // from the module's root, with slashes
	folder string
	text   []byte
	syntax *ast.File
	test   bool
}

var fset = token.NewFileSet()

// sources are the module's Go files, whatever their build tags, those in testdata left out.
var sources = sync.OnceValues(func() ([]source, error) {
	var found []source
	err := eachFile(func(path string) error {
		if filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		found = append(found, source{path, folder, text, syntax, strings.HasSuffix(path, "_test.go")})
		return nil
	})
	return found, err
})

// What a build leaves behind is not committed by oversight.
func TestNoProgramsInTheTree(t *testing.T) {
	err := eachFile(func(path string) error {
		f, err := os.Open(filepath.Join(root, path))
		if err != nil {
			return err
		}
		defer f.Close()
		var magic [4]byte
		if _, err := io.ReadFull(f, magic[:]); err == nil && string(magic[:]) == "\x7fELF" {
			t.Errorf("%s is a program", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// eachFile calls f with the path, from the root, of each file that belongs to the module.
func eachFile(f func(path string) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch entry.Name() {
			case ".git", "bin", "testdata":
				return filepath.SkipDir
			}
			return nil
		}
		if entry.Name() == ".git" {
			return nil // of a worktree
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return f(filepath.ToSlash(rel))
	})
}

func eachSource(t *testing.T, f func(source)) {
	t.Helper()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found only %d Go files under %s", len(all), root)
	}
	for _, s := range all {
		f(s)
	}
}

// imports calls f with the path of each import of the file.
func (s source) imports(f func(path string)) {
	for _, spec := range s.syntax.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err == nil {
			f(path)
		}
	}
}

// within reports whether a folder is the room or lies in it.
func within(folder, room string) bool { return folder == room || strings.HasPrefix(folder, room+"/") }
