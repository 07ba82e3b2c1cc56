package consistency_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

// action is one random change of a table.
type action struct {
	publish   *consistency.Publication
	put       *consistency.Datum
	remove    *consistency.Key
	replace   bool // by its own content
	readFirst bool // read every service before
}

// Generate implements quick.Generator. Names are few, so that changes meet.
func (action) Generate(random *rand.Rand, _ int) reflect.Value {
	a := action{readFirst: random.Intn(2) == 0}
	svc := naming.ServiceKey{
		Namespace: []string{"a", "b"}[random.Intn(2)], Group: "g", Name: []string{"x", "y"}[random.Intn(2)],
	}
	publisher := []string{"p", "q", "r"}[random.Intn(3)]
	i := randomInstance(random)
	kinds := []consistency.Kind{consistency.KindInstance, consistency.KindSettings, consistency.KindOverride, consistency.KindCluster}
	k := consistency.Key{Service: svc, Kind: kinds[random.Intn(len(kinds))]}
	switch k.Kind {
	case consistency.KindInstance, consistency.KindOverride:
		k.Instance = i.Key()
	case consistency.KindCluster:
		k = consistency.ClusterKey(svc, []string{"c", "d"}[random.Intn(2)])
	case consistency.KindSettings, consistency.KindSwitch, consistency.KindNamespace:
	}
	if k.Kind == consistency.KindInstance {
		k.Publisher = publisher
	}
	switch random.Intn(8) {
	case 0, 1, 2, 3:
		a.publish = &consistency.Publication{Service: svc, Publisher: publisher}
		for range random.Intn(4) {
			a.publish.Instances = append(a.publish.Instances, randomInstance(random))
		}
	case 4, 5:
		a.put = &consistency.Datum{Key: k}
		switch k.Kind {
		case consistency.KindInstance:
			a.put.Instance = i
		case consistency.KindSettings:
			a.put.Settings = &naming.Settings{ProtectThreshold: float64(random.Intn(2))}
		case consistency.KindOverride:
			a.put.Override = &naming.Override{Weight: float64(random.Intn(2))}
		case consistency.KindCluster:
			a.put.Cluster = &naming.Cluster{CheckPort: random.Intn(2)}
		case consistency.KindSwitch, consistency.KindNamespace: // in tests of their own
		}
	case 6:
		a.remove = &k
	case 7:
		a.replace = true
	}
	return reflect.ValueOf(a)
}

func randomInstance(random *rand.Rand) *naming.Instance {
	i := naming.NewInstance("10.0.0."+strconv.Itoa(random.Intn(3)), 80)
	i.Weight = float64(random.Intn(3))
	return &i
}

// model is the table without any index: what DataStore must agree with.
type model struct {
	rows []modelRow
	rest map[consistency.Key]consistency.Datum // settings and overrides
}

type modelRow struct {
	svc       naming.ServiceKey
	publisher string
	instance  *naming.Instance
	version   uint64
}

func (m *model) apply(a action, version uint64) {
	switch {
	case a.publish != nil:
		m.drop(func(r modelRow) bool { return r.svc == a.publish.Service && r.publisher == a.publish.Publisher })
		for _, i := range a.publish.Instances {
			m.put(a.publish.Service, a.publish.Publisher, i, version)
		}
	case a.put != nil && a.put.Kind == consistency.KindInstance:
		m.put(a.put.Service, a.put.Publisher, a.put.Instance, version)
	case a.put != nil:
		m.rest[a.put.Key] = *a.put
	case a.remove != nil && a.remove.Kind == consistency.KindInstance:
		m.drop(func(r modelRow) bool {
			return r.svc == a.remove.Service && r.publisher == a.remove.Publisher && r.instance.Key() == a.remove.Instance
		})
	case a.remove != nil:
		delete(m.rest, *a.remove)
	}
}

func (m *model) drop(which func(modelRow) bool) { m.rows = slices.DeleteFunc(m.rows, which) }

func (m *model) put(svc naming.ServiceKey, publisher string, i *naming.Instance, version uint64) {
	m.drop(func(r modelRow) bool {
		return r.svc == svc && r.publisher == publisher && r.instance.Key() == i.Key()
	})
	m.rows = append(m.rows, modelRow{svc, publisher, i, version})
}

