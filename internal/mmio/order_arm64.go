package mmio

// OrderStores makes what was stored to memory before it visible to a device before
// what is stored to memory after it: DMB OSHST on arm64, nothing on amd64.
func OrderStores() { StoreFence() }
