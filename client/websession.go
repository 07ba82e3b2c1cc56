package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"rollcall/naming"
	"rollcall/server/wire"
)

// Paths of the 1.x API (http.md 2, 6).
const (
	pathInstance = "/v1/ns/instance"
	pathList     = "/v1/ns/instance/list"
	pathBeat     = "/v1/ns/instance/beat"
	pathServices = "/v1/ns/service/list"
	pathMetrics  = "/v1/ns/operator/metrics"
)

// beatUnknown is the code of a server that does not know a beating instance (http.md
// 6.2).
const beatUnknown = 20404

// maxPollPause is the longest pause between polls that fail (C12).
const maxPollPause = time.Minute

// beatWorkers is how many heartbeats and polls are under way at once.
const beatWorkers = 4

// webSession is the tie to one server of 1.x. There is no connection: the session
// stands for the time in which the server answers. Instances live by heartbeats, lists
// come by polling and by datagrams.
type webSession struct {
	*life
	cfg      Config
	log      *slog.Logger
	web      *web
	auth     *auth
	lost     func(naming.ServiceKey) // the server does not know what was registered
	schedule *schedule
	udpPort  int          // 0: no pushes
	ip       string       // this end's address, towards the server
	hurried  atomic.Int32 // calm, hurried or hurriedAgain

	mu    sync.Mutex
	beats map[naming.ServiceKey]map[naming.InstanceKey]*beat
	polls map[naming.ServiceKey]*task
}

// beat keeps one instance alive.
type beat struct {
	session  *webSession
	svc      naming.ServiceKey
	instance naming.Instance
	task     *task
	light    bool // only its worker uses it
}

// openHTTP makes connections over HTTP.
func (c *Client) openHTTP() {
	c.connect.open = func(ctx context.Context, number uint64, to server) (connection, error) {
		s := &webSession{
			life: newLife(ctx, number, to), cfg: c.cfg, log: c.log.With("server", to.String()), web: c.web, auth: c.auth,
			lost: c.keep.lost, schedule: newSchedule(),
			beats: make(map[naming.ServiceKey]map[naming.InstanceKey]*beat), polls: make(map[naming.ServiceKey]*task),
		}
		if c.udp != nil {
			s.udpPort = c.udp.port()
			s.ip = localIP(ctx, to)
		}
		if err := s.health(ctx); err != nil {
			s.end(err)
			return nil, fmt.Errorf("connect to %s: %w", to, err)
		}
		s.schedule.start(beatWorkers)
		return s, nil
	}
}

// localIP returns the address that this machine has towards a server; empty if there
// is none.
func localIP(ctx context.Context, s server) string {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", s.address(0)) // sends nothing
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	ip, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	return ip
}

// broken is called when a server has ended an HTTP connection, as one that restarts
// does. It may have lost everything, so it is asked for all at once, and until that is
// done nobody is believed to be gone.
func (c *Client) broken() {
	s, ok := c.connect.current().(*webSession)
	if !ok {
		return
	}
	c.cache.holdAll()
	switch {
	case s.hurried.CompareAndSwap(calm, hurried):
		s.schedule.hurry(hurryTime)
		time.AfterFunc(hurryGap, func() {
			if s.hurried.Swap(calm) == hurriedAgain {
				c.broken()
			}
		})
	default:
		s.hurried.CompareAndSwap(hurried, hurriedAgain)
	}
}

// States of webSession.hurried.
const (
	calm = iota
	hurried
	hurriedAgain
)

// hurryTime is the time within which everything is asked after a server has ended an
// HTTP connection, and hurryGap the shortest time from one such time to the next.
const (
	hurryTime = 500 * time.Millisecond
	hurryGap  = time.Second
)

func (s *webSession) close() {
	s.end(ErrClosed)
	s.schedule.close()
}

// call makes a call with the user's token, once more after a new login if the server
// refuses the token.
func (s *webSession) call(ctx context.Context, method, path string, q url.Values, into any) error {
	err := s.web.call(ctx, s.server, method, path, q, s.auth.token(), into)
	var refusal *ServerError
	if errors.As(err, &refusal) && refusal.Code == codeForbidden && s.auth.again(ctx, s.server) == nil {
		err = s.web.call(ctx, s.server, method, path, q, s.auth.token(), into)
	}
	if err == nil || answered(err) {
		s.answered()
	}
	return err
}

func (s *webSession) health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HealthTimeout)
	defer cancel()
	var state struct {
		Status wire.Str `json:"status"`
	}
	err := s.call(ctx, http.MethodGet, pathMetrics, url.Values{}, &state)
	if err == nil && state.Status != "" && state.Status != "UP" {
		err = fmt.Errorf("the server says that it is %q", clip([]byte(state.Status)))
	}
	if refusal := (*ServerError)(nil); errors.As(err, &refusal) && refusal.Code >= http.StatusInternalServerError {
		err = errors.New(refusal.Error()) // no sign of health, though it is an answer
	}
	return err
}

