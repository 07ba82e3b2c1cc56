package wire

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"rollcall/naming"
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// Slots of naming.ServiceInfo.Encoding.
const (
	slotGRPC = iota
	slotHTTP
	slotUDP
)

// ServiceInfoGRPC returns the JSON of queries and pushes over gRPC: the plain
// name, and the group beside it. The bytes are shared.
func ServiceInfoGRPC(s *naming.ServiceInfo) []byte {
	return s.Encoding(slotGRPC, func(s *naming.ServiceInfo) []byte { return encodeServiceInfo(s, s.Key.Name, true) })
}

// ServiceInfoHTTP returns the JSON of lists over HTTP: the grouped name, and the
// group beside it. The bytes are shared.
func ServiceInfoHTTP(s *naming.ServiceInfo) []byte {
	return s.Encoding(slotHTTP, func(s *naming.ServiceInfo) []byte { return encodeServiceInfo(s, s.Key.Grouped(), true) })
}

// ServiceInfoUDP returns the JSON of the datagram's data: the grouped name, no
// group, and no protection flag even where protection acted. The bytes are shared.
func ServiceInfoUDP(s *naming.ServiceInfo) []byte {
	return s.Encoding(slotUDP, func(s *naming.ServiceInfo) []byte { return encodeServiceInfo(s, s.Key.Grouped(), false) })
}

func encodeServiceInfo(s *naming.ServiceInfo, name string, full bool) []byte {
	size := 256 + len(name)
	for _, i := range s.Hosts {
		size += 320 + len(name)*2 + len(i.ID)
		for k, v := range i.Metadata {
			size += len(k) + len(v) + 6
		}
	}
	b := make([]byte, 0, size)
	b = AppendString(append(b, `{"name":`...), name)
	if full {
		b = AppendString(append(b, `,"groupName":`...), s.Key.Group)
	}
	b = AppendString(append(b, `,"clusters":`...), s.Clusters)
	b = strconv.AppendInt(append(b, `,"cacheMillis":`...), s.CacheMs, 10)
	b = append(b, `,"hosts":[`...)
	grouped := string(AppendString(nil, s.Key.Grouped()))
	for n, i := range s.Hosts {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendInstance(b, i, s.Key, grouped)
	}
	b = strconv.AppendInt(append(b, `],"lastRefTime":`...), s.LastRefTimeMs, 10)
	b = append(b, `,"checksum":"","allIPs":false,"reachProtectionThreshold":`...)
	b = strconv.AppendBool(b, full && s.ReachedProtection)
	return append(b, `,"valid":true}`...)
}

// appendInstance writes an instance as lists and pushes show it; grouped is the
// quoted grouped name.
func appendInstance(b []byte, i *naming.Instance, svc naming.ServiceKey, grouped string) []byte {
	b = AppendString(append(b, `{"instanceId":`...), i.InstanceID(svc))
	b = AppendString(append(b, `,"ip":`...), i.IP)
	b = strconv.AppendInt(append(b, `,"port":`...), int64(i.Port), 10)
	b = AppendFloat(append(b, `,"weight":`...), i.Weight)
	b = strconv.AppendBool(append(b, `,"healthy":`...), i.Healthy)
	b = strconv.AppendBool(append(b, `,"enabled":`...), i.Enabled)
	b = strconv.AppendBool(append(b, `,"ephemeral":`...), i.Ephemeral)
	b = AppendString(append(b, `,"clusterName":`...), i.Cluster)
	b = append(append(b, `,"serviceName":`...), grouped...)
	b = AppendMetadata(append(b, `,"metadata":`...), i.Metadata)
	b = appendMillis(append(b, `,"instanceHeartBeatInterval":`...), i.BeatInterval(naming.DefaultBeatInterval))
	b = appendMillis(append(b, `,"instanceHeartBeatTimeOut":`...), i.BeatTimeout())
	b = appendMillis(append(b, `,"ipDeleteTimeout":`...), i.DeleteTimeout())
	if len(i.Metadata) == 0 {
		b = append(b, `,"instanceIdGenerator":"simple"`...)
	} else if g, ok := i.Metadata[naming.MetaIDGenerator]; ok {
		b = AppendString(append(b, `,"instanceIdGenerator":`...), g)
	}
	return append(b, '}')
}

func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendInt(b, d.Milliseconds(), 10)
}
