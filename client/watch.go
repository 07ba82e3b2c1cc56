package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"rollcall/naming"
	"rollcall/server/wire"
)

// Names of fuzzy watch (grpc.md 3.11).
const (
	typeFuzzyWatch  = "NamingFuzzyWatchRequest"
	typeFuzzySync   = "NamingFuzzyWatchSyncRequest"
	typeFuzzyChange = "NamingFuzzyWatchChangeNotifyRequest"
	typeFuzzyAck    = "NamingFuzzyWatchChangeNotifyResponse"

	fuzzyWatchOn     = "WATCH"
	fuzzyWatchOff    = "CANCEL_WATCH"
	fuzzyFinished    = "FINISH_FUZZY_WATCH_INIT_NOTIFY"
	fuzzyDiff        = "FUZZY_WATCH_DIFF_SYNC_NOTIFY"
	fuzzyDeleted     = "DELETE_SERVICE"
	codeFuzzyMatches = 50311 // more services match than the server tells; it tells as many as it may
)

// fullSync is how often a watch is compared with the server (C20).
const fullSync = 3 * time.Minute

// ServicesChange is what happened to the services that a watch matches. Its slices are
// sorted, and shared: do not alter them.
type ServicesChange struct {
	Services []naming.ServiceKey // all that there are now
	// Added and Removed are the difference to what the watch was told before.
	Added, Removed []naming.ServiceKey
}

// Watch is the interest in the services whose names match a pattern. Its methods are
// safe for concurrent use.
type Watch struct {
	client  *Client
	pattern *pattern
	fn      func(ServicesChange)
	turn    turn

	mu     sync.Mutex
	told   bool
	seen   []naming.ServiceKey
	closed bool
}

// Watch calls fn with the services that match now, once the server has told all of them,
// and after each change, with the difference. A service is there while it has an
// instance. group and service are patterns: text, or text with a * before it, after it or
// both, or * alone, which an empty one stands for as well.
//
// It blocks until a server has accepted it, or ctx ends. It lasts until its Close or the
// client's, through disconnects. fn is called as [Client.Subscribe] says. A server that
// does not offer it (before 3.0, and with [ModeHTTP]) gives [ErrUnsupported], one that
// watches too many patterns a [*ServerError]; a server may tell no more than some hundred
// services of one pattern, which is logged.
func (c *Client) Watch(ctx context.Context, group, service string, fn func(ServicesChange)) (*Watch, error) {
	if fn == nil {
		return nil, errors.New("watch: fn is nil; pass a function")
	}
	for _, p := range []*string{&group, &service} {
		if *p == "" {
			*p = "*"
		}
		if strings.Contains(*p, ">>") || strings.Contains(strings.TrimSuffix(strings.TrimPrefix(*p, "*"), "*"), "*") {
			return nil, fmt.Errorf("watch: pattern is %q: a * may stand at its ends only", *p)
		}
	}
	w := &Watch{client: c, fn: fn}
	var err error
	if w.pattern, err = c.keep.watch(ctx, patternKey{c.cfg.Namespace, group, service}); err != nil {
		return nil, fmt.Errorf("watch %s in %s: %w", service, group, err)
	}
	w.pattern.attach(w)
	return w, nil
}

// Close ends the watch. It does not block; a callback that is running goes on to its end,
// and none begins after it.
func (w *Watch) Close() {
	w.mu.Lock()
	closed := w.closed
	w.closed = true
	w.mu.Unlock()
	if !closed {
		w.pattern.detach(w)
		w.client.keep.unwatch(w.pattern)
	}
}

func (w *Watch) place() *turn { return &w.turn }

// tell delivers the newest services if they differ from what was told.
func (w *Watch) tell() {
	now, ready := w.pattern.list()
	w.mu.Lock()
	change := ServicesChange{Services: now}
	change.Added, change.Removed = diffKeys(w.seen, now)
	if w.closed || !ready || w.told && len(change.Added)+len(change.Removed) == 0 {
		w.mu.Unlock()
		return
	}
	w.told, w.seen = true, now
	w.mu.Unlock()
	w.fn(change)
}

// diffKeys compares two sorted lists.
func diffKeys(before, after []naming.ServiceKey) (added, removed []naming.ServiceKey) {
	for len(before) > 0 && len(after) > 0 {
		switch order := before[0].Compare(after[0]); {
		case order < 0:
			removed = append(removed, before[0])
			before = before[1:]
		case order > 0:
			added = append(added, after[0])
			after = after[1:]
		default:
			before, after = before[1:], after[1:]
		}
	}
	return append(added, after...), append(removed, before...)
}

