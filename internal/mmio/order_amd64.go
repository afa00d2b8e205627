package mmio

// OrderStores makes what was stored to memory before it visible to a device before
// what is stored to memory after it: nothing on amd64, which keeps such stores in
// order but for non-temporal ones, DMB OSHST on arm64. A register is no memory: StoreFence
// comes before it. The store after it is a call, over which the compiler moves none.
func OrderStores() {}
