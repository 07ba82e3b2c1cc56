package raftstore

import (
	"fmt"

	"rollcall/consistency"
	"rollcall/naming"
)

// The messages of command.proto for each kind of datum, and the way back.

func instanceOp(d consistency.Datum) *InstanceOp {
	return &InstanceOp{Service: serviceMessage(d.Service), Publisher: d.Publisher, Instance: instanceMessage(d.Instance)}
}

func settingsOp(d consistency.Datum) *SettingsOp {
	kind := ServiceKind_SERVICE_KIND_NONE
	switch d.Settings.Kind {
	case naming.KindEphemeral:
		kind = ServiceKind_SERVICE_KIND_EPHEMERAL
	case naming.KindPersistent:
		kind = ServiceKind_SERVICE_KIND_PERSISTENT
	case naming.KindNone:
	}
	return &SettingsOp{Service: serviceMessage(d.Service), Settings: &Settings{
		Kind:             kind,
		ProtectThreshold: d.Settings.ProtectThreshold,
		Metadata:         d.Settings.Metadata,
		Selector: &Selector{
			Type:       d.Settings.Selector.Type,
			Expression: d.Settings.Selector.Expression,
			Labels:     d.Settings.Selector.Labels,
		},
	}}
}

func overrideOp(d consistency.Datum) *OverrideOp {
	return &OverrideOp{
		Service:  serviceMessage(d.Service),
		Instance: instanceKeyMessage(d.Key.Instance),
		Override: &Override{Weight: d.Override.Weight, Enabled: d.Override.Enabled, Metadata: d.Override.Metadata},
	}
}

func switchOp(d consistency.Datum) *SwitchOp {
	return &SwitchOp{Name: d.Switch, Value: d.Value}
}

func switchDatum(m *SwitchOp) (consistency.Datum, error) {
	if m.GetName() == "" {
		return consistency.Datum{}, fmt.Errorf("%w: switch without a name", errMalformed)
	}
	return consistency.Datum{Key: consistency.Key{Kind: consistency.KindSwitch, Switch: m.Name}, Value: m.Value}, nil
}

func instanceDatum(m *InstanceOp) (consistency.Datum, error) {
	if m.GetService() == nil || m.Instance == nil {
		return consistency.Datum{}, fmt.Errorf("%w: incomplete instance", errMalformed)
	}
	i := instance(m.Instance)
	return consistency.Datum{Key: consistency.Key{
		Service: serviceKey(m.Service), Kind: consistency.KindInstance, Publisher: m.Publisher, Instance: i.Key(),
	}, Instance: i}, nil
}

func settingsDatum(m *SettingsOp) (consistency.Datum, error) {
	if m.GetService() == nil || m.Settings == nil {
		return consistency.Datum{}, fmt.Errorf("%w: incomplete settings", errMalformed)
	}
	s := &naming.Settings{
		ProtectThreshold: m.Settings.ProtectThreshold,
		Metadata:         metadata(m.Settings.Metadata),
		Selector: naming.Selector{
			Type:       m.Settings.Selector.GetType(),
			Expression: m.Settings.Selector.GetExpression(),
			Labels:     m.Settings.Selector.GetLabels(),
		},
	}
	switch m.Settings.Kind {
	case ServiceKind_SERVICE_KIND_NONE:
	case ServiceKind_SERVICE_KIND_EPHEMERAL:
		s.Kind = naming.KindEphemeral
	case ServiceKind_SERVICE_KIND_PERSISTENT:
		s.Kind = naming.KindPersistent
	default:
		return consistency.Datum{}, fmt.Errorf("%w: service of kind %d", errMalformed, m.Settings.Kind)
	}
	return consistency.Datum{
		Key:      consistency.Key{Service: serviceKey(m.Service), Kind: consistency.KindSettings},
		Settings: s,
	}, nil
}

