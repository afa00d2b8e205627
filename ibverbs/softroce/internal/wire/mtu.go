package wire

// headroom is what Linux's rxe keeps of a network device's MTU for headers
// (IP, UDP, BTH, extended headers, ICRC), so that both ends find the same MTU.
const headroom = 80

// PathMTU is the largest RoCE path MTU in bytes that fits a network device's
// MTU: 256, 512, 1024, 2048 or 4096; 0 if not even 256 fits.
func PathMTU(netdevMTU int) int {
	for m := 4096; m >= 256; m /= 2 {
		if netdevMTU-headroom >= m {
			return m
		}
	}
	return 0
}

// Packets is how many packets carry n bytes: an empty message is one.
func Packets(n, mtu int) int { return max(1, (n+mtu-1)/mtu) }
