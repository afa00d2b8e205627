package mlx5model

// A program's library and the model exchange messages of fixed size on a socket that
// keeps them apart, one socket for each open file. preload/shim.c has the same numbers.
const (
	opOpen       = 1 // which device, process id, 1 if stores are caught
	opIoctl      = 2 // its number, address of the frame
	opWrite      = 3 // address, bytes
	opDescriptor = 4 // the number that a descriptor of a reply has in the program
	opStore      = 5 // the offset of a store into pages of doorbells that was caught
)

// request is a message to the model.
type request struct{ Op, A, B, C uint64 }

// reply is a message from the model. A descriptor may come with it; the library stores
// its number at FDAt, FDSize bytes wide, and tells it by opDescriptor.
type reply struct {
	Result       int64 // 0 or more, or the negative errno
	FDAt, FDSize uint64
}