// patternKey names a pattern.
type patternKey struct{ namespace, group, service string }

// String returns the pattern as it travels.
func (k patternKey) String() string { return k.namespace + ">>" + k.group + ">>" + k.service }

// matches tells whether the pattern has a service.
func (k patternKey) matches(svc naming.ServiceKey) bool {
	return svc.Namespace == k.namespace && matches(k.group, svc.Group) && matches(k.service, svc.Name)
}

func matches(pattern, text string) bool {
	rest, before := strings.CutPrefix(pattern, "*")
	if pattern == "*" {
		return true
	}
	rest, after := strings.CutSuffix(rest, "*")
	switch {
	case before && after:
		return strings.Contains(text, rest)
	case before:
		return strings.HasSuffix(text, rest)
	case after:
		return strings.HasPrefix(text, rest)
	}
	return text == pattern
}

// pattern is what the client knows of the services that a pattern has.
type pattern struct {
	key     patternKey
	deliver *delivery
	hold    time.Duration

	mu       sync.Mutex
	services map[naming.ServiceKey]struct{}
	sorted   []naming.ServiceKey // nil: to be made anew
	ready    bool                // the server has told all that there are
	session  uint64              // the connection that told last
	watches  []*Watch
	// For a while after a reconnect what the server says is gone stays.
	gone    map[naming.ServiceKey]struct{}
	release *time.Timer // nil: no hold
}

func newPattern(key patternKey, cfg Config, d *delivery) *pattern {
	return &pattern{key: key, deliver: d, hold: cfg.Hold, services: make(map[naming.ServiceKey]struct{})}
}

func (p *pattern) attach(w *Watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches = append(p.watches, w)
	p.deliver.wake(w)
}

func (p *pattern) detach(w *Watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches = slices.DeleteFunc(p.watches, func(o *Watch) bool { return o == w })
}

// close stops the timer.
func (p *pattern) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.release != nil {
		p.release.Stop()
		p.release = nil
	}
}

// list returns the services, sorted, and whether they are all.
func (p *pattern) list() ([]naming.ServiceKey, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sorted == nil {
		p.sorted = make([]naming.ServiceKey, 0, len(p.services))
		for k := range p.services {
			p.sorted = append(p.sorted, k)
		}
		slices.SortFunc(p.sorted, naming.ServiceKey.Compare)
	}
	return p.sorted, p.ready
}

// begin follows the server's acceptance of the watch over a session.
func (p *pattern) begin(session uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != 0 && session > p.session && p.hold > 0 {
		if p.release != nil {
			p.release.Stop()
		}
		p.gone = make(map[naming.ServiceKey]struct{})
		p.release = time.AfterFunc(p.hold, p.endHold)
	}
	p.session = max(p.session, session)
}

// endHold believes what has not come back by now to be gone.
func (p *pattern) endHold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.release == nil {
		return
	}
	p.release = nil
	for k := range p.gone {
		delete(p.services, k)
	}
	p.gone = nil
	p.wakeLocked()
}

// take takes what the server tells of services.
func (p *pattern) take(session uint64, added, removed []naming.ServiceKey, finished bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if session < p.session {
		return // of a connection that has been replaced
	}
	for _, k := range added {
		p.services[k] = struct{}{}
		delete(p.gone, k)
	}
	for _, k := range removed {
		if _, ok := p.services[k]; ok && p.release != nil {
			p.gone[k] = struct{}{}
			continue
		}
		delete(p.services, k)
	}
	p.ready = p.ready || finished
	p.wakeLocked()
}

func (p *pattern) wakeLocked() {
	p.sorted = nil
	for _, w := range p.watches {
		p.deliver.wake(w)
	}
}

// keys returns the services as a request to watch names them, without those that are
// held though the server has said that they are gone.
func (p *pattern) keys() (keys []string, ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys = []string{}
	for k := range p.services {
		if _, gone := p.gone[k]; !gone {
			keys = append(keys, k.Namespace+naming.Separator+k.Group+naming.Separator+k.Name)
		}
	}
	return keys, p.ready
}

// watch asks for a pattern, with what is known of it.
func (s *session) watch(ctx context.Context, p *pattern) error {
	if !s.abilities[abilityFuzzyWatch] {
		return ErrUnsupported
	}
	p.begin(s.number)
	keys, ready := p.keys()
	err := s.fuzzy(ctx, p, request{"watchType": fuzzyWatchOn, "initializing": !ready, "receivedGroupKeys": keys})
	if refusal := (*ServerError)(nil); errors.As(err, &refusal) && refusal.Code == codeFuzzyMatches {
		s.log.Warn("more services match the watch than the server tells", "pattern", p.key.String(), "err", err)
		return nil
	}
	return err
}

