package naming

import (
	"cmp"
	"strconv"
	"strings"
)

// Defaults of the naming tree, used where a client leaves a value out.
const (
	DefaultNamespace = "public"
	DefaultGroup     = "DEFAULT_GROUP"
	DefaultCluster   = "DEFAULT"
)

// Separator stands between group and name in a grouped service name.
const Separator = "@@"

// ServiceKey names a service. It is comparable and can be a map key.
type ServiceKey struct {
	Namespace, Group, Name string
}

// Grouped returns "group@@name", the form in which services travel on the wire.
func (k ServiceKey) Grouped() string { return k.Group + Separator + k.Name }

// String returns "namespace##group@@name".
func (k ServiceKey) String() string { return k.Namespace + "##" + k.Grouped() }

// Compare orders keys by namespace, group and name.
func (k ServiceKey) Compare(o ServiceKey) int {
	if c := cmp.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	if c := cmp.Compare(k.Group, o.Group); c != 0 {
		return c
	}
	return cmp.Compare(k.Name, o.Name)
}

// SplitGrouped takes "group@@name" apart at the first separator. ok is false
// when there is no separator; group or name may be empty.
func SplitGrouped(s string) (group, name string, ok bool) {
	return strings.Cut(s, Separator)
}

// InstanceKey names an instance within a service. It is comparable.
type InstanceKey struct {
	Cluster, IP string
	Port        int
}

// Compare orders keys by cluster, ip (as text) and port.
func (k InstanceKey) Compare(o InstanceKey) int {
	if c := cmp.Compare(k.Cluster, o.Cluster); c != 0 {
		return c
	}
	if c := cmp.Compare(k.IP, o.IP); c != 0 {
		return c
	}
	return cmp.Compare(k.Port, o.Port)
}

// Address returns "ip:port"; an IPv6 address stands without brackets, as clients
// of the Nacos protocols write it.
func (k InstanceKey) Address() string { return Address(k.IP, k.Port) }

// Address returns "ip:port", the name of a publisher that registers over HTTP.
func Address(ip string, port int) string { return ip + ":" + strconv.Itoa(port) }
