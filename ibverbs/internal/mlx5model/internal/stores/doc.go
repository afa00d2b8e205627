// Package stores reads a store instruction and says which bytes it stores, so that a
// tracer can do it in the program's place. It knows the forms that compilers and
// hand-written code use for doorbells; those that read memory too, as an exchange does,
// have no place there and are not known.
package stores

import "fmt"

// Store is an instruction that was read.
type Store struct {
	Length int // of the instruction
	Data   []byte
}

// UnknownError is an instruction that is none of the stores that are known.
type UnknownError struct{ Code []byte }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("instruction % x is no store that is known", e.Code)
}