// doubtful is called when a call failed; see link. A proxy answers for servers that are
// gone.
func (s *webSession) doubtful(err error) {
	if refusal := (*ServerError)(nil); errors.As(err, &refusal) && refusal.Code < http.StatusInternalServerError {
		return
	}
	s.suspect()
}

func serviceQuery(svc naming.ServiceKey) url.Values {
	return url.Values{"namespaceId": {svc.Namespace}, "groupName": {svc.Group}, "serviceName": {svc.Grouped()}}
}

// instanceQuery has what registers an instance; app, enable and cluster stand under the
// names of older servers too.
func instanceQuery(svc naming.ServiceKey, i naming.Instance) url.Values {
	q := serviceQuery(svc)
	setInstance(q, i)
	q.Set("enable", strconv.FormatBool(i.Enabled))
	return q
}

func (s *webSession) publish(ctx context.Context, svc naming.ServiceKey, list []naming.Instance) error {
	keep := make(map[naming.InstanceKey]bool, len(list))
	for _, i := range list {
		keep[i.Key()] = true
	}
	for _, b := range s.beatsOf(svc) {
		if !keep[b.instance.Key()] {
			if err := s.remove(ctx, b); err != nil {
				return err
			}
		}
	}
	for _, i := range list {
		if err := s.call(ctx, http.MethodPost, pathInstance, instanceQuery(svc, i), nil); err != nil {
			return err
		}
		s.beat(svc, i)
	}
	return nil
}

