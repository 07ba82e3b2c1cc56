//go:build !unix

package raftstore

import "math"

// freeBytes is not known on this system.
func freeBytes(string) (uint64, error) { return math.MaxUint64, nil }
