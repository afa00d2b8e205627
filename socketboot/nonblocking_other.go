//go:build !unix

package socketboot

const tryIO = false

func tryRead(uintptr, []byte) (int, error)  { return 0, errWouldBlock }
func tryWrite(uintptr, []byte) (int, error) { return 0, errWouldBlock }