func (m *model) service(k naming.ServiceKey) (naming.Service, consistency.Stat) {
	s := naming.Service{Key: k}
	var st consistency.Stat
	newest := make(map[naming.InstanceKey]modelRow)
	for _, r := range m.rows {
		if r.svc != k {
			continue
		}
		st.Exists = true
		st.Instances++
		if have, ok := newest[r.instance.Key()]; !ok || have.version < r.version {
			newest[r.instance.Key()] = r
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(newest), naming.InstanceKey.Compare) {
		s.Instances = append(s.Instances, newest[key].instance)
	}
	for key, d := range m.rest {
		if key.Service != k {
			continue
		}
		st.Exists = true
		switch key.Kind {
		case consistency.KindSettings:
			s.Settings, st.Settings = d.Settings, d.Settings
		case consistency.KindOverride:
			if s.Overrides == nil {
				s.Overrides = make(map[naming.InstanceKey]*naming.Override)
			}
			s.Overrides[key.Instance] = d.Override
			st.Overrides++
		case consistency.KindCluster:
			if s.Clusters == nil {
				s.Clusters = make(map[string]*naming.Cluster)
			}
			s.Clusters[key.Instance.Cluster] = d.Cluster
		case consistency.KindInstance, consistency.KindSwitch, consistency.KindNamespace:
		}
	}
	return s, st
}

func (m *model) keys(namespace string) []naming.ServiceKey {
	set := make(map[naming.ServiceKey]bool)
	for _, r := range m.rows {
		set[r.svc] = true
	}
	for k := range m.rest {
		set[k.Service] = true
	}
	maps.DeleteFunc(set, func(k naming.ServiceKey, _ bool) bool { return namespace != "" && k.Namespace != namespace })
	return slices.SortedFunc(maps.Keys(set), naming.ServiceKey.Compare)
}

// show renders what a reader can see of a service.
func show(s naming.Service, st consistency.Stat) string {
	out := fmt.Sprintf("%v settings %v %v, counts %v %v %v:", s.Key, s.Settings, st.Settings, st.Exists, st.Instances, st.Overrides)
	for _, i := range s.Instances {
		out += fmt.Sprintf(" %v=%v", i.Key(), i.Weight)
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.Overrides), naming.InstanceKey.Compare) {
		out += fmt.Sprintf(" override %v=%v", k, s.Overrides[k].Weight)
	}
	return out
}

func (m *model) show(k naming.ServiceKey) string { return show(m.service(k)) }

func showStore(d *consistency.DataStore, k naming.ServiceKey) string {
	s, _ := d.Service(k)
	return show(s, d.Stat(k))
}

func allKeys() []naming.ServiceKey {
	var out []naming.ServiceKey
	for _, namespace := range []string{"a", "b"} {
		for _, name := range []string{"x", "y"} {
			out = append(out, naming.ServiceKey{Namespace: namespace, Group: "g", Name: name})
		}
	}
	return out
}

func quickConfig(t *testing.T) *quick.Config {
	t.Helper()
	seed := rand.Int63()
	t.Logf("seed %d", seed)
	return &quick.Config{MaxCount: 300, Rand: rand.New(rand.NewSource(seed))}
}

// The table agrees with the model after every change, whoever sees a difference
// gets a notice, and nobody else does.
func TestDataStore_AgreesWithTheModel(t *testing.T) {
	require.NoError(t, quick.Check(func(actions []action) bool {
		d := consistency.NewDataStore()
		m := &model{rest: make(map[consistency.Key]consistency.Datum)}
		var noticed []naming.ServiceKey
		d.Listen(func(c consistency.ServiceChanged) {
			noticed = append(noticed, c.Service)
			require.Equal(t, m.show(c.Service), showStore(d, c.Service), "the notice comes after the change")
		})
		for n, a := range actions {
			before := make(map[naming.ServiceKey]string)
			for _, k := range allKeys() {
				before[k] = m.show(k)
				if a.readFirst {
					showStore(d, k)
				}
			}
			noticed = nil
			version := uint64(n + 1)
			m.apply(a, version)
			target := naming.ServiceKey{}
			switch {
			case a.publish != nil:
				target = a.publish.Service
				d.Publish(*a.publish, consistency.Version{Time: version})
			case a.put != nil:
				target = a.put.Service
				a.put.Version = consistency.Version{Time: version}
				d.Put(*a.put)
			case a.remove != nil:
				target = a.remove.Service
				d.Delete(*a.remove)
			case a.replace:
				d.Replace(d.Datums())
			}
			rows := 0
			for _, k := range allKeys() {
				want := m.show(k)
				require.Equal(t, want, showStore(d, k))
				if a.readFirst && want != before[k] {
					require.Contains(t, noticed, k)
				}
				if !a.replace && k != target {
					require.NotContains(t, noticed, k)
				}
				for _, p := range []string{"p", "q", "r"} {
					require.ElementsMatch(t, m.published(k, p), d.Published(k, p))
				}
				rows += d.Stat(k).Instances
			}
			for _, namespace := range []string{"", "a", "b", "c"} {
				require.Equal(t, fmt.Sprint(m.keys(namespace)), fmt.Sprint(d.Services(namespace)))
			}
			services, instances := d.Counts()
			require.Equal(t, len(m.keys("")), services)
			require.Equal(t, len(m.rows), instances)
			require.Equal(t, rows, instances)
			require.Len(t, d.Datums(), len(m.rows)+len(m.rest))
		}
		return true
	}, quickConfig(t)))
}