func (s *session) unwatch(ctx context.Context, p *pattern) error {
	if !s.abilities[abilityFuzzyWatch] {
		return nil
	}
	return s.fuzzy(ctx, p, request{"watchType": fuzzyWatchOff, "initializing": false, "receivedGroupKeys": []string{}})
}

func (s *session) fuzzy(ctx context.Context, p *pattern, q request) error {
	q["namespace"], q["groupKeyPattern"], q["module"] = p.key.namespace, p.key.String(), "naming"
	_, err := s.call(ctx, typeFuzzyWatch, q)
	return err
}

// watched takes what a server tells of watched services.
func (c *Client) watched(number uint64, typ string, body []byte) error {
	type change struct {
		Service wire.Str `json:"serviceKey"`
		Type    wire.Str `json:"changedType"`
	}
	var told struct {
		Sync     wire.Str `json:"syncType"`
		Pattern  wire.Str `json:"groupKeyPattern"`
		Contexts []change `json:"contexts"`
		change
	}
	if err := wire.Unmarshal(body, &told); err != nil {
		return err
	}
	changes := told.Contexts
	if typ == typeFuzzyChange {
		changes = []change{told.change}
	}
	var added, removed []naming.ServiceKey
	for _, ch := range changes {
		key, err := watchedKey(string(ch.Service))
		switch {
		case err != nil:
			return err
		case ch.Type == fuzzyDeleted:
			removed = append(removed, key)
		default:
			added = append(added, key)
		}
	}
	only := func(p *pattern, keys []naming.ServiceKey) []naming.ServiceKey {
		return slices.DeleteFunc(slices.Clone(keys), func(k naming.ServiceKey) bool { return !p.key.matches(k) })
	}
	for _, p := range c.keep.patterns() {
		switch {
		case typ == typeFuzzyChange: // a service belongs to any number of patterns
			if a, r := only(p, added), only(p, removed); len(a)+len(r) > 0 {
				p.take(number, a, r, false)
			}
		case string(told.Pattern) == p.key.String():
			p.take(number, added, removed, told.Sync == fuzzyFinished)
		}
	}
	return nil
}

// watchedKey reads namespace@@group@@service.
func watchedKey(text string) (naming.ServiceKey, error) {
	parts := strings.SplitN(text, naming.Separator, 3)
	if len(parts) != 3 {
		return naming.ServiceKey{}, fmt.Errorf("serviceKey is %q: it must be namespace@@group@@service", clip([]byte(text)))
	}
	return naming.ServiceKey{Namespace: parts[0], Group: parts[1], Name: parts[2]}, nil
}

// watch counts one more user of a pattern and blocks until a server has accepted it.
func (k *keeper) watch(ctx context.Context, key patternKey) (*pattern, error) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil, ErrClosed
	}
	x := k.watches[key]
	if x == nil {
		x = &kept{pattern: newPattern(key, k.cfg, k.cache.deliver), pauses: backoff{min: k.cfg.BackoffMin, max: k.cfg.BackoffMax}}
		x.online = k.link != nil
		k.watches[key] = x
		p := x.pattern
		x.repeat = time.AfterFunc(fullSync, func() { k.compare(p) })
	}
	x.users++
	next := stepNone
	if !x.want {
		next = x.register()
	}
	w := k.awaitLocked(x)
	k.doLocked(x, next)
	k.mu.Unlock()
	if err := k.wait(ctx, x, w); err != nil {
		k.unwatch(x.pattern)
		return nil, err
	}
	return x.pattern, nil
}

// unwatch counts one user less; with the last one the watch ends.
func (k *keeper) unwatch(p *pattern) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.watches[p.key]
	if x == nil || x.pattern != p {
		return
	}
	if x.users--; x.users <= 0 && x.want && !k.closed {
		k.doLocked(x, x.deregister())
	}
}

// compare asks for a pattern again, with what is known of it.
func (k *keeper) compare(p *pattern) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if x := k.watches[p.key]; x != nil && x.pattern == p && !k.closed {
		x.repeat.Reset(fullSync)
		k.doLocked(x, x.doubt())
	}
}

// patterns returns all patterns that are watched.
func (k *keeper) patterns() []*pattern {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]*pattern, 0, len(k.watches))
	for _, x := range k.watches {
		out = append(out, x.pattern)
	}
	return out
}
