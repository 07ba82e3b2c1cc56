package httpapi

import (
	"encoding/json"
	"math"
	"net"
	"slices"
	"strconv"

	"rollcall/naming"
	"rollcall/server/wire"
)

// routesLoader are the paths that spread the connections of gRPC over the nodes.
func (s *Server) routesLoader(t table, v2, v3 string) {
	t.handle(v2+"loader/current", methods{"GET": s.raw(s.connectionsV2, "Connections of this node", "")})
	t.handle(v2+"loader/cluster", methods{"GET": s.raw(s.loadV2, "How many connections each node has", "")})
	t.handle(v2+"loader/reloadClient", methods{"GET": s.raw(s.resetV2, "Ask the client of a connection to go to another node", "connectionId! redirectAddress")})
	t.handle(v2+"loader/reloadCurrent", methods{"GET": s.raw(s.shedV2, "Ask clients of this node to go until no more than count are left", "count! redirectAddress")})
	t.handle(v2+"loader/smartReloadCluster", methods{"GET": s.raw(s.balanceV2, "Ask clients to go from the nodes that have more than their share", "loaderFactor")})
	t.handle(v3+"loader/current", methods{"GET": s.v2(s.connectionsV3, "Connections of this node", "")})
	t.handle(v3+"loader/cluster", methods{"GET": s.v2(s.loadV3, "How many connections each node has", "")})
	t.handle(v3+"loader/reloadClient", methods{"POST": s.v2(s.resetV3, "Ask the client of a connection to go to another node", "connectionId! redirectAddress")})
	t.handle(v3+"loader/reloadCurrent", methods{"POST": s.v2(s.shedV3, "Ask clients of this node to go until no more than count are left", "count! redirectAddress")})
	t.handle(v3+"loader/smartReloadCluster", methods{"POST": s.v2(s.balanceV3, "Ask clients to go from the nodes that have more than their share", "loaderFactor")})
}

// connectionJSON is a connection in the form of the protocol (grpc.md 2.8).
type connectionJSON struct {
	Traced    bool              `json:"traced"`
	Abilities map[string]bool   `json:"abilityTable"`
	Meta      map[string]any    `json:"metaInfo"`
	Connected bool              `json:"connected"`
	Labels    map[string]string `json:"labels"`
	AppLabels map[string]string `json:"appLabels"`
}

// connections writes the connections of this node by id; tenant is the name that the
// version gives the client's namespace.
func (s *Server) connections(tenant string) ([]byte, error) {
	out := make(map[string]connectionJSON)
	for _, c := range s.cfg.Connections() {
		app := map[string]string{"ClientVersion": c.Version, "AppName": c.App}
		meta := map[string]any{
			"connectType": "GRPC", "clientIp": c.ClientIP, "remoteIp": c.RemoteIP, "remotePort": c.RemotePort, "localPort": c.LocalPort,
			"version": c.Version, "connectionId": c.ID, "createTime": c.Created.UTC().Format(isoTime), "lastActiveTime": c.Active.UnixMilli(),
			"appName": c.App, "labels": c.Labels, "tlsProtected": false, "tag": nil, "appLabels": app,
			"clusterSource": c.Labels["source"] == "cluster", "sdkSource": c.Labels["source"] == "sdk",
		}
		if meta[tenant] = nil; c.Tenant != "" {
			meta[tenant] = c.Tenant
		}
		out[c.ID] = connectionJSON{Abilities: c.Abilities, Meta: meta, Connected: true, Labels: c.Labels, AppLabels: app}
	}
	return json.Marshal(out)
}

func (s *Server) connectionsV2(*request) (answer, error) {
	b, err := s.connections("tenant")
	return jsonBody(b), err
}

func (s *Server) connectionsV3(*request) ([]byte, error) { return s.connections("namespaceId") }

// loaderFactor is by how much a node may exceed its share.
const loaderFactor = 0.1

// share is how the connections are spread over the nodes that live.
type share struct {
	nodes           []naming.NodeState
	all, total      int // nodes, connections
	least, most     int
	average, factor float64
}

func (s *Server) share(factor float64) share {
	out := share{least: math.MaxInt, factor: factor}
	for _, n := range s.cfg.Nodes() {
		out.all++
		if !n.Alive {
			continue
		}
		out.nodes = append(out.nodes, n)
		out.total += n.Connections
		out.least, out.most = min(out.least, n.Connections), max(out.most, n.Connections)
	}
	if len(out.nodes) == 0 {
		out.least = 0
		return out
	}
	out.average = float64(out.total) / float64(len(out.nodes))
	return out
}

// threshold is the number of connections above which a node has too many.
func (h share) threshold() float64 { return h.average * (1 + h.factor) }

// append writes the share; one writes a node.
func (h share) append(b []byte, one func([]byte, naming.NodeState) []byte) []byte {
	field := func(name string, n int) {
		b = strconv.AppendInt(append(append(append(b, ',', '"'), name...), '"', ':'), int64(n), 10)
	}
	b = append(b, `{"detail":[`...)
	for n, node := range h.nodes {
		if n > 0 {
			b = append(b, ',')
		}
		b = one(b, node)
	}
	b = append(b, ']')
	field("memberCount", h.all)
	field("metricsCount", len(h.nodes))
	field("total", h.total)
	field("min", h.least)
	field("max", h.most)
	field("avg", int(h.average))
	b = wire.AppendFloat(append(b, `,"threshold":`...), h.threshold())
	return append(strconv.AppendBool(append(b, `,"completed":`...), h.all == len(h.nodes)), '}')
}

