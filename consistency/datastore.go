package consistency

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"rollcall/naming"
)

// DataStore is the in-memory table of datums, indexed by service. Readers may
// call it from any goroutine; changes come from one writer at a time, the store
// that owns it. Listeners are called after the state has changed, by the
// goroutine that changed it, without a lock held.
type DataStore struct {
	mu        sync.RWMutex
	services  map[naming.ServiceKey]*service
	sorted    map[string][]naming.ServiceKey // by namespace; "" is all; missing: to be made
	instances int
	switches  map[string]string
	spaces    map[string]*naming.Namespace
	listeners []func(ServiceChanged) // set before the first change
}

// service is what the table holds of one service. It is dropped when nothing is
// left in it.
type service struct {
	key        naming.ServiceKey
	publishers map[string][]record // no entry is empty
	instances  int
	settings   *naming.Settings
	overrides  map[naming.InstanceKey]*naming.Override
	clusters   map[string]*naming.Cluster
	// doubled is set when a reader met one address with several publishers: then
	// an equal registration can still change which of them wins.
	doubled  bool
	revision uint64            // raised with each publication
	metadata map[string]string // of the instance that was published last
}

type record struct {
	instance *naming.Instance
	version  Version
}

// NewDataStore returns an empty table.
func NewDataStore() *DataStore {
	return &DataStore{
		services: make(map[naming.ServiceKey]*service),
		sorted:   make(map[string][]naming.ServiceKey),
		switches: make(map[string]string),
		spaces:   make(map[string]*naming.Namespace),
	}
}

// Listen adds a listener; call it before the first change.
func (d *DataStore) Listen(fn func(ServiceChanged)) { d.listeners = append(d.listeners, fn) }

// Publish applies a publication with the given version and fires ServiceChanged
// unless every client would see what it saw before.
func (d *DataStore) Publish(p Publication, v Version) {
	d.mu.Lock()
	changed := d.publishLocked(p, v)
	d.mu.Unlock()
	if changed {
		d.fire(p.Service)
	}
}

func (d *DataStore) publishLocked(p Publication, v Version) (changed bool) {
	s := d.services[p.Service]
	if s == nil {
		if len(p.Instances) == 0 {
			return false
		}
		s = d.createLocked(p.Service)
	}
	s.revision++
	old := s.publishers[p.Publisher]
	records := recordsOf(p.Instances, v)
	changed = s.doubled || !slices.EqualFunc(old, records, func(a, b record) bool { return a.instance.Equal(b.instance) })
	if len(records) == 0 {
		delete(s.publishers, p.Publisher)
	} else {
		s.publishers[p.Publisher] = records
		s.metadata = records[0].instance.Metadata
	}
	d.countLocked(p.Service, s, len(records)-len(old))
	return changed
}

// Put stores one datum with its version and fires ServiceChanged.
func (d *DataStore) Put(dt Datum) {
	d.mu.Lock()
	d.putLocked(dt)
	d.mu.Unlock()
	d.fire(dt.Service)
}

func (d *DataStore) putLocked(dt Datum) {
	switch dt.Kind {
	case KindSwitch:
		d.switches[dt.Switch] = dt.Value
		return
	case KindNamespace:
		d.spaces[dt.Service.Namespace] = dt.Namespace
		return
	case KindInstance, KindSettings, KindOverride, KindCluster: // of a service
	}
	s := d.services[dt.Service]
	if s == nil {
		s = d.createLocked(dt.Service)
	}
	switch dt.Kind {
	case KindInstance:
		s.revision++
		records := slices.Clone(s.publishers[dt.Publisher])
		added := 0
		if n := indexOf(records, dt.Instance.Key()); n >= 0 {
			records[n] = record{dt.Instance, dt.Version}
		} else {
			records = append(records, record{dt.Instance, dt.Version})
			added = 1
		}
		s.publishers[dt.Publisher] = records
		d.countLocked(dt.Service, s, added)
	case KindSettings:
		s.settings = dt.Settings
	case KindOverride:
		if s.overrides == nil {
			s.overrides = make(map[naming.InstanceKey]*naming.Override)
		}
		s.overrides[dt.Key.Instance] = dt.Override
	case KindCluster:
		if s.clusters == nil {
			s.clusters = make(map[string]*naming.Cluster)
		}
		s.clusters[dt.Key.Instance.Cluster] = dt.Cluster
	case KindSwitch, KindNamespace: // have no service
	}
}

// Delete removes one datum and fires ServiceChanged if it was there.
func (d *DataStore) Delete(k Key) {
	d.mu.Lock()
	removed := d.deleteLocked(k)
	d.mu.Unlock()
	if removed {
		d.fire(k.Service)
	}
}

