package server

import (
	"context"
	"math"
	"slices"

	"rollcall/consistency"
	"rollcall/naming"
)

// serviceKeys returns the keys of a namespace's services, empty ones included,
// sorted; of all namespaces when it is empty.
func (r *Registry) serviceKeys(namespace string) []naming.ServiceKey {
	keys := r.router.Services(namespace)
	more := r.empty.keys(namespace)
	if len(more) == 0 {
		return keys
	}
	out := slices.Concat(keys, more)
	slices.SortFunc(out, naming.ServiceKey.Compare)
	return slices.Compact(out)
}

// ServicePage returns a page of the sorted plain names of a group's services, and
// how many there are. Pages count from 1, and below that is the first; a page
// past the end is empty. A service whose last instance went is listed until it is
// cleaned. A selector that is not empty leaves out services whose metadata it does not
// fit; the error is of FaultSelector when it cannot be read.
func (r *Registry) ServicePage(namespace, group, selector string, no, size int64) (names []string, count int, err error) {
	fits, err := r.selected(selector)
	if err != nil {
		return nil, 0, err
	}
	first := max(no, 1) - 1
	switch {
	case no >= math.MaxInt32 && size >= math.MaxInt32: // everything, as in the original, whose offset overflows
		first = 0
	case size > 0 && first > math.MaxInt64/size:
		first = math.MaxInt64
	default:
		first *= max(size, 0)
	}
	for _, k := range r.serviceKeys(namespace) {
		if k.Group != group || fits != nil && !fits(k) {
			continue
		}
		if int64(count) >= first && int64(len(names)) < size {
			names = append(names, k.Name)
		}
		count++
	}
	return names, count, nil
}

// CreateService writes the settings of a new service. Its kind holds for as long
// as the settings exist.
func (r *Registry) CreateService(ctx context.Context, svc naming.ServiceKey, s naming.Settings) error {
	if err := checkSettings(svc, &s); err != nil {
		return err
	}
	if err := r.consistent(ctx); err != nil {
		return err
	}
	if st, _ := r.router.Stat(svc); st.Exists {
		return &naming.InvalidError{Fault: naming.FaultServiceExists, Field: "serviceName", Text: "specified service " + svc.Grouped() + " already exists!"}
	}
	return r.putSettings(ctx, svc, s)
}

// UpdateService replaces the settings of a service that exists; it keeps its kind.
func (r *Registry) UpdateService(ctx context.Context, svc naming.ServiceKey, s naming.Settings) error {
	if err := checkSettings(svc, &s); err != nil {
		return err
	}
	if err := r.consistent(ctx); err != nil {
		return err
	}
	if _, ok := r.Service(svc); !ok {
		return serviceUnknown(svc)
	}
	_, s.Kind = r.router.Stat(svc)
	return r.putSettings(ctx, svc, s)
}

// DeleteService removes a service that has no instance.
func (r *Registry) DeleteService(ctx context.Context, svc naming.ServiceKey) error {
	if err := naming.CheckKey(svc); err != nil {
		return err
	}
	if err := r.consistent(ctx); err != nil {
		return err
	}
	s, ok := r.Service(svc)
	if !ok {
		return serviceUnknown(svc)
	}
	if len(s.Instances) > 0 {
		return &naming.InvalidError{Fault: naming.FaultServiceNotEmpty, Field: "serviceName", Text: "Service " + svc.Grouped() + " is not empty, can't be delete. Please unregister instance first"}
	}
	if err := r.deleteRecords(ctx, &s); err != nil {
		return err
	}
	r.empty.remove(svc)
	return nil
}

// deleteRecords removes everything that operators wrote about a service.
func (r *Registry) deleteRecords(ctx context.Context, s *naming.Service) error {
	if s.Settings != nil {
		if err := r.router.DeletePersistent(ctx, consistency.Key{Service: s.Key, Kind: consistency.KindSettings}); err != nil {
			return err
		}
	}
	for name := range s.Clusters {
		if err := r.router.DeletePersistent(ctx, consistency.ClusterKey(s.Key, name)); err != nil {
			return err
		}
	}
	for k := range s.Overrides {
		if err := r.router.DeletePersistent(ctx, consistency.Key{Service: s.Key, Kind: consistency.KindOverride, Instance: k}); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registry) putSettings(ctx context.Context, svc naming.ServiceKey, s naming.Settings) error {
	return r.router.Put(ctx, consistency.Datum{Key: consistency.Key{Service: svc, Kind: consistency.KindSettings}, Settings: &s})
}

// maxServiceMetadata bounds a service's metadata, in characters.
const maxServiceMetadata = 64 << 10

func checkSettings(svc naming.ServiceKey, s *naming.Settings) error {
	if err := naming.CheckKey(svc); err != nil {
		return err
	}
	if math.IsNaN(s.ProtectThreshold) || math.IsInf(s.ProtectThreshold, 0) || s.ProtectThreshold > 1 {
		return &naming.InvalidError{Fault: naming.FaultValue, Field: "protectThreshold", Text: "Param 'protectThreshold' is illegal, the value should be a number from 0 to 1."}
	}
	return naming.CheckMetadata(s.Metadata, maxServiceMetadata)
}

func serviceUnknown(svc naming.ServiceKey) error {
	return &naming.InvalidError{Fault: naming.FaultServiceUnknown, Field: "serviceName", Text: "service " + svc.Grouped() + " not found!"}
}
