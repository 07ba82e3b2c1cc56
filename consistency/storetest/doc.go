// Package storetest is the contract of [consistency.Store] as tests, and a fake
// store for the tests of other packages.
//
// A store that waits for others (a leader, an owner) must be able to take writes
// by the time that it is handed to [Run]: the contract is about what a write does,
// not about when it is possible.
package storetest
