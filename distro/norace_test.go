//go:build !race

package distro

// seedsByDefault is how many seeds the simulator runs.
const seedsByDefault = 200
