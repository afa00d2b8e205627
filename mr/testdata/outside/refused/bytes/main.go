// says: []byte does not implement driver.Memory
package main

import "github.com/purerdma/purerdma/ibverbs"

func main() {
	var pd *ibverbs.PD
	_, _ = pd.RegMR(make([]byte, 8), ibverbs.LocalWrite)
}
