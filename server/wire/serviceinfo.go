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

// encodeServiceInfo writes allIPs in the spelling of version 3 too: each client reads
// its own.
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
	b = append(b, `,"checksum":"","allIPs":false,"allIps":false,"reachProtectionThreshold":`...)
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

// AppendInstances appends a JSON list of instances of a service, in the form of
// lists and pushes.
func AppendInstances(b []byte, list []*naming.Instance, svc naming.ServiceKey) []byte {
	grouped := string(AppendString(nil, svc.Grouped()))
	b = append(b, '[')
	for n, i := range list {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendInstance(b, i, svc, grouped)
	}
	return append(b, ']')
}

// AppendInstance appends one instance in the form of lists and pushes.
func AppendInstance(b []byte, i *naming.Instance, svc naming.ServiceKey) []byte {
	return appendInstance(b, i, svc, string(AppendString(nil, svc.Grouped())))
}

func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendInt(b, d.Milliseconds(), 10)
}

// ServiceInfoDom returns the JSON of the 1.x protocol, which DNS servers read: dom and
// the hosts' serviceName are plain (http.md 5.3).
func ServiceInfoDom(s *naming.ServiceInfo) []byte {
	b := append([]byte(nil), `{"hosts":[`...)
	for n, i := range s.Hosts {
		if n > 0 {
			b = append(b, ',')
		}
		b = AppendString(append(b, `{"ip":`...), i.IP)
		b = strconv.AppendInt(append(b, `,"port":`...), int64(i.Port), 10)
		b = strconv.AppendBool(append(b, `,"valid":`...), i.Healthy)
		b = strconv.AppendBool(append(b, `,"healthy":`...), i.Healthy)
		b = AppendString(append(b, `,"marked":false,"instanceId":`...), i.InstanceID(s.Key))
		b = AppendMetadata(append(b, `,"metadata":`...), i.Metadata)
		b = strconv.AppendBool(append(b, `,"enabled":`...), i.Enabled)
		b = AppendFloat(append(b, `,"weight":`...), i.Weight)
		b = AppendString(append(b, `,"clusterName":`...), i.Cluster)
		b = AppendString(append(b, `,"serviceName":`...), s.Key.Name)
		b = append(strconv.AppendBool(append(b, `,"ephemeral":`...), i.Ephemeral), '}')
	}
	b = AppendString(append(b, `],"dom":`...), s.Key.Name)
	b = AppendString(append(b, `,"name":`...), s.Key.Grouped())
	b = strconv.AppendInt(append(b, `,"cacheMillis":`...), s.CacheMs, 10)
	b = strconv.AppendInt(append(b, `,"lastRefTime":`...), s.LastRefTimeMs, 10)
	b = AppendString(append(b, `,"checksum":"","useSpecifiedURL":false,"clusters":`...), s.Clusters)
	return append(b, `,"env":"","metadata":{}}`...)
}
