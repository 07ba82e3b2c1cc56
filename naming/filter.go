package naming

import (
	"slices"
	"strings"
)

// Filter selects what a client sees of a service. It is comparable: equal
// filters share one [ServiceInfo].
type Filter struct {
	Clusters    string // comma separated exact names; blank is all. Echoed to the client
	HealthyOnly bool
}

// View returns what a client sees of s through f: hosts of the asked clusters
// that are enabled, then the healthy ones if asked for, then protection
// (semantics S1 to S4). Where not one is healthy there is nothing to cut to, and a
// caller that asks for healthy hosts gets what protection shows. Hosts keep the
// order of s.
func (f Filter) View(s *Service) *ServiceInfo {
	info := &ServiceInfo{Key: s.Key, Clusters: f.Clusters}
	hosts := make([]*Instance, 0, len(s.Instances))
	inCluster := clusterSet(f.Clusters)
	healthy := 0
	for _, i := range s.Effective() {
		if !i.Enabled || !inCluster(i.Cluster) {
			continue
		}
		if i.Healthy {
			healthy++
		}
		hosts = append(hosts, i)
	}
	if f.HealthyOnly && healthy > 0 {
		hosts = slices.DeleteFunc(hosts, func(i *Instance) bool { return !i.Healthy })
	}
	switch info.ReachedProtection = s.protects(healthy, len(hosts)); {
	case info.ReachedProtection:
		for n, i := range hosts {
			if !i.Healthy {
				hosts[n] = i.With(func(c *Instance) { c.Healthy = true })
			}
		}
	case f.HealthyOnly && healthy == 0:
		hosts = nil
	}
	info.Hosts = hosts
	return info
}

// protects applies semantics S3: only a service with settings is protected, and
// no host at all needs no protection.
func (s *Service) protects(healthy, all int) bool {
	if s.Settings == nil || all == 0 || s.Settings.Metadata[MetaProtection] == "off" {
		return false
	}
	return float64(healthy)/float64(all) <= max(s.Settings.ProtectThreshold, 0)
}

// clusterSet returns a function that tells whether a cluster is in the comma
// separated list; a blank list holds every cluster.
func clusterSet(list string) func(string) bool {
	if strings.TrimSpace(list) == "" {
		return func(string) bool { return true }
	}
	names := strings.Split(list, ",")
	for n := range names {
		names[n] = strings.TrimSpace(names[n])
	}
	if len(names) == 1 {
		return func(c string) bool { return c == names[0] }
	}
	set := make(map[string]struct{}, len(names))
	for _, n := range names {
		set[n] = struct{}{}
	}
	return func(c string) bool { _, ok := set[c]; return ok }
}
