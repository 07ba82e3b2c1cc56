package httpapi

import (
	"encoding/json"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollcall/naming"
	"rollcall/server/wire"
)

// The versions of the original whose answers these are: tools decide by them what
// they may ask. What Rollcall's own version is, /rollcall/v1/nodes tells.
const (
	protocolVersion  = "2.5.1"
	protocolVersion3 = "3.0.3"
)

// routesCore are the paths about nodes.
func (s *Server) routesCore(t table) {
	const v1, v2, v3 = "/nacos/v1/core/", "/nacos/v2/core/", "/nacos/v3/admin/core/"
	lookup := s.v2(s.lookupV2, "Choose how nodes find each other: refused, gossip does that", "type!")
	t.handle(v1+"cluster/self", methods{"GET": s.v1(s.selfV1, "This node", "")})
	t.handle(v1+"cluster/nodes", methods{"GET": s.v1(s.nodesV1, "All nodes", "keyword")})
	t.handle("/nacos/serverlist", methods{"GET": s.v1(s.serverList, "Addresses of all nodes, one on a line", "namespace")})
	t.handle(v1+"cluster/simple/nodes", methods{"GET": s.v1(s.simpleNodesV1, "Addresses of all nodes", "")})
	t.handle(v1+"cluster/health", methods{"GET": s.v1(s.stateV1, "State of this node", "")})
	t.handle(v1+"cluster/report", methods{"POST": s.v1(s.reportV1, "Between nodes of the original: refused", "")})
	t.handle(v1+"cluster/switch/lookup", methods{"POST": s.v1(s.lookupV1, "Choose how nodes find each other: refused, gossip does that", "type!")})
	t.handle(v1+"cluster/server/leave", methods{"POST": s.v1(leaveOf("/v1/core/cluster/server/leave"), "Let nodes leave: refused, see rollcall node leave", "")})
	t.handle(v1+"ops/idInfo", methods{"GET": s.v1(s.idsV1, "State of the generator of instance ids", "")})

	t.handle(v1+"ops/log", methods{"PUT": s.v1(s.setCoreLogV1, "Set the level of a log on this node", "")})

	t.handle(v2+"cluster/node/self", methods{"GET": s.v2(s.selfV2, "This node", "")})
	t.handle(v2+"cluster/node/list", methods{
		"GET": s.v2(s.nodesV2, "All nodes", "address state"),
		"PUT": s.v2(s.setNodesV2, "Set the list of nodes: refused, gossip knows them", ""),
	})
	t.handle(v2+"cluster/node/self/health", methods{"GET": s.v2(s.stateV2, "State of this node", "")})
	t.handle(v2+"cluster/lookup", methods{"PUT": lookup})
	t.handle(v2+"cluster/nodes", methods{"DELETE": s.raw(leaveOf("DELETE /v2/core/cluster/nodes"), "Let nodes leave: refused, see rollcall node leave", "addresses")})
	t.handle(v2+"ops/ids", methods{"GET": s.raw(s.idsV2, "State of the generator of instance ids", "")})

	t.handle(v3+"cluster/node/self", methods{"GET": s.v2(s.selfV3, "This node", "")})
	t.handle(v3+"cluster/node/list", methods{
		"GET": s.v2(s.nodesV3, "All nodes", "address state"),
		"PUT": s.v2(s.setNodesV2, "Set the list of nodes: refused, gossip knows them", ""),
	})
	t.handle(v3+"cluster/node/self/health", methods{"GET": s.v2(s.stateV2, "State of this node", "")})
	t.handle(v3+"cluster/lookup", methods{"PUT": lookup})
	t.handle(v2+"ops/log", methods{"PUT": s.raw(s.setCoreLogV1, "Set the level of a log on this node", "")})
	t.handle(v3+"ops/log", methods{"PUT": s.v2(s.setCoreLogV3, "Set the level of a log on this node", "")})
	for _, path := range [...]string{"/nacos/v1/core/ops/raft", v2 + "ops/raft", v3 + "ops/raft"} {
		t.handle(path, methods{"POST": s.v2(s.raftOps, "Commands for the original's Raft: refused, see rollcall node", "")})
	}
	s.routesLoader(t, v2, v3)
	t.handle(v3+"ops/ids", methods{"GET": s.v2(s.idsV3, "State of the generator of instance ids", "")})
}

// member is a node in the form of the protocol (http.md 2.11).
type member struct {
	IP          string    `json:"ip"`
	Port        int       `json:"port"`
	State       string    `json:"state"`
	Extend      extend    `json:"extendInfo"`
	Address     string    `json:"address"`
	Failures    int       `json:"failAccessCnt"`
	Abilities   abilities `json:"abilities"`
	GRPCReports bool      `json:"grpcReportEnabled"`
}

