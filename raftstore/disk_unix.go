//go:build unix

package raftstore

import "golang.org/x/sys/unix"

// freeBytes returns the free space of the disk that holds the folder.
func freeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil //nolint:unconvert // the types differ between systems
}
