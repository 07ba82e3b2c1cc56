package consistency

import (
	"slices"

	"rollcall/naming"
)

// Change is what becomes of one published instance: with an Instance it is stored,
// without one it is removed.
type Change struct {
	Datum
	Quiet bool // every client sees what it saw before
}

// Apply makes the changes, which must be of instances, as one: readers see none of
// them or all. Then it fires ServiceChanged once for each service with a change
// that is not quiet. Changes of one publisher in one service should follow each
// other; of two with one key the later counts. The slice may be reused.
func (d *DataStore) Apply(changes []Change) {
	var loud []naming.ServiceKey
	var known map[naming.ServiceKey]bool
	d.mu.Lock()
	for start := 0; start < len(changes); {
		end := start + 1
		for end < len(changes) && changes[end].Publisher == changes[start].Publisher && changes[end].Service == changes[start].Service {
			end++
		}
		group := changes[start:end]
		d.applyLocked(group)
		k := group[0].Service
		if start = end; !slices.ContainsFunc(group, func(c Change) bool { return !c.Quiet }) || known[k] {
			continue
		}
		loud = append(loud, k)
		if end < len(changes) {
			if known == nil {
				known = make(map[naming.ServiceKey]bool)
			}
			known[k] = true
		}
	}
	d.mu.Unlock()
	for _, k := range loud {
		d.fire(k)
	}
}

// applyLocked makes the changes of one publisher in one service.
func (d *DataStore) applyLocked(group []Change) {
	k, publisher := group[0].Service, group[0].Publisher
	s := d.services[k]
	if s == nil {
		if !slices.ContainsFunc(group, func(c Change) bool { return c.Instance != nil }) {
			return
		}
		s = d.createLocked(k)
	}
	s.revision++
	old := s.publishers[publisher]
	records := make([]record, len(old), max(len(old), 1))
	copy(records, old)
	var at map[naming.InstanceKey]int // of a large batch, which must not cost its square
	if len(old)+len(group) > 32 {
		at = make(map[naming.InstanceKey]int, len(old)+len(group))
		for n, r := range old {
			at[r.instance.Key()] = n
		}
	}
	for _, c := range group {
		n := -1
		if at == nil {
			n = indexOf(records, c.Key.Instance)
		} else if found, ok := at[c.Key.Instance]; ok {
			n = found
		}
		switch {
		case n >= 0 && c.Instance == nil && at == nil:
			records = slices.Delete(records, n, n+1)
		case n >= 0: // where others stand does not change
			records[n] = record{c.Instance, c.Version}
		case c.Instance != nil:
			if at != nil {
				at[c.Key.Instance] = len(records)
			}
			records = append(records, record{c.Instance, c.Version})
		}
	}
	records = slices.DeleteFunc(records, func(r record) bool { return r.instance == nil })
	if len(records) == 0 {
		delete(s.publishers, publisher)
	} else {
		s.publishers[publisher] = slices.Clip(records)
		s.metadata = records[0].instance.Metadata
	}
	d.countLocked(k, s, len(records)-len(old))
}
