package naming

import (
	"maps"
	"slices"
	"sync/atomic"
)

// Kind tells which sort of instances a service takes.
type Kind uint8

// The kinds of a service. An empty service that nobody created has none.
const (
	KindNone Kind = iota
	KindEphemeral
	KindPersistent
)

// KindOf returns the kind that an instance with this flag belongs to.
func KindOf(ephemeral bool) Kind {
	if ephemeral {
		return KindEphemeral
	}
	return KindPersistent
}

// Settings are what an operator wrote about a service. They exist only if
// somebody wrote them. Immutable once stored.
type Settings struct {
	Kind             Kind              `json:"kind"`
	ProtectThreshold float64           `json:"protectThreshold"`
	Metadata         map[string]string `json:"metadata,omitempty"`
	Selector         Selector          `json:"selector"`
}

// Selector narrows what a caller sees by labels of a CMDB. Without a CMDB, which
// Rollcall has none of, every selector lets every instance pass.
type Selector struct {
	Type       string   `json:"type"` // "none" or "label"
	Expression string   `json:"expression,omitempty"`
	Labels     []string `json:"labels,omitempty"`
}

// Cluster is what an operator wrote about one cluster of a service. It exists only
// if somebody wrote it. Immutable once stored.
type Cluster struct {
	CheckPort       int // that is probed unless UseInstancePort
	UseInstancePort bool
	Checker         Checker
	Metadata        map[string]string // nil when there is none
}

// DefaultCheckPort is the port of a cluster's checker that nobody chose
// (http.md 9.4).
const DefaultCheckPort = 80

// DefaultClusterSettings is what holds for a cluster that nobody wrote about: its
// instances are probed over TCP on their own ports.
func DefaultClusterSettings() *Cluster {
	return &Cluster{CheckPort: DefaultCheckPort, UseInstancePort: true, Checker: Checker{Type: CheckTCP}}
}

// The ways to probe persistent instances, as the protocol spells them.
const (
	CheckNone  = "NONE" // operators set the health
	CheckTCP   = "TCP"
	CheckHTTP  = "HTTP"
	CheckMySQL = "MYSQL"
)

// Checker is how the persistent instances of a cluster are probed.
type Checker struct {
	Type string // one of the constants above

	Path         string // of HTTP; may hold a query
	Headers      string // of HTTP: "name:value" pairs joined by |
	ExpectedCode int    // of HTTP

	User, Password, Command string // of MYSQL
}

// Override is what an operator laid over a published instance. Immutable once
// stored. Weight and Enabled replace the published values; Metadata entries win
// over published keys, and published keys cannot be removed by it.
type Override struct {
	Weight   float64           `json:"weight"`
	Enabled  bool              `json:"enabled"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Apply returns the instance with the override laid over it.
func (o *Override) Apply(i *Instance) *Instance {
	return i.With(func(c *Instance) {
		c.Weight, c.Enabled = o.Weight, o.Enabled
		if len(o.Metadata) > 0 {
			merged := make(map[string]string, len(i.Metadata)+len(o.Metadata))
			maps.Copy(merged, i.Metadata)
			maps.Copy(merged, o.Metadata)
			c.Metadata = merged
		}
	})
}

// Service is the state of one service: what is published, without overrides
// applied until [Service.Effective] is asked for.
type Service struct {
	Key       ServiceKey
	Settings  *Settings                 // nil: nobody wrote any
	Clusters  map[string]*Cluster       // by name; nil or empty: nobody wrote any
	Instances []*Instance               // one for each InstanceKey, sorted by it; shared, do not alter
	Overrides map[InstanceKey]*Override // nil or empty: none; may name instances that are absent
}

// Effective returns the instances as operators and clients see them, overrides
// applied, in the order of Instances. The slice may be shared: do not alter it.
func (s *Service) Effective() []*Instance {
	if len(s.Overrides) == 0 {
		return s.Instances
	}
	out := slices.Clone(s.Instances)
	for n, i := range out {
		if o := s.Overrides[i.Key()]; o != nil {
			out[n] = o.Apply(i)
		}
	}
	return out
}

// Find returns the effective instance with that key, or nil.
func (s *Service) Find(k InstanceKey) *Instance {
	n, ok := slices.BinarySearchFunc(s.Instances, k, func(i *Instance, k InstanceKey) int { return i.Key().Compare(k) })
	if !ok {
		return nil
	}
	if o := s.Overrides[k]; o != nil {
		return o.Apply(s.Instances[n])
	}
	return s.Instances[n]
}

// ServiceInfo is what one client sees of a service through one [Filter]. It is
// immutable; the same value is shared by every subscriber and query until the
// content changes.
type ServiceInfo struct {
	Key               ServiceKey
	Clusters          string // the filter's text, echoed byte for byte
	Hosts             []*Instance
	ReachedProtection bool
	CacheMs           int64 // how long a client may keep it, milliseconds
	LastRefTimeMs     int64 // strictly increasing for a service; wall clock, milliseconds

	encodings [Encodings]atomic.Pointer[[]byte]
}

// Encodings is the number of slots that [ServiceInfo.Encoding] has.
const Encodings = 3

// Encoding returns the bytes in slot, calling encode the first time that they are
// asked for. Concurrent first calls may each encode; one result is kept. The
// bytes are shared: do not alter them.
func (s *ServiceInfo) Encoding(slot int, encode func(*ServiceInfo) []byte) []byte {
	if b := s.encodings[slot].Load(); b != nil {
		return *b
	}
	b := encode(s)
	if !s.encodings[slot].CompareAndSwap(nil, &b) {
		return *s.encodings[slot].Load()
	}
	return b
}

// SameContent tells whether a client would see no difference but the time.
func (s *ServiceInfo) SameContent(o *ServiceInfo) bool {
	return s.Key == o.Key && s.Clusters == o.Clusters && s.ReachedProtection == o.ReachedProtection &&
		s.CacheMs == o.CacheMs && slices.EqualFunc(s.Hosts, o.Hosts, (*Instance).Equal)
}