func (s *webSession) withdraw(ctx context.Context, svc naming.ServiceKey, list []naming.Instance) error {
	done := make(map[naming.InstanceKey]bool)
	for _, b := range s.beatsOf(svc) {
		if err := s.remove(ctx, b); err != nil {
			return err
		}
		done[b.instance.Key()] = true
	}
	for _, i := range list { // what a former session registered
		if done[i.Key()] {
			continue
		}
		if err := s.call(ctx, http.MethodDelete, pathInstance, instanceQuery(svc, i), nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *webSession) beatsOf(svc naming.ServiceKey) []*beat {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*beat, 0, len(s.beats[svc]))
	for _, b := range s.beats[svc] {
		out = append(out, b)
	}
	return out
}

// beat begins to keep an instance alive, one period from now.
func (s *webSession) beat(svc naming.ServiceKey, i naming.Instance) {
	b := &beat{session: s, svc: svc, instance: i}
	s.mu.Lock()
	of := s.beats[svc]
	if of == nil {
		of = make(map[naming.InstanceKey]*beat)
		s.beats[svc] = of
	}
	old := of[i.Key()]
	of[i.Key()] = b
	b.task = s.schedule.add(i.BeatInterval(s.cfg.BeatInterval), b.send)
	s.mu.Unlock()
	if old != nil {
		s.schedule.stop(old.task)
	}
}

// remove deregisters an instance. Its heartbeats end first: one of them would register
// it again.
func (s *webSession) remove(ctx context.Context, b *beat) error {
	s.schedule.stop(b.task)
	if err := s.call(ctx, http.MethodDelete, pathInstance, instanceQuery(b.svc, b.instance), nil); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.beats[b.svc]; of[b.instance.Key()] == b {
		delete(of, b.instance.Key())
		if len(of) == 0 {
			delete(s.beats, b.svc)
		}
	}
	return nil
}

// send sends one heartbeat and returns the time to the next (http.md 6).
func (b *beat) send(ctx context.Context) time.Duration {
	s, i := b.session, b.instance
	interval := i.BeatInterval(s.cfg.BeatInterval)
	q := serviceQuery(b.svc)
	q.Set("clusterName", i.Cluster)
	q.Set("ip", i.IP)
	q.Set("port", strconv.Itoa(i.Port))
	if !b.light {
		body, err := json.Marshal(map[string]any{
			"ip": i.IP, "port": i.Port, "cluster": i.Cluster, "weight": i.Weight, "metadata": i.Metadata,
			"serviceName": b.svc.Grouped(), "scheduled": false, "stopped": false, "period": interval.Milliseconds(),
		})
		if err != nil {
			s.log.Error("heartbeat cannot be encoded", "service", b.svc.Grouped(), "err", err)
			return interval
		}
		q.Set("beat", string(body))
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	var answer struct {
		IntervalMs wire.Int  `json:"clientBeatInterval"`
		Code       wire.Int  `json:"code"`
		Light      wire.Bool `json:"lightBeatEnabled"`
	}
	if err := s.call(ctx, http.MethodPut, pathBeat, q, &answer); err != nil {
		if s.ctx.Err() == nil {
			s.log.Warn("heartbeat failed", "service", b.svc.Grouped(), "instance", i.Key().Address(), "err", err)
			s.doubtful(err)
		}
		return min(interval, time.Second)
	}
	b.light = answer.Light.Value
	if answer.Code == beatUnknown {
		b.light = false
		s.log.Info("the server does not know the instance, it is registered again", "service", b.svc.Grouped(), "instance", i.Key().Address())
		s.lost(b.svc)
	}
	if d := time.Duration(answer.IntervalMs) * time.Millisecond; d > 0 {
		return max(d, minBeat)
	}
	return interval
}

// minBeat keeps a server's answer from making the client beat without end.
const minBeat = 100 * time.Millisecond

func (s *webSession) follow(ctx context.Context, e *entry) error {
	if err := s.poll(ctx, e); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polls[e.key] != nil {
		return nil
	}
	pauses := backoff{min: s.cfg.PollInterval, max: maxPollPause}
	s.polls[e.key] = s.schedule.add(s.cfg.PollInterval, func(ctx context.Context) time.Duration {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
		defer cancel()
		if err := s.poll(ctx, e); err != nil {
			if s.ctx.Err() == nil {
				s.log.Warn("poll failed", "service", e.key.Grouped(), "err", err)
				s.doubtful(err)
			}
			return pauses.next()
		}
		pauses.reset()
		return s.pollAfter(e)
	})
	return nil
}

// pollAfter returns the time to the next poll: before the server's lease of the
// subscription ends.
func (s *webSession) pollAfter(e *entry) time.Duration {
	cache := naming.DefaultBeatInterval
	if now := e.shown.Load(); now != nil && now.service.CacheMs > 0 {
		cache = time.Duration(now.service.CacheMs) * time.Millisecond
	}
	return min(max(cache*4/5, s.cfg.PollInterval), maxPollPause)
}

func (s *webSession) poll(ctx context.Context, e *entry) error {
	mark := e.mark()
	list, err := s.list(ctx, e.key, naming.Filter{}, s.udpPort, e)
	if err != nil {
		return err
	}
	e.answer(list, s.number, mark)
	return nil
}

// unfollow ends the polls; the server's subscription lapses without them.
func (s *webSession) unfollow(_ context.Context, svc naming.ServiceKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.polls[svc]; t != nil {
		s.schedule.stop(t)
		delete(s.polls, svc)
	}
	return nil
}

func (s *webSession) query(ctx context.Context, svc naming.ServiceKey, f naming.Filter) (*Service, error) {
	return s.list(ctx, svc, f, 0, nil)
}

func (s *webSession) list(ctx context.Context, svc naming.ServiceKey, f naming.Filter, udpPort int, e *entry) (*Service, error) {
	q := serviceQuery(svc)
	q.Set("clusters", f.Clusters)
	q.Set("healthyOnly", strconv.FormatBool(f.HealthyOnly))
	q.Set("udpPort", strconv.Itoa(udpPort))
	q.Set("clientIP", s.ip)
	q.Set("app", s.cfg.App)
	var body []byte
	if err := s.call(ctx, http.MethodGet, pathList, q, &body); err != nil {
		return nil, err
	}
	list, err := decodeService(body, func(string, string) *Service {
		if e == nil {
			return nil
		}
		return e.cache.known(svc)
	})
	if err != nil {
		return nil, fmt.Errorf("decode the list of %s: %w", svc.Grouped(), err)
	}
	list.Key = svc
	return list, nil
}

func (s *webSession) services(ctx context.Context, namespace, group string, page, size int) (names []string, count int, err error) {
	q := url.Values{"namespaceId": {namespace}, "groupName": {group}, "pageNo": {strconv.Itoa(page)}, "pageSize": {strconv.Itoa(size)}}
	var list struct {
		Count wire.Int   `json:"count"`
		Names []wire.Str `json:"doms"`
	}
	if err := s.call(ctx, http.MethodGet, pathServices, q, &list); err != nil {
		return nil, 0, err
	}
	names = make([]string, len(list.Names))
	for n, name := range list.Names {
		names[n] = string(name)
	}
	return names, int(list.Count), nil
}

func (s *webSession) persistent(ctx context.Context, operation string, svc naming.ServiceKey, i naming.Instance) error {
	method := http.MethodPost
	if operation == wire.DeregisterInstance {
		method = http.MethodDelete
	}
	return s.call(ctx, method, pathInstance, instanceQuery(svc, i), nil)
}

// watch is not part of the protocol.
func (s *webSession) watch(context.Context, *pattern) error { return ErrUnsupported }

func (s *webSession) unwatch(context.Context, *pattern) error { return nil }
