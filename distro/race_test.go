//go:build race

package distro

// seedsByDefault is how many seeds the simulator runs. It has no concurrency of its
// own for the race detector to look at.
const seedsByDefault = 20