// appendLoad writes how busy a node is, without braces.
func appendLoad(b []byte, n naming.NodeState) []byte {
	b = strconv.AppendInt(append(b, `"sdkConCount":`...), int64(n.Connections), 10)
	b = strconv.AppendInt(append(b, `,"conCount":`...), int64(n.Connections), 10)
	b = wire.AppendFloat(append(b, `,"load":`...), n.Load)
	return wire.AppendFloat(append(b, `,"cpu":`...), n.CPU)
}

func (s *Server) loadV2(*request) (answer, error) {
	return jsonBody(s.share(loaderFactor).append(nil, func(b []byte, n naming.NodeState) []byte {
		b = wire.AppendString(append(b, `{"address":`...), n.Address)
		return append(appendLoad(append(b, `,"metric":{`...), n), `}}`...)
	})), nil
}

func (s *Server) loadV3(*request) ([]byte, error) {
	return s.share(loaderFactor).append(nil, func(b []byte, n naming.NodeState) []byte {
		b = wire.AppendString(append(b, `{"address":`...), n.Address)
		return append(appendLoad(append(b, ','), n), '}')
	}), nil
}

// redirect reads where clients are to go; empty is anywhere.
func (q *request) redirect() (ip string, port int, err error) {
	text := q.word("redirectAddress")
	if text == "" {
		return "", 0, nil
	}
	ip, number, err := net.SplitHostPort(text)
	if err != nil || ip == "" {
		return "", 0, badValue("redirectAddress", text, "ip:port of a node")
	}
	if port, err = naming.ParsePort(number); err != nil {
		return "", 0, err
	}
	return ip, port, naming.CheckIP(ip)
}

// reset asks the client of one connection to go; known tells whether there is one.
func (s *Server) reset(q *request) (known bool, err error) {
	id := q.text("connectionId", "")
	if id == "" {
		return false, lackingParameter("connectionId")
	}
	ip, port, err := q.redirect()
	if err != nil {
		return false, err
	}
	return s.cfg.Reset(id, ip, port), nil
}

// done is what v2 answers to every call that moves connections, also to one of a
// connection that there is not: it may have ended by itself.
func done() answer { return text("success") }

func (s *Server) resetV2(q *request) (answer, error) {
	_, err := s.reset(q)
	return done(), err
}

func (s *Server) resetV3(q *request) ([]byte, error) {
	known, err := s.reset(q)
	if err == nil && !known {
		err = &naming.InvalidError{Fault: naming.FaultResourceUnknown, Field: "connectionId", Text: "there is no connection " + clipText(q.text("connectionId", "")) + " on this node"}
	}
	return []byte("null"), err
}

// shed asks clients of this node to go until count are left. Those that are sent
// nowhere in particular choose a node themselves.
func (s *Server) shed(q *request) error {
	if q.text("count", "") == "" {
		return lackingParameter("count")
	}
	count, err := q.integer("count", 0)
	if err != nil {
		return err
	}
	if count < 0 || count > math.MaxInt32 {
		return badValue("count", q.word("count"), "a number of connections from 0 on")
	}
	ip, port, err := q.redirect()
	if err != nil {
		return err
	}
	over := len(s.cfg.Connections()) - int(count)
	for _, c := range s.cfg.Connections() {
		if over <= 0 {
			return nil
		}
		if s.cfg.Reset(c.ID, ip, port) {
			over--
		}
	}
	return nil
}

func (s *Server) shedV2(q *request) (answer, error) { return done(), s.shed(q) }

func (s *Server) shedV3(q *request) ([]byte, error) { return []byte("null"), s.shed(q) }

// balance has each node with more than its share send clients to those with less.
func (s *Server) balance(q *request) error {
	factor, err := q.number("loaderFactor", loaderFactor)
	if err != nil {
		return err
	}
	if !(factor >= 0 && factor <= 1) {
		return badValue("loaderFactor", q.word("loaderFactor"), "a number from 0 to 1")
	}
	h := s.share(factor)
	slices.SortFunc(h.nodes, func(a, b naming.NodeState) int { return a.Connections - b.Connections })
	room := make([]int, len(h.nodes))
	for n, node := range h.nodes {
		if !node.Draining { // whose clients go elsewhere
			room[n] = int(h.average) - node.Connections
		}
	}
	for _, node := range slices.Backward(h.nodes) {
		has := node.Connections
		for n := range h.nodes {
			if float64(has) <= h.threshold() || room[n] <= 0 {
				continue
			}
			keep := max(has-room[n], int(h.average))
			asked, err := s.cfg.Shed(q.Context(), node.Name, keep, h.nodes[n].Address)
			if err != nil {
				return err
			}
			has -= asked
			room[n] -= asked
		}
	}
	return nil
}

func (s *Server) balanceV2(q *request) (answer, error) { return done(), s.balance(q) }

func (s *Server) balanceV3(q *request) ([]byte, error) { return []byte("null"), s.balance(q) }

// isoTime is the form of times in the protocol's JSON.
const isoTime = "2006-01-02T15:04:05.000-07:00"