func (m *model) published(k naming.ServiceKey, publisher string) []*naming.Instance {
	var out []*naming.Instance
	for _, r := range m.rows {
		if r.svc == k && r.publisher == publisher {
			out = append(out, r.instance)
		}
	}
	return out
}

func TestDataStore_EqualPublicationGivesNoNotice(t *testing.T) {
	d := consistency.NewDataStore()
	notices := 0
	d.Listen(func(consistency.ServiceChanged) { notices++ })
	svc := naming.ServiceKey{Namespace: "a", Group: "g", Name: "x"}
	publish := func(publisher string, weight float64, version uint64) {
		i := naming.NewInstance("10.0.0.1", 80)
		i.Weight = weight
		d.Publish(consistency.Publication{Service: svc, Publisher: publisher, Instances: []*naming.Instance{&i}}, consistency.Version{Time: version})
	}
	publish("p", 1, 1)
	publish("p", 1, 2)
	require.Equal(t, 1, notices)
	publish("q", 2, 3)
	d.Service(svc) // somebody has seen that q's row wins
	publish("p", 1, 4)
	require.Equal(t, 3, notices, "an equal publication brings p's row back")
	s, _ := d.Service(svc)
	require.InDelta(t, 1, s.Instances[0].Weight, 0)
	d.Publish(consistency.Publication{Service: naming.ServiceKey{Name: "unknown"}, Publisher: "p"}, consistency.Version{Time: 5})
	require.Equal(t, 3, notices)
}

func TestDataStore_ReplaceTellsOfWhatLooksDifferent(t *testing.T) {
	d, fresh := consistency.NewDataStore(), consistency.NewDataStore()
	key := func(name string) naming.ServiceKey { return naming.ServiceKey{Namespace: "a", Group: "g", Name: name} }
	version := consistency.Version{}
	put := func(d *consistency.DataStore, name, publisher string, weights ...float64) {
		version.Time++
		p := consistency.Publication{Service: key(name), Publisher: publisher}
		for n, w := range weights {
			i := naming.NewInstance("10.0.0."+strconv.Itoa(n), 80)
			i.Weight = w
			p.Instances = append(p.Instances, &i)
		}
		d.Publish(p, version)
	}
	settings := func(d *consistency.DataStore, name string, threshold float64) {
		d.Put(consistency.Datum{
			Key:      consistency.Key{Service: key(name), Kind: consistency.KindSettings},
			Settings: &naming.Settings{ProtectThreshold: threshold},
		})
	}
	override := func(d *consistency.DataStore, name string, weight float64) {
		i := naming.NewInstance("10.0.0.1", 80)
		d.Put(consistency.Datum{
			Key:      consistency.Key{Service: key(name), Kind: consistency.KindOverride, Instance: i.Key()},
			Override: &naming.Override{Weight: weight},
		})
	}
	for _, d := range []*consistency.DataStore{d, fresh} {
		for _, name := range []string{"same", "more", "weight", "publisher", "settings", "override", "doubled"} {
			put(d, name, "p", 1, 2)
			settings(d, name, 0.5)
			override(d, name, 7)
		}
	}
	put(d, "old", "p", 1)
	put(fresh, "new", "p", 1)
	put(fresh, "more", "p", 1, 2, 3)
	put(fresh, "weight", "p", 1, 3)
	put(fresh, "publisher", "p")
	put(fresh, "publisher", "q", 1, 2)
	settings(fresh, "settings", 0.6)
	override(fresh, "override", 8)
	// Nothing but versions tells which of two publishers wins.
	put(d, "doubled", "q", 3, 4)
	put(fresh, "doubled", "q", 3, 4)
	put(fresh, "doubled", "p", 1, 2)
	_, ok := d.Service(key("doubled"))
	require.True(t, ok)

	counts := make(map[string]int)
	d.Listen(func(c consistency.ServiceChanged) {
		counts[c.Service.Name]++
		require.Equal(t, c.Service.Name != "old", d.Stat(c.Service).Exists)
	})
	d.Replace(fresh.Datums())
	require.Equal(t, map[string]int{
		"old": 1, "new": 1, "more": 1, "weight": 1, "publisher": 1, "settings": 1, "override": 1, "doubled": 1,
	}, counts)
	require.Equal(t, fresh.Services(""), d.Services(""))
	require.Equal(t, fresh.Services("a"), d.Services("a"))
	for _, k := range d.Services("") {
		have, _ := d.Service(k)
		want, _ := fresh.Service(k)
		require.Equal(t, want, have)
	}
}

