package secure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFromEnv(t *testing.T) {
	dir := t.TempDir()
	newAuthority(t).write(t, dir, "job")
	key := filepath.Join(dir, "jobkey")
	if err := os.WriteFile(key, []byte(strings.Repeat("1f", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"PURERDMA_TLS_CERT": filepath.Join(dir, "cert.pem"), "PURERDMA_TLS_KEY": filepath.Join(dir, "key.pem"),
		"PURERDMA_TLS_CA": filepath.Join(dir, "ca.pem"), "PURERDMA_TLS_NAME": "job"}
	from := func(vars map[string]string) (Wrap, error) {
		return FromEnv(func(name string) string { return vars[name] })
	}
	if w, err := from(nil); w != nil || err != nil {
		t.Errorf("nothing is set: %v", err)
	}
	if w, err := from(map[string]string{"PURERDMA_JOB_KEY_FILE": key}); w == nil || err != nil {
		t.Error(err)
	}
	if w, err := from(files); w == nil || err != nil {
		t.Error(err)
	}
	for name := range files {
		part := map[string]string{}
		for k, v := range files {
			if k != name {
				part[k] = v
			}
		}
		if _, err := from(part); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
		if _, err := from(map[string]string{"PURERDMA_JOB_KEY_FILE": key, name: files[name]}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a key and %s: %v", name, err)
		}
		bad := map[string]string{}
		for k, v := range files {
			bad[k] = v
		}
		if bad[name] = filepath.Join(dir, "none"); name != "PURERDMA_TLS_NAME" {
			if _, err := from(bad); err == nil || !strings.Contains(err.Error(), bad[name]) {
				t.Errorf("a wrong %s: %v", name, err)
			}
		}
	}
}

// Without a function the process's environment counts.
func TestFromEnvOfTheProcess(t *testing.T) {
	t.Setenv("PURERDMA_TLS_CERT", "cert.pem")
	if _, err := FromEnv(nil); err == nil || !strings.Contains(err.Error(), "PURERDMA_TLS_CERT") {
		t.Errorf("%v", err)
	}
}
