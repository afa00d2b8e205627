// Package softroce is a RoCE v2 device in user space.
package softroce
