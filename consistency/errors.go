package consistency

import "errors"

// Errors of persistent writes, and of reads that are to show all of them.
var (
	// ErrNoLeader means that nothing was written: no node leads.
	ErrNoLeader = errors.New("no leader: persistent data takes no writes and no consistent reads now")
	// ErrUnknownOutcome means that the write may or may not have happened.
	ErrUnknownOutcome = errors.New("outcome unknown: the write may still take effect")
	// ErrReadOnly means that nothing was written: the disk of the node that would
	// write is full or faulty. It recovers by itself.
	ErrReadOnly = errors.New("read-only: the disk takes no persistent data now")
	// ErrClosed means that the store is closed; nothing was written.
	ErrClosed = errors.New("the store is closed")
	// ErrNotReady means that local data is not complete yet.
	ErrNotReady = errors.New("not ready: local data is not complete")
)

// RedirectError says that another node must take the request: the owner of an
// ephemeral datum or the leader for a persistent one.
type RedirectError struct {
	Node string // its name
}

// Error names the node.
func (e *RedirectError) Error() string { return "node " + e.Node + " must take this request" }
