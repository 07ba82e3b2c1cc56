package consistency

import (
	"context"

	"rollcall/naming"
)

// Store is a replicated table of datums. Both implementations and the fake of
// storetest pass storetest.Run. All methods are safe for concurrent use.
type Store interface {
	// Publish makes the publication all that its publisher has in its service. It
	// returns once the change is applied here and, for persistent data, committed;
	// it waits no longer than ctx. A *RedirectError names another node that must
	// be asked; ErrNoLeader, ErrReadOnly and ErrUnknownOutcome belong to persistent
	// data. See WithRequest for writes that are forwarded or retried.
	Publish(ctx context.Context, p Publication) error
	// Put stores one datum; the store sets its version. Blocks and fails as
	// Publish does.
	Put(ctx context.Context, d Datum) error
	// Delete removes one datum; an absent key is not an error. Blocks and fails as
	// Publish does.
	Delete(ctx context.Context, k Key) error
	// Published returns what the publisher has in the service, in no particular
	// order; nil when it has nothing.
	Published(svc naming.ServiceKey, publisher string) []*naming.Instance
	// Service returns the service, ok false when no datum of it exists. One row
	// for each instance key: among several publishers of one address the newest
	// version wins. The caller may keep the value.
	Service(svc naming.ServiceKey) (s naming.Service, ok bool)
	// Stat returns facts about a service in constant time; the zero value when
	// no datum of it exists.
	Stat(svc naming.ServiceKey) Stat
	// Services returns the keys of the services of a namespace, sorted; of all
	// namespaces when it is empty. The caller must not alter the slice.
	Services(namespace string) []naming.ServiceKey
	// Switches returns the values of the switches that were changed, by name; the
	// map is the caller's. Only a store of persistent data has any.
	Switches() map[string]string
	// Namespaces returns the recorded namespaces, sorted by id; the slice is the
	// caller's. Only a store of persistent data has any.
	Namespaces() []naming.Namespace
	// Publications returns what each publisher has in the service, sorted by
	// publisher; the slice is the caller's.
	Publications(svc naming.ServiceKey) []Publication
	// Listen adds a listener; call it before Start. fn is called after each change
	// of state, from the goroutine that made it, and must not block.
	Listen(fn func(ServiceChanged))
	// Ready returns nil once local data is complete, else the reason why not.
	Ready() error
}

// Stat are facts about one service in one store.
type Stat struct {
	Exists    bool             // some datum exists
	Instances int              // published instances, doubles by several publishers counted
	Overrides int              // operator overrides
	Settings  *naming.Settings // nil when there are none

	// Texts and a map that are kept anyway, for who keeps more of the service: its key,
	// and the metadata of what was published last, not to be altered.
	Key      naming.ServiceKey
	Metadata map[string]string
}
