package server

import (
	"context"
	"strings"

	"rollcall/consistency"
	"rollcall/naming"
)

// Search returns the sorted keys of the services that a search selects, empty ones
// included unless it says otherwise. The slice is the caller's.
func (r *Registry) Search(q naming.Search) []naming.ServiceKey {
	name, group := strings.TrimSpace(q.Name), strings.TrimSpace(q.Group)
	var out []naming.ServiceKey
	for _, k := range r.serviceKeys(q.Namespace) {
		if !strings.Contains(k.Name, name) || !strings.Contains(k.Group, group) {
			continue
		}
		if q.NotEmpty {
			if st, _ := r.router.Stat(k); st.Instances == 0 {
				continue
			}
		}
		out = append(out, k)
	}
	return out
}

// UpdateCluster replaces what is written about one cluster of a service that exists.
// From then on the service has settings, so protection holds for it.
func (r *Registry) UpdateCluster(ctx context.Context, svc naming.ServiceKey, cluster string, c naming.Cluster) error {
	if err := naming.CheckKey(svc); err != nil {
		return err
	}
	if strings.Contains(cluster, ",") || strings.TrimSpace(cluster) == "" {
		return &naming.InvalidError{Fault: naming.FaultParam, Field: "cluster", Text: "Param 'cluster' is illegal, illegal characters should not appear in the param."}
	}
	if err := naming.CheckClusters(cluster); err != nil {
		return err
	}
	if err := naming.CheckMetadata(c.Metadata, maxServiceMetadata); err != nil {
		return err
	}
	if err := r.consistent(ctx); err != nil {
		return err
	}
	s, ok := r.Service(svc)
	if !ok {
		return serviceUnknown(svc)
	}
	if s.Settings == nil {
		_, kind := r.router.Stat(svc)
		if err := r.putSettings(ctx, svc, naming.Settings{Kind: kind, Selector: naming.Selector{Type: "none"}}); err != nil {
			return err
		}
	}
	return r.router.Put(ctx, consistency.Datum{Key: consistency.ClusterKey(svc, cluster), Cluster: &c})
}

// SetHealth sets the health of a persistent instance whose cluster is not probed. For
// every other instance somebody else decides, and it is refused.
func (r *Registry) SetHealth(ctx context.Context, svc naming.ServiceKey, k naming.InstanceKey, healthy bool) error {
	if err := naming.CheckKey(svc); err != nil {
		return err
	}
	if err := r.consistent(ctx); err != nil {
		return err
	}
	s, _ := r.router.Service(svc)
	if c := s.Clusters[k.Cluster]; c == nil || c.Checker.Type != naming.CheckNone {
		return &naming.InvalidError{
			Fault: naming.FaultHealthChecked, Field: "healthy",
			Text: "health check is still working, service: " + svc.Grouped() + ", cluster: " + k.Cluster,
		}
	}
	published := (&naming.Service{Instances: s.Instances}).Find(k)
	switch {
	case published == nil:
		return &naming.InvalidError{
			Fault: naming.FaultInstanceUnknown, Field: "ip",
			Text: "instance not found: " + k.Address() + " in cluster " + k.Cluster + " of service " + svc.Grouped() + "; register it first",
		}
	case published.Ephemeral:
		return &naming.InvalidError{
			Fault: naming.FaultHealthChecked, Field: "healthy",
			Text: "health check is still working, service: " + svc.Grouped() + ", cluster: " + k.Cluster + ": " + k.Address() + " is ephemeral, and its client says whether it is alive",
		}
	}
	return r.router.Put(ctx, consistency.Datum{
		Key:      consistency.Key{Service: svc, Kind: consistency.KindInstance, Publisher: k.Address(), Instance: k},
		Instance: published.With(func(c *naming.Instance) { c.Healthy = healthy }),
	})
}
