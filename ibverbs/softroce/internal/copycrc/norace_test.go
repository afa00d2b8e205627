//go:build !race

package copycrc

const race = false
