package secure

import (
	"fmt"
	"os"
)

// FromEnv is what the environment (nil is os.Getenv) says about securing TCP; nil, nil if nothing, which leaves it plain.
//
//	PURERDMA_JOB_KEY_FILE  the file of KeyFromFile
//	PURERDMA_TLS_CERT      the files of TLSFromFiles; all three, and
//	PURERDMA_TLS_KEY       PURERDMA_TLS_NAME, the name in the job's certificates,
//	PURERDMA_TLS_CA        belong together
//
// All processes of a job need the same.
func FromEnv(getenv func(string) string) (Wrap, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	key := getenv("PURERDMA_JOB_KEY_FILE")
	names := [...]string{"PURERDMA_TLS_CERT", "PURERDMA_TLS_KEY", "PURERDMA_TLS_CA", "PURERDMA_TLS_NAME"}
	var tls [len(names)]string
	set, unset := "", ""
	for i, name := range names {
		if tls[i] = getenv(name); tls[i] != "" {
			set = name
		} else {
			unset = name
		}
	}
	switch {
	case key != "" && set != "":
		return nil, fmt.Errorf("secure: both PURERDMA_JOB_KEY_FILE and %s are set, want one way", set)
	case key != "":
		return KeyFromFile(key)
	case set != "" && unset != "":
		return nil, fmt.Errorf("secure: %s is set and %s is not", set, unset)
	case set != "":
		return TLSFromFiles(tls[0], tls[1], tls[2], tls[3])
	}
	return nil, nil
}
