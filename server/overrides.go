package server

import (
	"context"
	"fmt"
	"maps"

	"rollcall/consistency"
	"rollcall/naming"
)

// ChangeInstance lays an override over an instance that is published, or was until
// a moment ago. It survives re-registration, and ends with an explicit
// deregistration or some time after the instance has gone.
func (r *Registry) ChangeInstance(ctx context.Context, svc naming.ServiceKey, k naming.InstanceKey, c naming.Change) error {
	if err := naming.CheckKey(svc); err != nil {
		return err
	}
	if err := r.consistent(ctx); err != nil {
		return err
	}
	s, ok := r.Service(svc)
	if !ok {
		return &naming.InvalidError{
			Fault: naming.FaultServiceUnknown, Field: "serviceName",
			Text: fmt.Sprintf("service not found, namespace: %s, service: Service{namespace='%s', group='%s', name='%s', ephemeral=true, revision=0}", svc.Namespace, svc.Namespace, svc.Group, svc.Name),
		}
	}
	i := s.Find(k)
	if i == nil {
		i = r.recent.get(overrideKey{svc, k})
	}
	if i == nil {
		return &naming.InvalidError{
			Fault: naming.FaultInstanceUnknown, Field: "ip",
			Text: fmt.Sprintf("instance not found: %s in cluster %s of service %s; register it first", k.Address(), k.Cluster, svc.Grouped()),
		}
	}
	d, err := r.override(&s, i, func(o *naming.Override) {
		if c.Weight != nil {
			o.Weight = *c.Weight
		}
		if c.Enabled != nil {
			o.Enabled = *c.Enabled
		}
		if c.Metadata != nil {
			o.Metadata = c.Metadata
		}
	})
	if err != nil {
		return err
	}
	return r.router.Put(ctx, d)
}

// override returns the changed override of an instance; one that has none starts
// from what was published.
func (r *Registry) override(s *naming.Service, i *naming.Instance, change func(*naming.Override)) (consistency.Datum, error) {
	k := i.Key()
	o := naming.Override{Weight: i.Weight, Enabled: i.Enabled}
	if had := s.Overrides[k]; had != nil {
		o = *had
	}
	change(&o)
	if published := (&naming.Service{Instances: s.Instances}).Find(k); published != nil {
		i = published
	}
	return consistency.Datum{
		Key:      consistency.Key{Service: s.Key, Kind: consistency.KindOverride, Instance: k},
		Override: &o,
	}, naming.CheckOverride(&o, i, r.cfg.MetadataLimit)
}

// ChangeMetadata sets and removes entries of the overrides of several instances;
// keys nil means all instances of the service. It returns the effective instances
// that were changed; ones that do not exist are left out. Values that one of them
// cannot have change none.
func (r *Registry) ChangeMetadata(ctx context.Context, svc naming.ServiceKey, keys []naming.InstanceKey, set map[string]string, remove []string) ([]*naming.Instance, error) {
	if err := naming.CheckKey(svc); err != nil {
		return nil, err
	}
	if err := naming.CheckMetadata(set, r.cfg.MetadataLimit); err != nil {
		return nil, err
	}
	if err := r.consistent(ctx); err != nil {
		return nil, err
	}
	s, _ := r.router.Service(svc)
	if keys == nil {
		for _, i := range s.Instances {
			keys = append(keys, i.Key())
		}
	}
	var found []*naming.Instance
	var changes []consistency.Datum
	for _, k := range keys {
		i := s.Find(k)
		if i == nil {
			continue
		}
		d, err := r.override(&s, i, func(o *naming.Override) {
			merged := make(map[string]string, len(o.Metadata)+len(set))
			maps.Copy(merged, o.Metadata)
			maps.Copy(merged, set)
			for _, key := range remove {
				delete(merged, key)
			}
			o.Metadata = merged
		})
		if err != nil {
			return nil, err
		}
		found, changes = append(found, i), append(changes, d)
	}
	for n, d := range changes {
		if err := r.router.Put(ctx, d); err != nil {
			return found[:n], err
		}
	}
	return found, nil
}
