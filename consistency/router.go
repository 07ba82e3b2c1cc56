package consistency

import (
	"context"
	"errors"
	"slices"

	"rollcall/naming"
)

// Router chooses the store for a write by the kind of the data, and joins both
// stores on read. Settings and overrides are always persistent. Safe for
// concurrent use.
type Router struct {
	ephemeral, persistent Store
}

// NewRouter returns a router over the two stores.
func NewRouter(ephemeral, persistent Store) *Router { return &Router{ephemeral, persistent} }

// Store returns the store for instances of the kind.
func (r *Router) Store(ephemeral bool) Store {
	if ephemeral {
		return r.ephemeral
	}
	return r.persistent
}

// Publish publishes ephemeral or persistent instances; see [Store.Publish].
func (r *Router) Publish(ctx context.Context, ephemeral bool, p Publication) error {
	return r.Store(ephemeral).Publish(ctx, p)
}

// Put stores one datum; see [Store.Put].
func (r *Router) Put(ctx context.Context, d Datum) error {
	return r.Store(d.Kind == KindInstance && d.Instance.Ephemeral).Put(ctx, d)
}

// DeletePersistent removes anything but an ephemeral instance; see [Store.Delete].
func (r *Router) DeletePersistent(ctx context.Context, k Key) error {
	return r.persistent.Delete(ctx, k)
}

// Service joins what both stores hold of a service. ok is false when neither
// holds anything. Where both have one address, the persistent instance is shown.
func (r *Router) Service(k naming.ServiceKey) (s naming.Service, ok bool) {
	p, okP := r.persistent.Service(k)
	e, okE := r.ephemeral.Service(k)
	switch {
	case !okE:
		return p, okP
	case !okP:
		return e, okE
	}
	if len(p.Instances) == 0 {
		p.Instances = e.Instances
		return p, true
	}
	rows := slices.Concat(p.Instances, e.Instances)
	slices.SortStableFunc(rows, func(a, b *naming.Instance) int { return a.Key().Compare(b.Key()) })
	p.Instances = slices.CompactFunc(rows, func(a, b *naming.Instance) bool { return a.Key() == b.Key() })
	return p, true
}

// Stat joins the facts of both stores. Kind tells what the service takes now.
func (r *Router) Stat(k naming.ServiceKey) (st Stat, kind naming.Kind) {
	p, e := r.persistent.Stat(k), r.ephemeral.Stat(k)
	st = Stat{
		Exists: p.Exists || e.Exists, Instances: p.Instances + e.Instances, Overrides: p.Overrides, Settings: p.Settings,
		Key: e.Key, Metadata: e.Metadata,
	}
	if !e.Exists {
		st.Key, st.Metadata = p.Key, p.Metadata
	}
	switch {
	case p.Instances > 0:
		kind = naming.KindPersistent
	case e.Instances > 0:
		kind = naming.KindEphemeral
	case p.Settings != nil:
		kind = p.Settings.Kind
	}
	return st, kind
}

// Services joins the keys of both stores, sorted; see [Store.Services].
func (r *Router) Services(namespace string) []naming.ServiceKey {
	p, e := r.persistent.Services(namespace), r.ephemeral.Services(namespace)
	switch {
	case len(p) == 0:
		return e
	case len(e) == 0:
		return p
	}
	out := slices.Concat(p, e)
	slices.SortFunc(out, naming.ServiceKey.Compare)
	return slices.Compact(out)
}

// Switches returns the changed switches; see [Store.Switches].
func (r *Router) Switches() map[string]string { return r.persistent.Switches() }

// Namespaces returns the recorded namespaces; see [Store.Namespaces].
func (r *Router) Namespaces() []naming.Namespace { return r.persistent.Namespaces() }

// Listen adds a listener to both stores; see [Store.Listen].
func (r *Router) Listen(fn func(ServiceChanged)) {
	r.persistent.Listen(fn)
	r.ephemeral.Listen(fn)
}

// Ready returns nil once both stores are ready, else the reasons why not.
func (r *Router) Ready() error {
	return errors.Join(r.persistent.Ready(), r.ephemeral.Ready())
}
