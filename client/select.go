package client

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"rollcall/naming"
)

// table is what choosing by weight needs: the instances that may be chosen, and for
// each the sum of weights up to it.
type table struct {
	instances []*naming.Instance
	sums      []float64
}

// maxWeight stands for an infinite weight (C18).
const maxWeight = 10000

func newTable(list []*naming.Instance) *table {
	t := new(table)
	sum := 0.0
	for _, i := range list {
		if !selectable(i) {
			continue
		}
		w := i.Weight
		switch {
		case math.IsNaN(w):
			w = 1
		case w > maxWeight:
			w = maxWeight
		}
		sum += w
		t.instances = append(t.instances, i)
		t.sums = append(t.sums, sum)
	}
	return t
}

// pick returns one instance at random by weight, nil if there is none.
func (t *table) pick() *naming.Instance {
	n := len(t.sums)
	if n == 0 {
		return nil
	}
	return t.instances[above(t.sums, rand.Float64()*t.sums[n-1])]
}

// above returns the place of the first sum above x, the last one's if there is none.
func above(sums []float64, x float64) int {
	low, high := 0, len(sums)-1
	for low < high {
		if mid := (low + high) / 2; sums[mid] > x {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// choice returns the table of all instances; it is made when it is first needed.
func (s *snapshot) choice() *table {
	t := s.table.Load()
	if t == nil {
		t = newTable(s.service.Instances)
		s.table.Store(t)
	}
	return t
}

// Picker chooses instances of one service. It costs a subscription; choosing costs no
// lock and no allocation. Use [Client.Picker].
type Picker struct {
	entry    *entry
	clusters string
	filtered atomic.Pointer[filteredTable] // nil until it is needed
}

// filteredTable is the table of some clusters of a snapshot.
type filteredTable struct {
	of    *snapshot
	table *table
}

// Picker returns what chooses among a service's instances; clusters is a comma
// separated list, empty for all. The first call for a service subscribes to it, and
// blocks like Subscribe. Keep the Picker, or call Select, which finds it again.
func (c *Client) Picker(ctx context.Context, svc naming.ServiceKey, clusters string) (*Picker, error) {
	key, err := c.key(svc)
	if err == nil {
		err = naming.CheckClusters(clusters)
	}
	if err != nil {
		return nil, fmt.Errorf("select from %s: %w", svc.Grouped(), err)
	}
	if p := c.pickers.find(key, clusters); p != nil {
		return p, nil
	}
	e, err := c.keep.pin(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("select from %s: %w", key.Grouped(), err)
	}
	return c.pickers.add(key, clusters, &Picker{entry: e, clusters: clusters}), nil
}

// Select returns one instance of a service at random, by weight, among those that are
// healthy, enabled, and of a weight above zero. clusters is a comma separated list,
// empty for all. The first call for a service subscribes to it and blocks like
// Subscribe; later ones read the list in memory, without a lock. The instance is
// shared: do not alter it. The error is [ErrNoInstance] when there is nothing to
// choose from.
func (c *Client) Select(ctx context.Context, svc naming.ServiceKey, clusters string) (*naming.Instance, error) {
	p := c.pickers.find(c.complete(svc), clusters)
	if p == nil {
		var err error
		if p, err = c.Picker(ctx, svc, clusters); err != nil {
			return nil, err
		}
	}
	return p.Pick()
}

// Pick is Select for the Picker's service.
func (p *Picker) Pick() (*naming.Instance, error) {
	if t := p.table(); t != nil {
		if i := t.pick(); i != nil {
			return i, nil
		}
	}
	return nil, ErrNoInstance
}

func (p *Picker) table() *table {
	now := p.entry.shown.Load()
	switch {
	case now == nil:
		return nil
	case p.clusters == "":
		return now.choice()
	}
	f := p.filtered.Load()
	if f == nil || f.of != now {
		f = &filteredTable{now, newTable(filter(naming.Filter{Clusters: p.clusters}, now.service.Instances))}
		p.filtered.Store(f)
	}
	return f.table
}

// pickers finds the Picker of a service and clusters without a lock: the maps are
// replaced, never changed. There are several, so that adding one copies only some.
type pickers [64]atomic.Pointer[map[pickerKey]*Picker]

type pickerKey struct {
	svc      naming.ServiceKey
	clusters string
}

func (ps *pickers) shard(name string) *atomic.Pointer[map[pickerKey]*Picker] {
	h := uint32(2166136261) // FNV-1a
	for n := range len(name) {
		h = (h ^ uint32(name[n])) * 16777619
	}
	return &ps[h%uint32(len(ps))]
}

func (ps *pickers) find(svc naming.ServiceKey, clusters string) *Picker {
	m := ps.shard(svc.Name).Load()
	if m == nil {
		return nil
	}
	return (*m)[pickerKey{svc, clusters}]
}

// add adds a Picker and returns the one that is there then.
func (ps *pickers) add(svc naming.ServiceKey, clusters string, p *Picker) *Picker {
	shard, key := ps.shard(svc.Name), pickerKey{svc, clusters}
	for {
		old := shard.Load()
		next := make(map[pickerKey]*Picker)
		if old != nil {
			if have := (*old)[key]; have != nil {
				return have
			}
			maps.Copy(next, *old)
		}
		next[key] = p
		if shard.CompareAndSwap(old, &next) {
			return p
		}
	}
}