func TestDataStore_ReadsOfSettingsAreShared(t *testing.T) {
	d := consistency.NewDataStore()
	svc := naming.ServiceKey{Namespace: "a", Group: "g", Name: "x"}
	s := &naming.Settings{ProtectThreshold: 1}
	d.Put(consistency.Datum{Key: consistency.Key{Service: svc, Kind: consistency.KindSettings}, Settings: s})
	require.Same(t, s, d.Stat(svc).Settings)
	got, ok := d.Service(svc)
	require.True(t, ok)
	require.Same(t, s, got.Settings)
}

func BenchmarkDataStore(b *testing.B) {
	svc := naming.ServiceKey{Namespace: "a", Group: "g", Name: "x"}
	batch := make([]*naming.Instance, 1000)
	for n := range batch {
		i := naming.NewInstance(fmt.Sprintf("10.0.%d.%d", n/256, n%256), 80)
		batch[n] = &i
	}
	b.Run("publish one", func(b *testing.B) {
		d := consistency.NewDataStore()
		n := 0
		for b.Loop() {
			n++
			d.Publish(consistency.Publication{Service: svc, Publisher: strconv.Itoa(n % 10_000), Instances: batch[n%1000 : n%1000+1]}, consistency.Version{Time: uint64(n)})
		}
	})
	b.Run("publish batch of 1000", func(b *testing.B) {
		d := consistency.NewDataStore()
		n := uint64(0)
		for b.Loop() {
			n++
			d.Publish(consistency.Publication{Service: svc, Publisher: "p", Instances: batch}, consistency.Version{Time: n})
		}
	})
	b.Run("read service of 1000", func(b *testing.B) {
		d := consistency.NewDataStore()
		for n, i := range batch {
			d.Publish(consistency.Publication{Service: svc, Publisher: i.IP, Instances: batch[n : n+1]}, consistency.Version{Time: 1})
		}
		for b.Loop() {
			d.Service(svc)
		}
	})
}

// sign makes results of Compare comparable.
func sign(n int) int { return cmp.Compare(n, 0) }

func TestDataStore_Switches(t *testing.T) {
	d := consistency.NewDataStore()
	var fired []naming.ServiceKey
	d.Listen(func(c consistency.ServiceChanged) { fired = append(fired, c.Service) })
	require.Empty(t, d.Switches())
	k := consistency.Key{Kind: consistency.KindSwitch, Switch: "lightBeatEnabled"}
	d.Put(consistency.Datum{Key: k, Value: "false"})
	require.Equal(t, map[string]string{"lightBeatEnabled": "false"}, d.Switches())
	require.Equal(t, []naming.ServiceKey{{}}, fired)
	require.Empty(t, d.Services(""), "a switch is no service")
	require.Equal(t, []consistency.Datum{{Key: k, Value: "false"}}, d.Datums())

	other := consistency.NewDataStore()
	other.Replace(d.Datums())
	require.Equal(t, d.Switches(), other.Switches())

	d.Delete(k)
	d.Delete(k)
	require.Empty(t, d.Switches())
	require.Len(t, fired, 2)
}
