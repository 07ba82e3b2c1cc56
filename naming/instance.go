package naming

import (
	"maps"
	"strconv"
	"time"
)

// Metadata keys with a meaning to the registry (protocol: http.md 5.6).
const (
	MetaBeatInterval  = "preserved.heart.beat.interval"
	MetaBeatTimeout   = "preserved.heart.beat.timeout"
	MetaDeleteTimeout = "preserved.ip.delete.timeout"
	MetaIDGenerator   = "preserved.instance.id.generator"
	MetaClientBeat    = "enableClientBeat"
	MetaProtection    = "rollcall.protection"
)

// Heartbeat times of an instance that states none, and the shortest that count.
const (
	DefaultBeatInterval  = 5 * time.Second
	DefaultBeatTimeout   = 15 * time.Second
	DefaultDeleteTimeout = 30 * time.Second
	MinBeatTime          = 500 * time.Millisecond
)

// Instance is one registered ip:port. It is immutable once registered; use
// [Instance.With] to derive a changed one.
type Instance struct {
	// ID is empty unless the client chose one or asked for a generated number;
	// see [Instance.InstanceID].
	ID        string
	IP        string
	Cluster   string
	Metadata  map[string]string // nil when there is none
	Weight    float64
	Port      int
	Healthy   bool
	Enabled   bool
	Ephemeral bool
}

// NewInstance returns an instance with the defaults of the protocol: weight 1,
// healthy, enabled, ephemeral, cluster DEFAULT.
func NewInstance(ip string, port int) Instance {
	return Instance{
		IP: ip, Port: port, Cluster: DefaultCluster, Weight: 1,
		Healthy: true, Enabled: true, Ephemeral: true,
	}
}

// Key names the instance within its service.
func (i *Instance) Key() InstanceKey { return InstanceKey{Cluster: i.Cluster, IP: i.IP, Port: i.Port} }

// InstanceID returns the ID, or ip#port#cluster#group@@service when none is set.
func (i *Instance) InstanceID(svc ServiceKey) string {
	if i.ID != "" {
		return i.ID
	}
	return i.IP + "#" + strconv.Itoa(i.Port) + "#" + i.Cluster + "#" + svc.Grouped()
}

// With returns a copy that change has been applied to. change must replace
// Metadata rather than alter the map.
func (i *Instance) With(change func(*Instance)) *Instance {
	c := *i
	change(&c)
	return &c
}

// Equal tells whether two instances look the same to every client.
func (i *Instance) Equal(o *Instance) bool {
	return i == o || i.ID == o.ID && i.IP == o.IP && i.Port == o.Port && i.Cluster == o.Cluster &&
		i.Weight == o.Weight && i.Healthy == o.Healthy && i.Enabled == o.Enabled &&
		i.Ephemeral == o.Ephemeral && maps.Equal(i.Metadata, o.Metadata)
}

// BeatInterval is the time between two heartbeats that the metadata states, else
// def. Text that is no number counts as not given.
func (i *Instance) BeatInterval(def time.Duration) time.Duration {
	return i.duration(MetaBeatInterval, def)
}

// BeatTimeout is the time without a heartbeat after which the instance counts as
// unhealthy, as stated; see [MinBeatTime] for what is enforced.
func (i *Instance) BeatTimeout() time.Duration {
	return i.duration(MetaBeatTimeout, DefaultBeatTimeout)
}

// DeleteTimeout is the time without a heartbeat after which it is removed, as
// stated; see [MinBeatTime] for what is enforced.
func (i *Instance) DeleteTimeout() time.Duration {
	return i.duration(MetaDeleteTimeout, DefaultDeleteTimeout)
}

// BeatsChecked is false for an instance whose metadata switches the check of
// heartbeats off (enableClientBeat=true).
func (i *Instance) BeatsChecked() bool { return i.Metadata[MetaClientBeat] != "true" }

func (i *Instance) duration(key string, def time.Duration) time.Duration {
	text, ok := i.Metadata[key]
	if !ok {
		return def
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return def
		}
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms > int64(1<<53) {
		return def
	}
	return time.Duration(min(ms, int64(maxBeatTime/time.Millisecond))) * time.Millisecond
}

// maxBeatTime keeps a stated time within what a time.Duration and a timer hold.
const maxBeatTime = 10 * 365 * 24 * time.Hour
