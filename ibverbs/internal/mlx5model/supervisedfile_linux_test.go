package mlx5model

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestStoresByWords has stores of several words told as so many, each when it is in the page
// and what is behind it is not.
func TestStoresByWords(t *testing.T) {
	pages, err := os.Create(filepath.Join(t.TempDir(), "pages"))
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.DialUnix("unixpacket", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	type told struct {
		off  uint64
		size int64 // of the file at that moment
	}
	all := make(chan []told)
	go func() {
		var got []told
		defer func() { all <- got }()
		model, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer model.Close()
		for {
			var q request
			if n, err := model.Read(bytesOf(&q)); err != nil || n == 0 {
				return
			}
			st, err := pages.Stat()
			if err != nil {
				return
			}
			got = append(got, told{q.A, st.Size()})
			var r reply
			if _, err := model.Write(bytesOf(&r)); err != nil {
				return
			}
		}
	}()
	f := &supervisedFile{supervisor: &supervisor{Supervised: Supervised{Log: func(s string) { t.Error(s) }}}, pages: pages, conn: conn}
	f.store(make([]byte, 8), 0)
	f.store(make([]byte, 16), 16)
	f.store(make([]byte, 4), 32)
	f.store(make([]byte, 12), 36)
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if got, want := <-all, []told{{0, 8}, {16, 24}, {24, 32}, {32, 36}, {36, 40}, {40, 48}}; !slices.Equal(got, want) {
		t.Errorf("the model is told %v, want %v", got, want)
	}
}