type extend struct {
	Refreshed int64    `json:"lastRefreshTime"`
	Raft      raftMeta `json:"raftMetaData"`
	RaftPort  string   `json:"raftPort"`
	Ready     bool     `json:"readyToUpgrade"`
	Gray      bool     `json:"supportGrayModel"`
	Version   string   `json:"version"`
}

type raftMeta struct {
	Groups map[string]raftGroup `json:"metaDataMap"`
}

type raftGroup struct {
	Leader  string   `json:"leader"`
	Members []string `json:"raftGroupMember"`
	Term    uint64   `json:"term"`
}

type abilities struct {
	Remote struct {
		Connection bool `json:"supportRemoteConnection"`
		Reports    bool `json:"grpcReportEnabled"`
	} `json:"remoteAbility"`
	Config struct {
		Metrics bool `json:"supportRemoteMetrics"`
	} `json:"configAbility"`
	Naming struct {
		Raft bool `json:"supportJraft"`
	} `json:"namingAbility"`
}

// members returns the nodes that keep selects, sorted by address. The groups of the
// original are one group here, which holds all their data.
func (s *Server) members(version string, keep func(naming.NodeState, string) bool) []member {
	nodes := s.cfg.Nodes()
	address := make(map[string]string, len(nodes)) // of Raft, by name
	var raft []string
	for _, n := range nodes {
		if address[n.Name] = n.RaftAddress; n.RaftAddress != "" {
			raft = append(raft, n.RaftAddress)
		}
	}
	slices.Sort(raft)
	out := make([]member, 0, len(nodes))
	for _, n := range nodes {
		state := "UP"
		if !n.Alive {
			state = "DOWN"
		}
		if !keep(n, state) {
			continue
		}
		ip, port, _ := net.SplitHostPort(n.Address)
		_, raftPort, _ := net.SplitHostPort(n.RaftAddress)
		m := member{IP: ip, State: state, Address: n.Address, GRPCReports: true}
		m.Port, _ = strconv.Atoi(port)
		group := raftGroup{Leader: address[n.Leader], Members: raft, Term: n.Term}
		m.Extend = extend{
			Refreshed: time.Now().UnixMilli(), RaftPort: raftPort, Ready: true, Gray: true, Version: version,
			Raft: raftMeta{map[string]raftGroup{
				"naming_instance_metadata": group, "naming_persistent_service": group,
				"naming_persistent_service_v2": group, "naming_service_metadata": group,
			}},
		}
		if version == protocolVersion3 {
			m.Extend.Raft.Groups["lock_acquire_service_v2"] = group
		}
		m.Abilities.Remote.Connection, m.Abilities.Remote.Reports, m.Abilities.Naming.Raft = true, true, true
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b member) int { return strings.Compare(a.Address, b.Address) })
	return out
}

func (s *Server) self(version string) ([]byte, error) {
	for _, m := range s.members(version, func(n naming.NodeState, _ string) bool { return n.Self }) {
		return json.Marshal(m)
	}
	return []byte("null"), nil
}

// nodesOf returns the nodes whose address begins with a text.
func (s *Server) nodesOf(version, prefix, state string) ([]byte, error) {
	return json.Marshal(s.members(version, func(n naming.NodeState, is string) bool {
		return strings.HasPrefix(n.Address, prefix) && (state == "" || state == is)
	}))
}

func (s *Server) rest(data []byte, err error) (answer, error) {
	return jsonBody(restResult(200, "", data)), err
}

func (s *Server) selfV1(*request) (answer, error) { return s.rest(s.self(protocolVersion)) }

func (s *Server) selfV2(*request) ([]byte, error) { return s.self(protocolVersion) }

func (s *Server) selfV3(*request) ([]byte, error) { return s.self(protocolVersion3) }

func (s *Server) nodesV1(q *request) (answer, error) {
	return s.rest(s.nodesOf(protocolVersion, q.word("keyword"), ""))
}

// nodesFiltered reads the filter of v2 and v3.
func (s *Server) nodesFiltered(q *request, version string) ([]byte, error) {
	state := q.text("state", "")
	switch strings.ToUpper(state) {
	case "", "STARTING", "UP", "SUSPICIOUS", "DOWN", "ISOLATION":
	default:
		state = clipText(state)
		return nil, &naming.InvalidError{Fault: naming.FaultState, Field: "state", Text: "Illegal state: " + state}
	}
	return s.nodesOf(version, q.word("address"), strings.ToUpper(state))
}

func (s *Server) nodesV2(q *request) ([]byte, error) { return s.nodesFiltered(q, protocolVersion) }

func (s *Server) nodesV3(q *request) ([]byte, error) { return s.nodesFiltered(q, protocolVersion3) }

// addresses returns the nodes' addresses of HTTP, sorted.
func (s *Server) addresses() []string {
	var out []string
	for _, m := range s.members(protocolVersion, func(naming.NodeState, string) bool { return true }) {
		out = append(out, m.Address)
	}
	return out
}

func (s *Server) simpleNodesV1(*request) (answer, error) {
	return s.rest(wire.AppendStrings(nil, s.addresses()), nil)
}