func (d *DataStore) deleteLocked(k Key) bool {
	switch k.Kind {
	case KindSwitch:
		_, ok := d.switches[k.Switch]
		delete(d.switches, k.Switch)
		return ok
	case KindNamespace:
		_, ok := d.spaces[k.Service.Namespace]
		delete(d.spaces, k.Service.Namespace)
		return ok
	case KindInstance, KindSettings, KindOverride, KindCluster: // of a service
	}
	s := d.services[k.Service]
	if s == nil {
		return false
	}
	switch k.Kind {
	case KindInstance:
		records := s.publishers[k.Publisher]
		n := indexOf(records, k.Instance)
		if n < 0 {
			return false
		}
		if records = slices.Delete(slices.Clone(records), n, n+1); len(records) == 0 {
			delete(s.publishers, k.Publisher)
		} else {
			s.publishers[k.Publisher] = records
		}
		d.countLocked(k.Service, s, -1)
		return true
	case KindSettings:
		if s.settings == nil {
			return false
		}
		s.settings = nil
	case KindOverride:
		if s.overrides[k.Instance] == nil {
			return false
		}
		delete(s.overrides, k.Instance)
	case KindCluster:
		if s.clusters[k.Instance.Cluster] == nil {
			return false
		}
		delete(s.clusters, k.Instance.Cluster)
	case KindSwitch, KindNamespace: // have no service
	}
	d.countLocked(k.Service, s, 0)
	return true
}

func (d *DataStore) createLocked(k naming.ServiceKey) *service {
	k = naming.ServiceKey{Namespace: strings.Clone(k.Namespace), Group: strings.Clone(k.Group), Name: strings.Clone(k.Name)}
	s := &service{key: k, publishers: make(map[string][]record, 1)}
	d.services[k] = s
	clear(d.sorted)
	return s
}

// countLocked adds to the number of instances and drops a service without any datum.
func (d *DataStore) countLocked(k naming.ServiceKey, s *service, added int) {
	s.instances += added
	d.instances += added
	if len(s.publishers) == 0 && s.settings == nil && len(s.overrides) == 0 && len(s.clusters) == 0 {
		delete(d.services, k)
		clear(d.sorted)
	}
}

func (d *DataStore) fire(k naming.ServiceKey) {
	for _, fn := range d.listeners {
		fn(ServiceChanged{Service: k})
	}
}

// Published returns what the publisher has in the service; nil when nothing.
func (d *DataStore) Published(svc naming.ServiceKey, publisher string) []*naming.Instance {
	d.mu.RLock()
	defer d.mu.RUnlock()
	s := d.services[svc]
	if s == nil {
		return nil
	}
	var out []*naming.Instance
	for _, r := range s.publishers[publisher] {
		out = append(out, r.instance)
	}
	return out
}

// Service returns a service as [Store.Service] does.
func (d *DataStore) Service(k naming.ServiceKey) (naming.Service, bool) {
	d.mu.RLock()
	s := d.services[k]
	if s == nil {
		d.mu.RUnlock()
		return naming.Service{Key: k}, false
	}
	rows := make([]record, 0, s.instances)
	for _, records := range s.publishers {
		rows = append(rows, records...)
	}
	out := naming.Service{Key: k, Settings: s.settings}
	out.Overrides, out.Clusters = maps.Clone(s.overrides), maps.Clone(s.clusters)
	revision, doubled := s.revision, s.doubled
	d.mu.RUnlock()

	slices.SortFunc(rows, func(a, b record) int { // newest first within a row
		if c := a.instance.Key().Compare(b.instance.Key()); c != 0 {
			return c
		}
		return b.version.Compare(a.version)
	})
	out.Instances = make([]*naming.Instance, 0, len(rows))
	for n, r := range rows {
		if n == 0 || r.instance.Key() != rows[n-1].instance.Key() {
			out.Instances = append(out.Instances, r.instance)
		}
	}
	if len(out.Instances) < len(rows) && !doubled {
		d.mu.Lock()
		s.doubled = true
		moved := s.revision != revision || d.services[k] != s
		d.mu.Unlock()
		if moved { // an equal publication may have changed the winner without a notice
			return d.Service(k)
		}
	}
	return out, true
}

// Stat returns facts about a service in constant time.
func (d *DataStore) Stat(k naming.ServiceKey) Stat {
	d.mu.RLock()
	defer d.mu.RUnlock()
	s := d.services[k]
	if s == nil {
		return Stat{}
	}
	return Stat{
		Exists: true, Instances: s.instances, Overrides: len(s.overrides), Settings: s.settings,
		Key: s.key, Metadata: s.metadata,
	}
}

// Switches returns the values of the switches that were changed, by name; the map
// is the caller's.
func (d *DataStore) Switches() map[string]string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return maps.Clone(d.switches)
}

// Namespaces returns the recorded namespaces, sorted by id; the slice is the
// caller's.
func (d *DataStore) Namespaces() []naming.Namespace {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make([]naming.Namespace, 0, len(d.spaces))
	for _, id := range slices.Sorted(maps.Keys(d.spaces)) {
		out = append(out, *d.spaces[id])
	}
	return out
}

