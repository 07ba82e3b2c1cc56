package httpapi

import (
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"rollcall/naming"
	"rollcall/server/wire"
)

// request is one request with its parameters.
type request struct {
	*http.Request
	params
}

// operation is one method of one path.
type operation struct {
	serve func(*request) answer
	says  string // what it does, for the description
	// takes names the parameters for the description, separated by blanks; ! marks
	// those that must be there.
	takes string
}

// methods are the operations of one path.
type methods map[string]operation

// v1 makes an operation that answers errors in text.
func (s *Server) v1(h func(*request) (answer, error), says, takes string) operation {
	return operation{func(q *request) answer {
		a, err := answered(s, q, h)
		if err != nil {
			return s.refusedV1(err, q.URL.Path)
		}
		return a
	}, says, takes}
}

// v2 makes an operation whose data stand in the envelope of v2 and v3.
func (s *Server) v2(h func(*request) ([]byte, error), says, takes string) operation {
	return operation{func(q *request) answer {
		data, err := answered(s, q, h)
		if err != nil {
			return s.refusedV2(err)
		}
		return jsonBody(result(wire.CodeSuccess, data))
	}, says, takes}
}

// raw makes an operation of v2 or v3 without the envelope.
func (s *Server) raw(h func(*request) (answer, error), says, takes string) operation {
	return operation{func(q *request) answer {
		a, err := answered(s, q, h)
		if err != nil {
			return s.refusedV2(err)
		}
		return a
	}, says, takes}
}

// answered calls a handler. A read with consistent=true waits first until this node
// shows all that was acknowledged before.
func answered[A any](s *Server, q *request, h func(*request) (A, error)) (A, error) {
	if text := q.params["consistent"]; text != "" && (q.Method == http.MethodGet || q.Method == http.MethodHead) {
		consistent, err := trueOrFalse("consistent", text)
		if err == nil && consistent {
			err = s.registry.AwaitConsistent(q.Context())
		}
		if err != nil {
			return *new(A), err
		}
	}
	return h(q)
}

// trueOrFalse reads the value of a parameter of our own.
func trueOrFalse(name, text string) (bool, error) {
	switch text {
	case "true", "false":
		return text == "true", nil
	}
	return false, &naming.InvalidError{Fault: naming.FaultValue, Field: name, Text: name + " is " + strconv.Quote(text) + ": it must be true or false"}
}

// table is every path of the protocol with its operations.
type table map[string]methods

func (t table) handle(pattern string, m methods) {
	if t[pattern] != nil {
		panic("two routes for " + pattern)
	}
	t[pattern] = m
}

// table returns the routes of the protocol.
func (s *Server) table() table {
	t := make(table)
	s.routesV1(t)
	s.routesV2(t)
	s.routesV3(t)
	s.routesCore(t)
	s.routesConsole(t)
	s.routesPrometheus(t)
	s.routesDNS(t)
	return t
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, m := range s.table() {
		mux.Handle(pattern, s.methods(pattern, m))
	}
	mux.HandleFunc("GET /rollcall/v1/nodes", s.nodes)
	mux.HandleFunc("DELETE /rollcall/v1/nodes/{node}", s.removeNode)
	mux.HandleFunc("GET /rollcall/v1/snapshot", s.saveSnapshot)
	mux.HandleFunc("POST /rollcall/v1/snapshot", s.restoreSnapshot)
	mux.HandleFunc("POST /rollcall/v1/drain", s.live(func(l Life) error { return l.Drain(true) }))
	mux.HandleFunc("DELETE /rollcall/v1/drain", s.live(func(l Life) error { return l.Drain(false) }))
	mux.HandleFunc("POST /rollcall/v1/leave", s.live(Life.Leave))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { text("ok\n").write(w) })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.cfg.Metrics)
	mux.Handle("GET /nacos/actuator/prometheus", s.cfg.Metrics)
	mux.HandleFunc("GET /openapi.yaml", s.openAPI)
	mux.HandleFunc("GET /nacos", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://"+r.Host+"/nacos/")
		answer{status: http.StatusFound}.write(w)
	})
	mux.HandleFunc("GET /nacos/{$}", s.page)
	mux.HandleFunc("GET /nacos/index.html", s.page)
	return s.guard(mux)
}

// third tells whether a path belongs to the third version of the API, which words
// some answers otherwise.
func third(path string) bool {
	return strings.HasPrefix(path, "/nacos/v3/") || strings.HasPrefix(path, "/v3/") || strings.HasPrefix(path, "/v1/console/") || strings.HasPrefix(path, "/v2/console/")
}

// methods serves one path: the right operation, or the answer that the path exists
// and which methods it has.
func (s *Server) methods(pattern string, m methods) http.Handler {
	var names []string
	for _, name := range [...]string{"PATCH", "POST", "DELETE", "PUT", "GET"} {
		if m[name].serve != nil {
			names = append(names, name)
		}
	}
	allow := ""
	if third(pattern) {
		slices.Sort(names)
		allow = strings.Join(names, ", ")
	} else {
		if m["GET"].serve != nil {
			names = append(names, "HEAD")
		}
		allow = strings.Join(append(names, "OPTIONS"), ",")
	}
	options := strings.HasPrefix(pattern, "/nacos/v2/") || third(pattern)
	serves := make(map[string]func(*request) answer, len(m)+1)
	for name, o := range m {
		serves[name] = o.serve
		if name == "GET" {
			serves["HEAD"] = o.serve
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := serves[r.Method]
		switch {
		case h == nil && r.Method == http.MethodOptions && options:
			w.Header().Set("Allow", allow)
			answer{status: http.StatusOK}.write(w)
			return
		case h == nil:
			w.Header().Set("Allow", allow)
			(&filterError{http.StatusMethodNotAllowed, "Method '" + r.Method + "' is not supported."}).answer(r.URL.Path).write(w)
			return
		}
		h(&request{r, parse(r)}).write(w)
	})
}

// guard answers what no handler should see: odd and unknown paths, and everything of
// the protocol while the node is not ready.
func (s *Server) guard(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol := strings.HasPrefix(r.URL.Path, "/nacos") || third(r.URL.Path)
		if protocol {
			if a, refused := s.shut(r); refused {
				a.write(w)
				return
			}
		}
		if cleaned := path.Clean(r.URL.Path); cleaned == r.URL.Path || cleaned+"/" == r.URL.Path {
			switch h, pattern := mux.Handler(r); {
			case strings.Contains(pattern, "{"): // the path holds a value, which only the mux takes out
				mux.ServeHTTP(w, r)
				return
			case pattern != "":
				h.ServeHTTP(w, r)
				return
			}
		}
		part, missing := absent(r.URL.Path)
		switch {
		case missing:
			absentAnswer(r, part).write(w)
		case third(r.URL.Path):
			(&filterError{http.StatusNotFound, "No endpoint " + r.Method + " " + r.URL.Path + "."}).answer(r.URL.Path).write(w)
		case protocol:
			(&filterError{http.StatusNotFound, "No message available"}).answer(r.URL.Path).write(w)
		default:
			answer{http.StatusNotFound, "text/html;charset=utf-8", []byte("<!doctype html><title>404</title>Not found. Rollcall serves the naming API under /nacos, its description at /openapi.yaml, and /livez, /readyz and /metrics.\n")}.write(w)
		}
	})
}
