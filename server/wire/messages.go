package wire

import (
	"encoding/json"
	"strconv"

	"rollcall/naming"
)

// Types of the unary requests (grpc.md 2 and 3).
const (
	TypeServerCheck        = "ServerCheckRequest"
	TypeHealthCheck        = "HealthCheckRequest"
	TypeConnectionSetup    = "ConnectionSetupRequest"
	TypeSetupAck           = "SetupAckRequest"
	TypeClientDetection    = "ClientDetectionRequest"
	TypeConnectReset       = "ConnectResetRequest"
	TypeInstance           = "InstanceRequest"
	TypeBatchInstance      = "BatchInstanceRequest"
	TypePersistentInstance = "PersistentInstanceRequest"
	TypeServiceQuery       = "ServiceQueryRequest"
	TypeServiceList        = "ServiceListRequest"
	TypeSubscribeService   = "SubscribeServiceRequest"
	TypeNotifySubscriber   = "NotifySubscriberRequest"

	TypeError              = "ErrorResponse"
	TypeServerCheckAnswer  = "ServerCheckResponse"
	TypeHealthCheckAnswer  = "HealthCheckResponse"
	TypeInstanceAnswer     = "InstanceResponse"
	TypeBatchAnswer        = "BatchInstanceResponse"
	TypeQueryAnswer        = "QueryServiceResponse"
	TypeListAnswer         = "ServiceListResponse"
	TypeSubscribeAnswer    = "SubscribeServiceResponse"
	RegisterInstance       = "registerInstance"
	DeregisterInstance     = "deregisterInstance"
	BatchRegisterInstance  = "batchRegisterInstance"
	ModuleNaming           = "naming"
	errorConnectionUnknown = 301
)

// ServiceName are the fields that name a service in every naming request. Absent
// and null are nil.
type ServiceName struct {
	Namespace   *Str `json:"namespace"`
	ServiceName *Str `json:"serviceName"`
	GroupName   *Str `json:"groupName"`
}

// Key returns the service's key: a missing or empty namespace is public; a
// missing name or group is empty.
func (n ServiceName) Key() naming.ServiceKey {
	k := naming.ServiceKey{Namespace: text(n.Namespace), Group: text(n.GroupName), Name: text(n.ServiceName)}
	if k.Namespace == "" {
		k.Namespace = naming.DefaultNamespace
	}
	return k
}

func text(s *Str) string {
	if s == nil {
		return ""
	}
	return string(*s)
}

// Instance is an instance as clients send it.
type Instance struct {
	InstanceID  Str      `json:"instanceId"`
	IP          Str      `json:"ip"`
	Port        Int      `json:"port"`
	Weight      Float    `json:"weight"`
	Healthy     Bool     `json:"healthy"`
	Enabled     Bool     `json:"enabled"`
	ClusterName Str      `json:"clusterName"`
	Metadata    Metadata `json:"metadata"`
}

// Naming returns the instance with the protocol's defaults for what is missing.
// Whether it is ephemeral is decided by the request, not by its own flag.
func (i *Instance) Naming(ephemeral bool) *naming.Instance {
	out := &naming.Instance{
		ID: string(i.InstanceID), IP: string(i.IP), Port: int(i.Port), Cluster: string(i.ClusterName),
		Weight: i.Weight.Or(1), Healthy: i.Healthy.Or(true), Enabled: i.Enabled.Or(true), Ephemeral: ephemeral,
	}
	if out.Cluster == "" || out.Cluster == naming.DefaultCluster {
		out.Cluster = naming.DefaultCluster // its bytes too, which are always there
	}
	if len(i.Metadata) > 0 {
		out.Metadata = i.Metadata
	}
	return out
}

// Beat is a heartbeat over HTTP.
type Beat struct {
	Instance
	Cluster   Str  `json:"cluster"`
	Ephemeral Bool `json:"ephemeral"`
}

// InstanceRequest registers or deregisters one instance (grpc.md 3.3, 3.5).
type InstanceRequest struct {
	ServiceName
	Type     Str       `json:"type"`
	Instance *Instance `json:"instance"`
}

