//go:build !amd64

package copycrc

func ways() []way { return []way{{"Update", Update}, {"Go", inGo}} }