// serverList is what clients with an endpoint option ask for. Its line ends are those
// that all of them read (http.md 10.5).
func (s *Server) serverList(*request) (answer, error) {
	return text(strings.Join(s.addresses(), "\r\n")), nil
}

func (s *Server) stateV1(*request) (answer, error) { return s.rest([]byte(`"UP"`), nil) }

func (s *Server) stateV2(*request) ([]byte, error) { return []byte(`"UP"`), nil }

// jsonRequest refuses a body that is not announced as JSON.
func jsonRequest(r *http.Request) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.Header.Get("Content-Type") == "" || err == nil && (media == "application/json" || strings.HasSuffix(media, "+json")) {
		return nil
	}
	given := clipText(r.Header.Get("Content-Type"))
	if !strings.Contains(given, "charset") {
		given += ";charset=UTF-8" // which is how it would have been read
	}
	return &naming.InvalidError{Fault: naming.FaultMediaType, Field: "Content-Type", Text: "Content type '" + given + "' not supported"}
}

// reportV1 takes no word of nodes of the original: they cannot share data with these.
func (s *Server) reportV1(q *request) (answer, error) {
	if err := jsonRequest(q.Request); err != nil {
		return answer{}, err
	}
	return answer{}, &naming.InvalidError{Fault: naming.FaultOther, Field: "body", Text: "Node information is illegal: nodes of Rollcall know each other by gossip, see --join"}
}

// setNodesV2 refuses a list of nodes: a list that counts until the next word of gossip
// would be an effect of moments.
func (s *Server) setNodesV2(q *request) ([]byte, error) {
	if err := jsonRequest(q.Request); err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := json.NewDecoder(http.MaxBytesReader(nil, q.Body, maxForm)).Decode(&list); err != nil {
		return nil, &naming.InvalidError{Fault: naming.FaultMissing, Field: "body", Text: "the body is no JSON list of nodes: " + err.Error()}
	}
	if len(list) == 0 {
		return nil, &naming.InvalidError{Fault: naming.FaultMissing, Field: "nodes", Text: "required parameter 'nodes' is missing"}
	}
	return nil, &naming.InvalidError{Fault: naming.FaultValue, Field: "nodes", Text: "the list of nodes is not set from outside: nodes know each other by gossip, see --join and rollcall node leave"}
}

// raftOps refuses commands for the Raft of the original.
func (s *Server) raftOps(q *request) ([]byte, error) {
	if err := jsonRequest(q.Request); err != nil {
		return nil, err
	}
	return nil, &naming.InvalidError{Fault: naming.FaultValue, Field: "command", Text: "commands of JRaft are not served: nodes join and leave by themselves, see rollcall node and rollcall snapshot"}
}

// lookupText is why the way in which nodes find each other cannot be chosen.
func lookupText(typ string) string {
	if typ == "file" || typ == "address-server" {
		return "The addressing mode " + typ + " is not supported: nodes find each other by gossip, see --join"
	}
	typ = clipText(typ)
	return "The addressing mode exists : " + typ + ", just support : [[file, address-server]]"
}

func (s *Server) lookupV1(q *request) (answer, error) {
	typ := q.text("type", "")
	if typ == "" {
		return answer{}, parameterMissing("type")
	}
	return jsonBody(restResult(500, lookupText(typ), []byte("null"))), nil
}

func (s *Server) lookupV2(q *request) ([]byte, error) {
	typ := q.text("type", "")
	if typ == "" {
		return nil, &naming.InvalidError{Fault: naming.FaultMissing, Field: "type", Text: "required parameter 'type' is missing"}
	}
	return nil, &naming.InvalidError{Fault: naming.FaultValue, Field: "type", Text: lookupText(typ)}
}

// leaveOf answers as the original does, which lets no node leave by HTTP either.
func leaveOf(what string) func(*request) (answer, error) {
	return func(*request) (answer, error) {
		return jsonBody(restResult(405, what+" API not allow to use temporarily.", []byte("null"))), nil
	}
}

// ids is the state of the one generator of ids.
func (s *Server) ids() []byte {
	current, worker := s.registry.IDs()
	b := strconv.AppendUint([]byte(`{"currentId":`), current, 10)
	b = strconv.AppendUint(append(b, `,"workerId":`...), worker, 10)
	return append(b, '}')
}

// idResource names the generator.
const idResource = "naming-instance-id"

func (s *Server) idList() []byte {
	return append(append([]byte(`[{"resource":"`+idResource+`","info":`), s.ids()...), `}]`...)
}

func (s *Server) idsV1(*request) (answer, error) {
	return s.rest(append(append([]byte(`{"`+idResource+`":`), s.ids()...), '}'), nil)
}

func (s *Server) idsV2(*request) (answer, error) { return s.rest(s.idList(), nil) }

func (s *Server) idsV3(*request) ([]byte, error) { return s.idList(), nil }