// BatchInstanceRequest replaces all that a connection has in a service (3.4).
type BatchInstanceRequest struct {
	ServiceName
	Type      Str          `json:"type"`
	Instances *[]*Instance `json:"instances"`
}

// ServiceQueryRequest asks for a service once (3.6).
type ServiceQueryRequest struct {
	ServiceName
	Cluster     Str  `json:"cluster"`
	HealthyOnly Bool `json:"healthyOnly"`
}

// ServiceListRequest asks for a page of names (3.7).
type ServiceListRequest struct {
	ServiceName
	PageNo   Int             `json:"pageNo"`
	PageSize Int             `json:"pageSize"`
	Selector json.RawMessage `json:"selector"` // a JSON object, or its text
}

// Expression returns the expression of a label selector; empty for any other one.
func (q *ServiceListRequest) Expression() string {
	raw := []byte(q.Selector)
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = []byte(text)
	}
	var given struct {
		Type       Str `json:"type"`
		Expression Str `json:"expression"`
	}
	if json.Unmarshal(raw, &given) != nil || given.Type != "label" {
		return ""
	}
	return string(given.Expression)
}

// SubscribeServiceRequest subscribes or unsubscribes (3.8).
type SubscribeServiceRequest struct {
	ServiceName
	Subscribe Bool `json:"subscribe"`
	Clusters  Str  `json:"clusters"`
}

// ConnectionSetupRequest opens a connection (2.4).
type ConnectionSetupRequest struct {
	ClientVersion Str             `json:"clientVersion"`
	Tenant        Str             `json:"tenant"`
	Labels        map[string]Str  `json:"labels"`
	AbilityTable  map[string]Bool `json:"abilityTable"` // nil: absent or null
}

// Ack is a client's answer on the stream (2.9).
type Ack struct {
	ResultCode Int `json:"resultCode"`
	RequestID  Str `json:"requestId"`
}

// OK tells whether the client took what it was sent. Only the result code counts:
// Go clients send success false.
func (a *Ack) OK() bool { return a.ResultCode == 200 }

// Seq returns the number that the acknowledged request carried, 0 if it is none.
func (a *Ack) Seq() uint64 {
	n, err := strconv.ParseUint(string(a.RequestID), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// answer makes a payload that carries only its type, as servers' answers do.
func answer(typ string, body ...[]byte) *Payload { return &Payload{Type: typ, Body: body} }

// ErrorAnswer is the answer of the connection level: typed neither by request nor
// by handler (2.7).
func ErrorAnswer(resultCode, errorCode int, message string) *Payload {
	return answer(TypeError, failure(resultCode, errorCode, message, nil))
}

// Unregistered is the answer to a call on a transport without a setup.
func Unregistered() *Payload {
	return ErrorAnswer(500, errorConnectionUnknown, "Connection is unregistered.")
}

// Failed is the answer of a handler that refuses a value, in its own type. extra
// are further fields, from the comma on.
func Failed(typ, message string, extra []byte) *Payload {
	return answer(typ, failure(500, 400, message, extra))
}

func failure(resultCode, errorCode int, message string, extra []byte) []byte {
	b := strconv.AppendInt([]byte(`{"resultCode":`), int64(resultCode), 10)
	b = strconv.AppendInt(append(b, `,"errorCode":`...), int64(errorCode), 10)
	if message != "" {
		b = AppendString(append(b, `,"message":`...), message)
	}
	b = append(b, extra...)
	return append(b, `,"success":false}`...)
}

// ServerCheckAnswer names the connection. The server promises to acknowledge a
// setup that carries an ability table.
func ServerCheckAnswer(connectionID string) *Payload {
	b := AppendString([]byte(`{"resultCode":200,"errorCode":0,"connectionId":`), connectionID)
	return answer(TypeServerCheckAnswer, append(b, `,"supportAbilityNegotiation":true,"success":true}`...))
}

// HealthCheckAnswer says that the connection is known.
func HealthCheckAnswer() *Payload {
	return answer(TypeHealthCheckAnswer, []byte(`{"resultCode":200,"errorCode":0,"success":true}`))
}

// InstanceAnswer says that a registration or deregistration took effect.
func InstanceAnswer(typ, operation string) *Payload {
	b := AppendString([]byte(`{"resultCode":200,"errorCode":0,"type":`), operation)
	return answer(typ, append(b, `,"success":true}`...))
}

// QueryAnswer carries a service.
func QueryAnswer(info *naming.ServiceInfo) *Payload {
	return answer(TypeQueryAnswer, []byte(`{"resultCode":200,"errorCode":0,"serviceInfo":`), ServiceInfoGRPC(info), []byte(`,"success":true}`))
}

// SubscribeAnswer carries a service.
func SubscribeAnswer(info *naming.ServiceInfo) *Payload {
	return answer(TypeSubscribeAnswer, []byte(`{"resultCode":200,"errorCode":0,"message":"success","serviceInfo":`), ServiceInfoGRPC(info), []byte(`,"success":true}`))
}

// WithServiceInfo are the further fields of a refused query or subscription:
// some clients cannot read an answer without a service.
func WithServiceInfo(info *naming.ServiceInfo) []byte {
	return append([]byte(`,"serviceInfo":`), ServiceInfoGRPC(info)...)
}

// ListAnswer carries a page of plain service names and the number of all.
func ListAnswer(count int, names []string) *Payload {
	b := strconv.AppendInt([]byte(`{"resultCode":200,"errorCode":0,"count":`), int64(count), 10)
	b = AppendStrings(append(b, `,"serviceNames":`...), names)
	return answer(TypeListAnswer, append(b, `,"success":true}`...))
}

// NoServices are the further fields of a refused list.
func NoServices() []byte { return []byte(`,"count":0,"serviceNames":[]`) }

// AppendStrings appends a JSON list of texts.
func AppendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for n, s := range list {
		if n > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, s)
	}
	return append(b, ']')
}

