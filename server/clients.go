package server

import (
	"maps"
	"slices"
	"strings"
	"time"

	"rollcall/consistency"
	"rollcall/naming"
)

// Clients returns who publishes or is connected over gRPC, sorted by id; clients of
// UDP, which the HTTP front end knows, are not among them. It looks at every service.
func (r *Registry) Clients() []naming.Client {
	found := make(map[string]naming.Client)
	for _, c := range r.connected() {
		found[c.ID] = c
	}
	for _, svc := range r.router.Services("") {
		r.publications(svc, func(c naming.Client, _ consistency.Publication) {
			if had, ok := found[c.ID]; !ok || !had.Connection && had.Updated.Before(c.Updated) {
				found[c.ID] = c
			}
		})
	}
	out := slices.Collect(maps.Values(found))
	slices.SortFunc(out, func(a, b naming.Client) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Client returns the client with the id; see [Registry.Clients].
func (r *Registry) Client(id string) (naming.Client, bool) {
	all := r.Clients()
	n, ok := slices.BinarySearchFunc(all, id, func(c naming.Client, id string) int { return strings.Compare(c.ID, id) })
	if !ok {
		return naming.Client{}, false
	}
	return all[n], true
}

// PublishedBy returns what the client with the id publishes, sorted by service. It
// looks at every service.
func (r *Registry) PublishedBy(id string) []naming.Published {
	var out []naming.Published
	for _, svc := range r.router.Services("") {
		for _, p := range r.Publishers(svc) {
			if p.Client == id {
				out = append(out, p)
			}
		}
	}
	return out
}

// Publishers returns every instance of a service with the client that published it,
// those by several clients several times.
func (r *Registry) Publishers(svc naming.ServiceKey) []naming.Published {
	var out []naming.Published
	r.publications(svc, func(c naming.Client, p consistency.Publication) {
		for _, i := range p.Instances {
			out = append(out, naming.Published{Service: svc, Client: c.ID, Instance: i})
		}
	})
	return out
}

// publications calls fn with each publication of a service and its client.
func (r *Registry) publications(svc naming.ServiceKey, fn func(naming.Client, consistency.Publication)) {
	for _, ephemeral := range [...]bool{true, false} {
		for _, p := range r.router.Store(ephemeral).Publications(svc) {
			c := naming.Client{ID: p.Publisher, Ephemeral: ephemeral, Connection: true}
			if i := p.Instances[0]; p.Publisher == i.Key().Address() {
				c = naming.Client{ID: p.Publisher + "#true", Ephemeral: true, IP: i.IP, Port: i.Port, Updated: r.beats.seen(beatKey{svc, p.Publisher})}
				if !ephemeral {
					c.ID, c.Ephemeral, c.Updated = p.Publisher+"#false", false, r.started
				}
			}
			fn(c, p)
		}
	}
}

// seen returns when a publisher last registered or beat in a service; the zero time
// if it does not beat here.
func (b *beats) seen(k beatKey) time.Time {
	s := b.shard(k)
	s.mu.Lock()
	x := s.byKey[k]
	s.mu.Unlock()
	if x == nil {
		return time.Time{}
	}
	if x.last.Load() == 0 {
		return time.Time{}
	}
	return x.lastHeard()
}

// Responsible returns the address, of HTTP, of the node that owns what the client at
// ip:port publishes.
func (r *Registry) Responsible(ip string, port int) string {
	return r.owner(naming.Address(ip, port))
}
