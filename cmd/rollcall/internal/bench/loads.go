package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"rollcall/server/wire"
)

// add adds a worker.
func (l *load) add(call func(context.Context) error) {
	l.workers = append(l.workers, worker{"call", call})
}

// services that one connection registers in, in turns.
const services = 10

func registerLoad(change bool) func(context.Context, Config) (*load, error) {
	return func(ctx context.Context, cfg Config) (*load, error) {
		return grpcLoad(ctx, cfg, func(c int) func(int) *wire.Payload {
			return func(n int) *wire.Payload {
				version := 0
				if change {
					version = n
				}
				return instanceRequest("registerInstance", fmt.Sprintf("bench-%d-%d", c, n%services), c, version)
			}
		})
	}
}

// persistentLoad registers persistent instances, as clients from 2.3 on do.
func persistentLoad(ctx context.Context, cfg Config) (*load, error) {
	l, err := grpcLoad(ctx, cfg, func(c int) func(int) *wire.Payload {
		return func(n int) *wire.Payload {
			return persistentRequest(fmt.Sprintf("bench-grpc-persistent-%d", c), c, n)
		}
	})
	if err == nil {
		l.kind, l.onDisk = bareGRPCRaft, true
	}
	return l, err
}

func churnLoad(ctx context.Context, cfg Config) (*load, error) {
	return grpcLoad(ctx, cfg, func(c int) func(int) *wire.Payload {
		return func(n int) *wire.Payload {
			typ := "registerInstance"
			if n%2 == 1 {
				typ = "deregisterInstance"
			}
			return instanceRequest(typ, fmt.Sprintf("bench-%d", c), c, n)
		}
	})
}

// filled is a load on a service with instances that a connection of its own holds.
func filled(ctx context.Context, cfg Config, make func(service string) (*load, error)) (*load, error) {
	const service = "bench-filled"
	holder, err := connect(ctx, cfg.Servers[0])
	if err != nil {
		return nil, err
	}
	answer, err := holder.call(ctx, batchRequest(service, 0, cfg.Instances, 0))
	if err == nil {
		err = refusal(answer)
	}
	if err != nil {
		holder.close()
		return nil, err
	}
	go holder.listen(func([]byte) {}) // ends with the connection
	l, err := make(service)
	if err != nil {
		holder.close()
		return nil, err
	}
	rest := l.close
	l.close = func() {
		rest()
		holder.close()
	}
	return l, nil
}

func queryLoad(ctx context.Context, cfg Config) (*load, error) {
	return filled(ctx, cfg, func(service string) (*load, error) {
		request := payload("ServiceQueryRequest", fmt.Sprintf(
			`{"headers":{},"namespace":"public","serviceName":%q,"groupName":"DEFAULT_GROUP","cluster":"","healthyOnly":false,"udpPort":0,"module":"naming"}`, service))
		return grpcLoad(ctx, cfg, func(int) func(int) *wire.Payload { return func(int) *wire.Payload { return request } })
	})
}

func subscribeLoad(ctx context.Context, cfg Config) (*load, error) {
	return filled(ctx, cfg, func(service string) (*load, error) {
		return grpcLoad(ctx, cfg, func(int) func(int) *wire.Payload {
			return func(n int) *wire.Payload { return subscribeRequest(service, n%2 == 0) }
		})
	})
}

// webLoad is a load of calls over HTTP, one worker for each connection.
func webLoad(ctx context.Context, cfg Config, method, path string, next func(c int) func(n int) url.Values) (*load, error) {
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: cfg.Connections, DisableCompression: true}}
	l := &load{kind: bareHTTP, close: web.CloseIdleConnections}
	one := func(ctx context.Context, server string, params url.Values) ([]byte, error) {
		target, body := "http://"+server+path, ""
		if method == http.MethodGet {
			target += "?" + params.Encode()
		} else {
			body = params.Encode()
		}
		q, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		if body != "" {
			q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		r, err := web.Do(q)
		if err != nil {
			return nil, err
		}
		defer func() { _ = r.Body.Close() }()
		answer, err := io.ReadAll(r.Body)
		if err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %d %.200s", path, r.StatusCode, answer)
		}
		return answer, err
	}
	for c := range cfg.Connections {
		params := next(c)
		n := 0
		l.add(func(ctx context.Context) error {
			n++
			_, err := one(ctx, cfg.Servers[c%len(cfg.Servers)], params(n))
			return err
		})
	}
	var err error
	if l.answer, err = one(ctx, cfg.Servers[0], next(0)(0)); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

const instancePath = "/nacos/v1/ns/instance"

func httpRegisterLoad(ephemeral string) func(context.Context, Config) (*load, error) {
	return func(ctx context.Context, cfg Config) (*load, error) {
		l, err := webLoad(ctx, cfg, http.MethodPost, instancePath, func(c int) func(int) url.Values {
			return func(n int) url.Values {
				return url.Values{
					"serviceName": {fmt.Sprintf("bench-%s-%d", ephemeral, c)}, "ip": {fmt.Sprintf("10.1.%d.%d", c>>8&255, c&255)},
					"port": {"8080"}, "ephemeral": {ephemeral}, "metadata": {fmt.Sprintf(`{"v":"%d"}`, n)},
				}
			}
		})
		if err == nil && ephemeral == "false" {
			l.kind, l.onDisk = bareHTTPRaft, true
		}
		return l, err
	}
}

func listLoad(ctx context.Context, cfg Config) (*load, error) {
	return filled(ctx, cfg, func(service string) (*load, error) {
		params := url.Values{"serviceName": {service}}
		return webLoad(ctx, cfg, http.MethodGet, instancePath+"/list", func(int) func(int) url.Values {
			return func(int) url.Values { return params }
		})
	})
}

// beatLoad sends heartbeats of instances that the first of them registers.
func beatLoad(ctx context.Context, cfg Config) (*load, error) {
	return webLoad(ctx, cfg, http.MethodPut, instancePath+"/beat", func(c int) func(int) url.Values {
		ip := fmt.Sprintf("10.2.%d.%d", c>>8&255, c&255)
		params := url.Values{
			"serviceName": {"bench-beat"}, "ip": {ip}, "port": {"8080"},
			"beat": {fmt.Sprintf(`{"ip":%q,"port":8080,"serviceName":"DEFAULT_GROUP@@bench-beat","cluster":"DEFAULT","weight":1.0,"metadata":{}}`, ip)},
		}
		return func(int) url.Values { return params }
	})
}

// mixedLoad is what a fleet does all at once. Of ten connections three look up over
// gRPC, two change their instance, one subscribes and ends that, and four are of HTTP:
// two that send heartbeats, one that registers and one that looks up.
func mixedLoad(ctx context.Context, cfg Config) (*load, error) {
	mixed := &load{close: func() {}}
	for _, part := range []struct {
		what    string
		share   int
		prepare func(context.Context, Config) (*load, error)
	}{
		{"query", 3, queryLoad},
		{"register", 2, registerLoad(true)},
		{"subscribe", 1, subscribeLoad},
		{"beat", 2, beatLoad},
		{"http-register", 1, httpRegisterLoad("true")},
		{"list", 1, listLoad},
	} {
		own := cfg
		own.Connections = max(1, cfg.Connections*part.share/10)
		l, err := part.prepare(ctx, own)
		if err != nil {
			mixed.close()
			return nil, fmt.Errorf("%s: %w", part.what, err)
		}
		for _, w := range l.workers {
			mixed.workers = append(mixed.workers, worker{part.what, w.call})
		}
		rest := mixed.close
		mixed.close = func() {
			l.close()
			rest()
		}
	}
	return mixed, nil
}
