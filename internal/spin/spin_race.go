//go:build race

package spin

import "sync"

// Mutex is a sync.Mutex here.
type Mutex = sync.Mutex
