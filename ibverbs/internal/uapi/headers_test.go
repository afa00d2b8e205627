package uapi

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// load type-checks this package: the tests walk all that it declares, so that
// nothing added later escapes them.
func load(t *testing.T) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	pkg, err := conf.Check("uapi", fset, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// structsOf is the structures of the package by name.
func structsOf(pkg *types.Package) map[string]*types.Struct {
	m := map[string]*types.Struct{}
	for _, name := range pkg.Scope().Names() {
		if tn, ok := pkg.Scope().Lookup(name).(*types.TypeName); ok {
			if s, ok := tn.Type().Underlying().(*types.Struct); ok {
				m[name] = s
			}
		}
	}
	return m
}

// fieldsOf is the fields without the marker, their offsets, and the size.
func fieldsOf(s *types.Struct, arch string) (fields []*types.Var, offsets []int64, size int64) {
	var all []*types.Var
	for i := range s.NumFields() {
		all = append(all, s.Field(i))
	}
	sizes := types.SizesFor("gc", arch)
	return all[1:], sizes.Offsetsof(all)[1:], sizes.Sizeof(s)
}

func TestEveryStructIsHostLayoutWithoutHiddenPadding(t *testing.T) {
	for name, s := range structsOf(load(t)) {
		if f := s.Field(0); f.Name() != "_" || f.Type().String() != "structs.HostLayout" {
			t.Errorf("%s does not begin with structs.HostLayout", name)
			continue
		}
		for _, arch := range []string{"amd64", "arm64"} {
			fields, _, size := fieldsOf(s, arch)
			var sum int64
			for _, f := range fields {
				sum += types.SizesFor("gc", arch).Sizeof(f.Type())
			}
			if sum != size {
				t.Errorf("%s on %s: fields of %d bytes in %d", name, arch, sum, size)
			}
		}
	}
}

func TestEveryStructAndConstantIsInTheTables(t *testing.T) {
	pkg := load(t)
	structs := structsOf(pkg)
	for name, s := range structs {
		c, ok := cStructs[name]
		if !ok {
			t.Errorf("struct %s is not compared with the headers", name)
			continue
		}
		members := strings.Fields(c.fields)
		if got, want := len(members), s.NumFields()-1; got != want {
			t.Errorf("struct %s has %d fields, the table %d", name, want, got)
			continue
		}
		for i, m := range members {
			if f := s.Field(i + 1).Name(); !sameName(f, m) {
				t.Errorf("%s.%s is compared with %s", name, f, m)
			}
		}
	}
	for name := range cStructs {
		if structs[name] == nil {
			t.Errorf("struct %s of the table does not exist", name)
		}
	}
	consts := map[string]bool{}
	for _, name := range pkg.Scope().Names() {
		if _, ok := pkg.Scope().Lookup(name).(*types.Const); ok {
			consts[name] = true
			if _, ok := cConsts[name]; !ok {
				t.Errorf("constant %s is not compared with the headers", name)
			}
		}
	}
	for name := range cConsts {
		if !consts[name] {
			t.Errorf("constant %s of the table does not exist", name)
		}
	}
}

// sameName reports whether a field has the name of a member. A member with an
// index is a part that has no name in older headers.
func sameName(field, member string) bool {
	member = strings.TrimSuffix(member[strings.LastIndexByte(member, '.')+1:], "~")
	field = strings.TrimSuffix(field, "BE")
	return strings.ContainsRune(member, '[') || strings.EqualFold(field, strings.ReplaceAll(member, "_", ""))
}

// TestHeaders compares sizes, offsets and constants with what a C compiler makes
// of the installed headers.
func TestHeaders(t *testing.T) {
	pkg := load(t)
	type item struct {
		what  string
		value uint64
	}
	var items []item
	var c strings.Builder
	c.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include <linux/netlink.h>\n#include <linux/version.h>\n")
	for _, h := range []string{"ib_user_verbs", "ib_user_ioctl_cmds", "ib_user_ioctl_verbs", "rdma_user_ioctl_cmds", "rdma_user_rxe", "rdma_netlink", "mlx5-abi", "mlx5_user_ioctl_cmds", "mlx5_user_ioctl_verbs"} {
		fmt.Fprintf(&c, "#include <rdma/%s.h>\n", h)
	}
	c.WriteString("#define SHOW(i, v) printf(\"%d %llu\\n\", i, (unsigned long long)(v))\nint main(void) {\n")
	show := func(what string, value uint64, expr string) {
		fmt.Fprintf(&c, "SHOW(%d, %s);\n", len(items), expr)
		items = append(items, item{what, value})
	}
	for name, s := range structsOf(pkg) {
		cs := cStructs[name]
		member := func(f string) string { return strings.TrimPrefix(cs.member+"."+f, ".") }
		fields, offsets, size := fieldsOf(s, runtime.GOARCH)
		if cs.member == "" {
			show("size of "+name, uint64(size), "sizeof(struct "+cs.name+")")
		} else {
			show("size of "+name, uint64(size), fmt.Sprintf("sizeof(((struct %s *)0)->%s)", cs.name, cs.member))
		}
		for i, cf := range strings.Fields(cs.fields) {
			cf, anySize := strings.CutSuffix(cf, "~")
			what := name + "." + fields[i].Name()
			expr := fmt.Sprintf("offsetof(struct %s, %s)", cs.name, member(cf))
			if cs.member != "" {
				expr += fmt.Sprintf(" - offsetof(struct %s, %s)", cs.name, cs.member)
			}
			show("offset of "+what, uint64(offsets[i]), expr)
			if !anySize {
				show("size of "+what, uint64(types.SizesFor("gc", runtime.GOARCH).Sizeof(fields[i].Type())),
					fmt.Sprintf("sizeof(((struct %s *)0)->%s)", cs.name, member(cf)))
			}
		}
	}
	for name, cc := range cConsts {
		if cc.name == "" {
			continue
		}
		if cc.since != "" {
			fmt.Fprintf(&c, "#if LINUX_VERSION_CODE >= KERNEL_VERSION(%s)\n", cc.since)
		}
		v, _ := constant.Uint64Val(pkg.Scope().Lookup(name).(*types.Const).Val())
		show(name, v, cc.name)
		if cc.since != "" {
			c.WriteString("#endif\n")
		}
	}
	c.WriteString("return 0; }\n")

	seen := map[int]bool{}
	for line := range strings.Lines(runC(t, c.String())) {
		var i int
		var v uint64
		if _, err := fmt.Sscanf(line, "%d %d", &i, &v); err != nil {
			t.Fatalf("line %q of the C program: %v", line, err)
		}
		seen[i] = true
		if items[i].value != v {
			t.Errorf("%s is %d, in C %d", items[i].what, items[i].value, v)
		}
	}
	for i, it := range items {
		if !seen[i] {
			t.Logf("the installed headers are too old to compare %s", it.what)
		}
	}
}

// runC compiles and runs a program. Without a compiler or the headers the test is
// skipped, except in CI.
func runC(t *testing.T, src string) string {
	t.Helper()
	missing := func(format string, args ...any) {
		t.Helper()
		if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		missing("the layouts are not compared with C: %v", err)
	}
	if _, err := os.Stat("/usr/include/rdma/ib_user_verbs.h"); err != nil {
		missing("the layouts are not compared with C, install linux-libc-dev: %v", err)
	}
	dir := t.TempDir()
	file, exe := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), gcc, "-w", "-o", exe, file).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("C program: %v\n%s", err, stderr.String())
	}
	return stdout.String()
}