// NotifySubscriber is a push; seq comes back in its acknowledgement. serverIP is
// the sending server's address.
func NotifySubscriber(serverIP string, seq uint64, info *naming.ServiceInfo) *Payload {
	head := strconv.AppendUint([]byte(`{"headers":{},"requestId":"`), seq, 10)
	return &Payload{
		Type: TypeNotifySubscriber, ClientIP: serverIP,
		Body: [][]byte{append(head, `","serviceInfo":`...), ServiceInfoGRPC(info), []byte(`,"module":"naming"}`)},
	}
}

// SetupAck tells the server's abilities: fuzzyWatch only to a client that has it too.
func SetupAck(serverIP string, fuzzyWatch bool) *Payload {
	b := []byte(`{"headers":{},"abilityTable":{"supportPersistentInstanceByGrpc":true`)
	if fuzzyWatch {
		b = append(b, `,"fuzzyWatch":true`...)
	}
	return &Payload{Type: TypeSetupAck, ClientIP: serverIP, Body: [][]byte{append(b, `},"module":"internal"}`...)}}
}

// ClientDetection asks a silent client whether it is there.
func ClientDetection(serverIP string, seq uint64) *Payload {
	b := strconv.AppendUint([]byte(`{"headers":{},"requestId":"`), seq, 10)
	return &Payload{Type: TypeClientDetection, ClientIP: serverIP, Body: [][]byte{append(b, `","module":"internal"}`...)}}
}

// ConnectReset asks the client of a connection to connect to another server: ip and
// main port; both empty mean any other. The id may be
// empty: then it is not told.
func ConnectReset(serverIP string, seq uint64, connectionID, ip, port string) *Payload {
	b := strconv.AppendUint([]byte(`{"headers":{},"requestId":"`), seq, 10)
	b = append(b, '"')
	if ip != "" {
		b = AppendString(append(b, `,"serverIp":`...), ip)
		b = AppendString(append(b, `,"serverPort":`...), port)
		if connectionID != "" {
			b = AppendString(append(b, `,"connectionId":`...), connectionID)
		}
	}
	return &Payload{Type: TypeConnectReset, ClientIP: serverIP, Body: [][]byte{append(b, `,"module":"internal"}`...)}}
}