// Publications returns what each publisher has in a service, sorted by publisher;
// the slice is the caller's, the instances are shared.
func (d *DataStore) Publications(svc naming.ServiceKey) []Publication {
	d.mu.RLock()
	defer d.mu.RUnlock()
	s := d.services[svc]
	if s == nil {
		return nil
	}
	out := make([]Publication, 0, len(s.publishers))
	for _, publisher := range slices.Sorted(maps.Keys(s.publishers)) {
		p := Publication{Service: svc, Publisher: publisher}
		for _, r := range s.publishers[publisher] {
			p.Instances = append(p.Instances, r.instance)
		}
		out = append(out, p)
	}
	return out
}

// Services returns sorted keys as [Store.Services] does.
func (d *DataStore) Services(namespace string) []naming.ServiceKey {
	d.mu.RLock()
	list, ok := d.sorted[namespace]
	d.mu.RUnlock()
	if ok {
		return list
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range d.services {
		if namespace == "" || k.Namespace == namespace {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, naming.ServiceKey.Compare)
	if len(list) > 0 { // unknown namespaces are not remembered: clients choose their names
		d.sorted[namespace] = list
	}
	return list
}

// Counts returns the number of services and of published instances.
func (d *DataStore) Counts() (services, instances int) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.services), d.instances
}

// Datums returns every datum, in no particular order; the slice is the caller's.
func (d *DataStore) Datums() []Datum {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make([]Datum, 0, d.instances)
	for name, value := range d.switches {
		out = append(out, Datum{Key: Key{Kind: KindSwitch, Switch: name}, Value: value})
	}
	for id, n := range d.spaces {
		out = append(out, Datum{Key: NamespaceKey(id), Namespace: n})
	}
	for k, s := range d.services {
		for publisher, records := range s.publishers {
			for _, r := range records {
				out = append(out, Datum{
					Key:     Key{Service: k, Kind: KindInstance, Publisher: publisher, Instance: r.instance.Key()},
					Version: r.version, Instance: r.instance,
				})
			}
		}
		if s.settings != nil {
			out = append(out, Datum{Key: Key{Service: k, Kind: KindSettings}, Settings: s.settings})
		}
		for key, o := range s.overrides {
			out = append(out, Datum{Key: Key{Service: k, Kind: KindOverride, Instance: key}, Override: o})
		}
		for name, c := range s.clusters {
			out = append(out, Datum{Key: ClusterKey(k, name), Cluster: c})
		}
	}
	return out
}

// Replace makes the given datums the whole content, then fires ServiceChanged for
// each service that clients would see differently now, and for the zero key if
// switches changed.
func (d *DataStore) Replace(datums []Datum) {
	fresh := NewDataStore()
	for _, dt := range datums {
		fresh.Put(dt)
	}
	d.mu.Lock()
	old := d.services
	switched := !maps.Equal(d.switches, fresh.switches)
	d.services, d.instances, d.switches, d.spaces = fresh.services, fresh.instances, fresh.switches, fresh.spaces
	clear(d.sorted)
	// Under the lock, for readers mark services in the new content.
	var changed []naming.ServiceKey
	for k, s := range old {
		if now := fresh.services[k]; now == nil || !s.looksLike(now) {
			changed = append(changed, k)
		}
	}
	for k := range fresh.services {
		if old[k] == nil {
			changed = append(changed, k)
		}
	}
	d.mu.Unlock()
	for _, k := range changed {
		d.fire(k)
	}
	if switched {
		d.fire(naming.ServiceKey{})
	}
}

// looksLike returns whether clients see no difference. It may say that they do when
// several publishers have one address, as then versions decide.
func (s *service) looksLike(o *service) bool {
	if s.instances != o.instances || len(s.publishers) != len(o.publishers) || len(s.overrides) != len(o.overrides) ||
		s.doubled || !reflect.DeepEqual(s.settings, o.settings) || !maps.EqualFunc(s.clusters, o.clusters, func(a, b *naming.Cluster) bool { return reflect.DeepEqual(a, b) }) {
		return false
	}
	for k, v := range s.overrides {
		if !reflect.DeepEqual(v, o.overrides[k]) {
			return false
		}
	}
	for publisher, records := range s.publishers {
		others := o.publishers[publisher]
		if len(records) != len(others) {
			return false
		}
		for _, r := range records {
			n := indexOf(others, r.instance.Key())
			if n < 0 || !r.instance.Equal(others[n].instance) {
				return false
			}
		}
	}
	return true
}

// recordsOf returns a record for each key; of two instances with one key the later
// one wins.
func recordsOf(instances []*naming.Instance, v Version) []record {
	records := make([]record, 0, len(instances))
	if len(instances) == 1 {
		return append(records, record{instances[0], v})
	}
	at := make(map[naming.InstanceKey]int, len(instances))
	for _, i := range instances {
		if n, ok := at[i.Key()]; ok {
			records[n].instance = i
			continue
		}
		at[i.Key()] = len(records)
		records = append(records, record{i, v})
	}
	return records
}

func indexOf(records []record, k naming.InstanceKey) int {
	return slices.IndexFunc(records, func(r record) bool { return r.instance.Key() == k })
}
