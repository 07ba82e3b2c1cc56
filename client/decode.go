package client

import (
	"slices"
	"strconv"

	"rollcall/naming"
)

// Service is the list of a service's instances as a server told it. Values are
// shared between callers and never changed: do not alter the slice, the instances or
// their metadata.
type Service struct {
	Key naming.ServiceKey
	// Instances are sorted by cluster, ip and port, with one for each; nil when there
	// is none. Unhealthy ones are among them unless a filter left them out.
	Instances []*naming.Instance
	// LastRefTimeMs is the server's time of the list, in milliseconds since 1970.
	LastRefTimeMs int64
	// CacheMs is how long the server would let a client keep the list, milliseconds.
	CacheMs int64
	// ReachedProtection tells that so few instances are healthy that the server
	// shows all as healthy (protect threshold).
	ReachedProtection bool
}

// message is what servers answer and push, as far as the client reads it.
type message struct {
	resultCode int64
	errorCode  int64
	text       string
	service    *Service // nil: none
}

// decodeMessage reads an answer or a push. The key of its service has no namespace;
// strings and metadata that equal those in known are shared with it. known returns
// the list that is there of a service, nil for none; it may be nil.
func decodeMessage(b []byte, known func(group, name string) *Service) (*message, error) {
	m := &message{resultCode: 200}
	p := &parser{b: b}
	err := p.object(func(key []byte) (err error) {
		switch string(key) {
		case "resultCode":
			m.resultCode, err = p.integer()
		case "errorCode":
			m.errorCode, err = p.integer()
		case "message":
			m.text, err = p.string()
		case "serviceInfo":
			if p.null() {
				return nil
			}
			m.service, err = p.service(known)
		default:
			err = p.skip()
		}
		return err
	})
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// decodeHead reads of an answer how it went.
func decodeHead(b []byte) (*message, error) {
	m := &message{resultCode: 200}
	p := &parser{b: b}
	err := p.object(func(key []byte) (err error) {
		switch string(key) {
		case "resultCode":
			m.resultCode, err = p.integer()
		case "errorCode":
			m.errorCode, err = p.integer()
		case "message":
			m.text, err = p.string()
		default:
			err = p.skip()
		}
		return err
	})
	return m, err
}

// code returns the code of a failure.
func (m *message) code() int {
	if m.errorCode != 0 {
		return int(m.errorCode)
	}
	return int(m.resultCode)
}

func (p *parser) string() (string, error) {
	text, err := p.text()
	return string(text), err
}

// service reads a ServiceInfo (grpc.md 3.2, http.md 5.3). Its name may be grouped,
// with or without the group beside it.
func (p *parser) service(known func(group, name string) *Service) (*Service, error) {
	// Servers write the hosts after the names, but need not.
	hostsAt, after := -1, 0
	s := new(Service)
	var group, name string
	err := p.object(func(key []byte) (err error) {
		switch string(key) {
		case "name":
			name, err = p.string()
		case "groupName":
			group, err = p.string()
		case "cacheMillis":
			s.CacheMs, err = p.integer()
		case "lastRefTime":
			s.LastRefTimeMs, err = p.integer()
		case "reachProtectionThreshold":
			s.ReachedProtection, err = p.boolean(false)
		case "hosts":
			p.peek()
			hostsAt = p.i
			err = p.skip()
			after = p.i
		default:
			err = p.skip()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if g, n, ok := naming.SplitGrouped(name); ok && (group == "" || group == g) {
		group, name = g, n
	}
	s.Key.Group, s.Key.Name = group, name
	if hostsAt < 0 {
		return s, nil
	}
	var before *Service
	if known != nil {
		before = known(group, name)
	}
	hosts := &parser{b: p.b[:after], i: hostsAt}
	if err := hosts.hosts(s, before); err != nil {
		return nil, err
	}
	return s, nil
}

// hosts reads the list of instances into s.
func (p *parser) hosts(s, before *Service) error {
	d := hostDecoder{parser: p, key: s.Key}
	if before != nil {
		d.before = before.Instances
	}
	slab := make([]naming.Instance, 0, max(len(d.before)+1, 4))
	err := p.array(func() error {
		if p.null() {
			return nil
		}
		slab = append(slab, naming.Instance{})
		return d.host(&slab[len(slab)-1])
	})
	if err != nil || len(slab) == 0 {
		return err
	}
	s.Instances = make([]*naming.Instance, len(slab))
	for n := range slab {
		s.Instances[n] = &slab[n]
	}
	s.Instances = normal(s.Instances)
	return nil
}

// normal sorts instances by key and leaves one of each key, the last one given. It
// changes the slice.
func normal(list []*naming.Instance) []*naming.Instance {
	order := func(a, b *naming.Instance) int { return a.Key().Compare(b.Key()) }
	if !slices.IsSortedFunc(list, order) {
		slices.SortStableFunc(list, order)
	}
	out := list[:0]
	for n, i := range list {
		if n+1 < len(list) && order(i, list[n+1]) == 0 {
			continue
		}
		out = append(out, i)
	}
	return out
}

// hostDecoder reads instances one after the other. Lists of a service come in the
// same order mostly, so the instance that was at the same place before is likely the
// same.
type hostDecoder struct {
	*parser
	key     naming.ServiceKey
	before  []*naming.Instance
	at      int    // in before
	cluster string // of the instance before this one
	scratch []byte
	pairs   [][2][]byte
}

func (d *hostDecoder) host(i *naming.Instance) error {
	p := d.parser
	*i = naming.Instance{Weight: 1, Healthy: true, Enabled: true, Ephemeral: true}
	var id, ip, cluster []byte
	hasMetadata := false
	err := p.object(func(key []byte) (err error) {
		switch string(key) {
		case "instanceId":
			id, err = p.text()
		case "ip":
			ip, err = p.text()
		case "port":
			var port int64
			port, err = p.integer()
			i.Port = int(port)
		case "weight":
			i.Weight, err = p.float(1)
		case "healthy":
			i.Healthy, err = p.boolean(true)
		case "enabled":
			i.Enabled, err = p.boolean(true)
		case "ephemeral":
			i.Ephemeral, err = p.boolean(true)
		case "clusterName":
			cluster, err = p.text()
		case "metadata":
			d.pairs, hasMetadata = d.pairs[:0], true
			err = p.object(func(key []byte) error {
				if p.null() {
					return nil
				}
				value, err := p.text()
				d.pairs = append(d.pairs, [2][]byte{key, value})
				return err
			})
		default:
			err = p.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	same := d.find(ip, i.Port)
	if same != nil {
		i.IP = same.IP
	} else {
		i.IP = string(ip)
	}
	switch {
	case len(cluster) == 0:
		i.Cluster = naming.DefaultCluster
	case same != nil && same.Cluster == string(cluster):
		i.Cluster = same.Cluster
	case d.cluster == string(cluster):
		i.Cluster = d.cluster
	default:
		i.Cluster = string(cluster)
	}
	d.cluster = i.Cluster
	if len(id) > 0 && !d.isDefault(id, i) {
		if same != nil && same.ID == string(id) {
			i.ID = same.ID
		} else {
			i.ID = string(id)
		}
	}
	if hasMetadata && len(d.pairs) > 0 {
		i.Metadata = d.metadata(same)
	}
	return nil
}

// find returns the instance of the list before that has the address, if it is near.
func (d *hostDecoder) find(ip []byte, port int) *naming.Instance {
	for n := d.at; n < min(d.at+3, len(d.before)); n++ {
		if i := d.before[n]; i.Port == port && i.IP == string(ip) {
			d.at = n + 1
			return i
		}
	}
	if d.at > 0 { // this one is new
		if i := d.before[d.at-1]; i.Port == port && i.IP == string(ip) {
			return i
		}
	}
	return nil
}

// isDefault tells whether an id is the one that follows from the address.
func (d *hostDecoder) isDefault(id []byte, i *naming.Instance) bool {
	b := append(append(d.scratch[:0], i.IP...), '#')
	b = append(strconv.AppendInt(b, int64(i.Port), 10), '#')
	b = append(append(b, i.Cluster...), '#')
	b = append(append(append(b, d.key.Group...), naming.Separator...), d.key.Name...)
	d.scratch = b
	return string(b) == string(id)
}

func (d *hostDecoder) metadata(same *naming.Instance) map[string]string {
	if same != nil && len(same.Metadata) == len(d.pairs) {
		equal := true
		for _, pair := range d.pairs {
			if v, ok := same.Metadata[string(pair[0])]; !ok || v != string(pair[1]) {
				equal = false
				break
			}
		}
		if equal {
			return same.Metadata
		}
	}
	m := make(map[string]string, len(d.pairs))
	for _, pair := range d.pairs {
		m[string(pair[0])] = string(pair[1])
	}
	return m
}

// decodeService reads a ServiceInfo alone, as HTTP, UDP and the disk cache have it.
func decodeService(b []byte, known func(group, name string) *Service) (*Service, error) {
	p := &parser{b: b}
	s, err := p.service(known)
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}
