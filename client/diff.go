package client

import (
	"strings"

	"rollcall/naming"
)

// Change is what happened to a service. The same rules of sharing hold as for
// [Service].
type Change struct {
	// Service is the list after the change, through the subscription's filter.
	Service Service
	// Added, Removed and Changed are the difference to the list that the subscription
	// was told before, sorted like that; Changed holds the new state. With the first
	// change of a subscription everything is added, and there may be nothing.
	Added, Removed, Changed []*naming.Instance
}

// diff compares two lists that are sorted by key.
func diff(before, after []*naming.Instance) (added, removed, changed []*naming.Instance) {
	for len(before) > 0 && len(after) > 0 {
		b, a := before[0], after[0]
		order := 0
		if b != a {
			order = b.Key().Compare(a.Key())
		}
		switch {
		case order < 0:
			removed = append(removed, b)
			before = before[1:]
		case order > 0:
			added = append(added, a)
			after = after[1:]
		default:
			if !a.Equal(b) {
				changed = append(changed, a)
			}
			before, after = before[1:], after[1:]
		}
	}
	return append(added, after...), append(removed, before...), changed
}

// union returns the instances of two sorted lists, of those in both the first one's.
func union(first, second []*naming.Instance) []*naming.Instance {
	out := make([]*naming.Instance, 0, len(first)+len(second))
	for len(first) > 0 && len(second) > 0 {
		order := first[0].Key().Compare(second[0].Key())
		if order <= 0 {
			out = append(out, first[0])
			first = first[1:]
		} else {
			out = append(out, second[0])
		}
		if order >= 0 {
			second = second[1:]
		}
	}
	return append(append(out, first...), second...)
}

// filter returns the instances that a filter lets pass; without one, the list itself.
func filter(f naming.Filter, list []*naming.Instance) []*naming.Instance {
	all := strings.TrimSpace(f.Clusters) == ""
	if all && !f.HealthyOnly {
		return list
	}
	var out []*naming.Instance
	for _, i := range list {
		if (all || inClusters(f.Clusters, i.Cluster)) && (!f.HealthyOnly || i.Healthy) {
			out = append(out, i)
		}
	}
	return out
}

// inClusters tells whether a comma separated list names the cluster.
func inClusters(list, cluster string) bool {
	for name := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(name) == cluster {
			return true
		}
	}
	return false
}

// selectable tells whether an instance may be chosen to be called (C18).
func selectable(i *naming.Instance) bool {
	return i.Healthy && i.Enabled && i.Weight != 0 && !(i.Weight < 0)
}
