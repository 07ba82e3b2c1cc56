package storetest

import (
	"context"
	"sync"

	"rollcall/consistency"
	"rollcall/naming"
)

// Fake is a store in memory. It passes [Run]. Safe for concurrent use.
type Fake struct {
	table *consistency.DataStore

	mu    sync.Mutex // orders writes
	count uint64     // of writes, which is also their version
	fault error
}

var _ consistency.Store = (*Fake)(nil)

// NewFake returns an empty store that is ready.
func NewFake() *Fake { return &Fake{table: consistency.NewDataStore()} }

// Fail makes every write fail with err and the store not ready for that reason,
// until it is called with nil.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = err
}

// Writes returns the number of writes that were accepted.
func (f *Fake) Writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int(f.count)
}

func (f *Fake) write(ctx context.Context, change func(consistency.Version)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.fault != nil {
		return f.fault
	}
	f.count++
	change(consistency.Version{Time: f.count})
	return nil
}

// Publish implements [consistency.Store].
func (f *Fake) Publish(ctx context.Context, p consistency.Publication) error {
	return f.write(ctx, func(v consistency.Version) { f.table.Publish(p, v) })
}

// Put implements [consistency.Store].
func (f *Fake) Put(ctx context.Context, d consistency.Datum) error {
	return f.write(ctx, func(v consistency.Version) {
		d.Version = v
		f.table.Put(d)
	})
}

// Delete implements [consistency.Store].
func (f *Fake) Delete(ctx context.Context, k consistency.Key) error {
	return f.write(ctx, func(consistency.Version) { f.table.Delete(k) })
}

// Published implements [consistency.Store].
func (f *Fake) Published(svc naming.ServiceKey, publisher string) []*naming.Instance {
	return f.table.Published(svc, publisher)
}

// Service implements [consistency.Store].
func (f *Fake) Service(svc naming.ServiceKey) (naming.Service, bool) { return f.table.Service(svc) }

// Stat implements [consistency.Store].
func (f *Fake) Stat(svc naming.ServiceKey) consistency.Stat { return f.table.Stat(svc) }

// Namespaces implements [consistency.Store].
func (f *Fake) Namespaces() []naming.Namespace { return f.table.Namespaces() }

// Publications implements [consistency.Store].
func (f *Fake) Publications(svc naming.ServiceKey) []consistency.Publication {
	return f.table.Publications(svc)
}

// Switches implements [consistency.Store].
func (f *Fake) Switches() map[string]string { return f.table.Switches() }

// Services implements [consistency.Store].
func (f *Fake) Services(namespace string) []naming.ServiceKey { return f.table.Services(namespace) }

// Listen implements [consistency.Store].
func (f *Fake) Listen(fn func(consistency.ServiceChanged)) { f.table.Listen(fn) }

// Ready implements [consistency.Store].
func (f *Fake) Ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}
