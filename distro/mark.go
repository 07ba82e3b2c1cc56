package distro

import (
	"context"

	"rollcall/consistency"
)

// Mark is a point in the changes of one run of a node: who has all changes up to it
// shows what was written there before.
type Mark struct {
	Node string
	Boot uint64
	Seq  uint64
}

// Mark returns the present point in the changes of this node.
func (s *Store) Mark() Mark {
	if s.core == nil {
		return Mark{Node: s.cfg.Node}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Mark{Node: s.cfg.Node, Boot: s.core.self.boot, Seq: s.core.seq}
}

// waiter waits for a mark.
type waiter struct {
	mark  Mark
	until chan struct{} // closed when it is reached
}

// Await waits until the changes of another node up to a mark have arrived here, or
// cannot any more because that run of the node is over. It ends with the error of
// ctx, or with ErrClosed.
func (s *Store) Await(ctx context.Context, m Mark) error {
	if s.core == nil || m.Node == s.cfg.Node {
		return nil
	}
	s.mu.Lock()
	if s.core.reached(m) {
		s.mu.Unlock()
		return nil
	}
	w := waiter{m, make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	select {
	case <-w.until:
		return nil
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	for n, x := range s.waiters {
		if x.until == w.until {
			s.waiters = append(s.waiters[:n:n], s.waiters[n+1:]...)
			break
		}
	}
	s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return consistency.ErrClosed
}

// reachedLocked lets those go on whose mark is reached.
func (s *Store) reachedLocked() {
	kept := s.waiters[:0]
	for _, w := range s.waiters {
		if s.core.reached(w.mark) {
			close(w.until)
		} else {
			kept = append(kept, w)
		}
	}
	clear(s.waiters[len(kept):])
	s.waiters = kept
}

// reached tells whether the changes up to a mark are here.
func (c *core) reached(m Mark) bool {
	p := c.peers[m.Node]
	return p != nil && (p.boot > m.Boot || p.boot == m.Boot && p.have >= m.Seq)
}