func overrideDatum(m *OverrideOp) (consistency.Datum, error) {
	if m.GetService() == nil || m.Instance == nil || m.Override == nil {
		return consistency.Datum{}, fmt.Errorf("%w: incomplete override", errMalformed)
	}
	return consistency.Datum{
		Key: consistency.Key{
			Service: serviceKey(m.Service), Kind: consistency.KindOverride, Instance: instanceKey(m.Instance),
		},
		Override: &naming.Override{
			Weight: m.Override.Weight, Enabled: m.Override.Enabled, Metadata: metadata(m.Override.Metadata),
		},
	}, nil
}

func namespaceOp(d consistency.Datum) *NamespaceOp {
	return &NamespaceOp{Id: d.Service.Namespace, Name: d.Namespace.Name, Description: d.Namespace.Description}
}

func namespaceDatum(m *NamespaceOp) (consistency.Datum, error) {
	if m.GetId() == "" {
		return consistency.Datum{}, fmt.Errorf("%w: namespace without an id", errMalformed)
	}
	return consistency.Datum{
		Key:       consistency.NamespaceKey(m.Id),
		Namespace: &naming.Namespace{ID: m.Id, Name: m.Name, Description: m.Description},
	}, nil
}

func clusterSettingsOp(d consistency.Datum) *ClusterSettingsOp {
	c := d.Cluster
	return &ClusterSettingsOp{
		Service: serviceMessage(d.Service), Cluster: d.Key.Instance.Cluster,
		CheckPort: uint32(c.CheckPort), UseInstancePort: c.UseInstancePort, Metadata: c.Metadata,
		Checker: &Checker{
			Type: c.Checker.Type, Path: c.Checker.Path, Headers: c.Checker.Headers, ExpectedCode: int32(c.Checker.ExpectedCode),
			User: c.Checker.User, Password: c.Checker.Password, Command: c.Checker.Command,
		},
	}
}

func clusterDatum(m *ClusterSettingsOp) (consistency.Datum, error) {
	if m.GetService() == nil || m.GetCluster() == "" || m.GetChecker() == nil {
		return consistency.Datum{}, fmt.Errorf("%w: incomplete settings of a cluster", errMalformed)
	}
	return consistency.Datum{
		Key: consistency.ClusterKey(serviceKey(m.Service), m.Cluster),
		Cluster: &naming.Cluster{
			CheckPort: int(m.CheckPort), UseInstancePort: m.UseInstancePort, Metadata: metadata(m.Metadata),
			Checker: naming.Checker{
				Type: m.Checker.Type, Path: m.Checker.Path, Headers: m.Checker.Headers, ExpectedCode: int(m.Checker.ExpectedCode),
				User: m.Checker.User, Password: m.Checker.Password, Command: m.Checker.Command,
			},
		},
	}, nil
}

func serviceMessage(k naming.ServiceKey) *ServiceKey {
	return &ServiceKey{Namespace: k.Namespace, Group: k.Group, Name: k.Name}
}

func serviceKey(m *ServiceKey) naming.ServiceKey {
	return naming.ServiceKey{Namespace: m.GetNamespace(), Group: m.GetGroup(), Name: m.GetName()}
}

func instanceKeyMessage(k naming.InstanceKey) *InstanceKey {
	return &InstanceKey{Cluster: k.Cluster, Ip: k.IP, Port: uint32(k.Port)}
}

func instanceKey(m *InstanceKey) naming.InstanceKey {
	return naming.InstanceKey{Cluster: m.GetCluster(), IP: m.GetIp(), Port: int(m.GetPort())}
}

func instanceMessage(i *naming.Instance) *Instance {
	return &Instance{
		Id: i.ID, Ip: i.IP, Port: uint32(i.Port), Cluster: i.Cluster, Weight: i.Weight,
		Healthy: i.Healthy, Enabled: i.Enabled, Ephemeral: i.Ephemeral, Metadata: i.Metadata,
	}
}

func instance(m *Instance) *naming.Instance {
	return &naming.Instance{
		ID: m.GetId(), IP: m.GetIp(), Port: int(m.GetPort()), Cluster: m.GetCluster(), Weight: m.GetWeight(),
		Healthy: m.GetHealthy(), Enabled: m.GetEnabled(), Ephemeral: m.GetEphemeral(), Metadata: metadata(m.GetMetadata()),
	}
}

// metadata returns nil for an empty map, as naming has it.
func metadata(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}
