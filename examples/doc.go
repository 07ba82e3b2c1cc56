// Package examples holds programs that use package client. The Go section of README.md
// is made of their files: run its test with -update after a change.
package examples
