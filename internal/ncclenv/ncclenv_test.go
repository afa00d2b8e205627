package ncclenv

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func reader(vars map[string]string) *Reader {
	return &Reader{Getenv: func(n string) string { return vars[n] }, Wrap: func(name string, err error) error {
		return errors.Join(errors.New(name), err)
	}}
}

func TestReader(t *testing.T) {
	r := reader(map[string]string{"NCCL_BUFFSIZE": "0x400", "NCCL_SHM_DISABLE": "1", "NCCL_IB_SL": "16", "NCCL_IB_TC": "x"})
	size, shm, p2p := 0, false, false
	r.Number("NCCL_BUFFSIZE", 1, 1<<30, func(n int) { size = n })
	r.Flag("NCCL_SHM_DISABLE", func(b bool) { shm = b })
	r.Flag("NCCL_P2P_DISABLE", func(b bool) { p2p = !b })
	if size != 1024 || !shm || p2p || r.Err() != nil {
		t.Error(size, shm, p2p, r.Err())
	}
	r.Number("NCCL_IB_SL", 0, 15, func(int) { t.Error("16 was taken") })
	r.Number("NCCL_IB_TC", 0, 255, func(int) { t.Error("x was taken") })
	if err := r.Err(); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "NCCL_IB_SL") {
		t.Error(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name outside the table was read")
		}
	}()
	r.Text("NCCL_NO_SUCH")
}

// The table is sorted, says something of each, and has every variable that the module's packages read, and no other.
func TestTableIsWhatIsRead(t *testing.T) {
	if !slices.IsSortedFunc(table, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted")
	}
	read := map[string]bool{}
	call := regexp.MustCompile(`\.(?:Text|Number|Flag)\("(NCCL_[A-Z0-9_]+)"`)
	for _, folder := range []string{"transport", "nettransport"} {
		files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(folder, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range call.FindAllSubmatch(text, -1) {
				read[string(m[1])] = true
			}
		}
	}
	for _, v := range table {
		if !read[v.Name] {
			t.Errorf("%s is in the table and nothing reads it", v.Name)
		}
		if v.Meaning == "" || v.Default == "" {
			t.Errorf("%s says nothing", v.Name)
		}
		delete(read, v.Name)
	}
	for name := range read {
		t.Errorf("%s is read and not in the table", name)
	}
}
