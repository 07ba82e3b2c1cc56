package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

// fakeLink is a server that does what it is told to.
type fakeLink struct {
	mu     sync.Mutex
	calls  []string
	err    error
	blocks bool // until the call's time is over
	doubts int
}

func (l *fakeLink) do(ctx context.Context, format string, args ...any) error {
	l.mu.Lock()
	l.calls = append(l.calls, fmt.Sprintf(format, args...))
	err, blocks := l.err, l.blocks
	l.mu.Unlock()
	if blocks {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (l *fakeLink) publish(ctx context.Context, svc naming.ServiceKey, list []naming.Instance) error {
	return l.do(ctx, "publish %s %d", svc.Name, len(list))
}

func (l *fakeLink) withdraw(ctx context.Context, svc naming.ServiceKey, list []naming.Instance) error {
	return l.do(ctx, "withdraw %s %d", svc.Name, len(list))
}

func (l *fakeLink) follow(ctx context.Context, e *entry) error {
	err := l.do(ctx, "follow %s", e.key.Name)
	if err == nil {
		e.answer(&Service{Key: e.key, LastRefTimeMs: 1}, 1, e.mark())
	}
	return err
}

func (l *fakeLink) unfollow(ctx context.Context, svc naming.ServiceKey) error {
	return l.do(ctx, "unfollow %s", svc.Name)
}

func (l *fakeLink) watch(ctx context.Context, p *pattern) error { return l.do(ctx, "watch %s", p.key) }

func (l *fakeLink) unwatch(ctx context.Context, p *pattern) error {
	return l.do(ctx, "unwatch %s", p.key)
}

func (l *fakeLink) doubtful(error) { // called under a lock of the keeper
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubts++
}

// took returns the calls since the last time, sorted.
func (l *fakeLink) took() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := l.calls
	l.calls = nil
	slices.Sort(calls)
	return calls
}

func (l *fakeLink) set(err error, blocks bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.blocks = err, blocks
}

// inBubble runs a test with a keeper that has no link.
func inBubble(t *testing.T, test func(t *testing.T, k *keeper)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		k := newKeeper(cfg, slog.New(slog.DiscardHandler), newCache(cfg, newDelivery()), newMetrics())
		k.start()
		test(t, k)
		k.close()
		k.cache.close()
	})
}

func key(name string) naming.ServiceKey {
	return naming.ServiceKey{Namespace: "public", Group: "g", Name: name}
}

// put registers n instances in a service.
func (k *keeper) put(ctx context.Context, name string, n int) error {
	return k.change(ctx, key(name), func([]naming.Instance) []naming.Instance {
		list := make([]naming.Instance, n)
		for p := range list {
			list[p] = naming.NewInstance("10.0.0.1", p+1)
		}
		return list
	})
}

func TestKeeper_ReplaysAtOnceOnEachLink(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, k.put(ctx, "a", 1), context.DeadlineExceeded)
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		go func() { _ = k.put(t.Context(), "b", 2) }()
		go func() { _, _ = k.subscribe(t.Context(), key("c")) }()
		go func() { _, _ = k.watch(t.Context(), patternKey{"public", "*", "*"}) }()
		synctest.Wait()
		want := []string{"follow c", "publish a 1", "publish b 2", "watch public>>*>>*"}
		for range 3 {
			l := new(fakeLink)
			k.connected(l)
			require.Equal(t, want, l.took(), "no time has passed")
			time.Sleep(time.Hour / 100)
			require.Empty(t, l.took(), "nothing is sent twice")
			k.disconnected()
		}
		l := new(fakeLink)
		k.connected(l)
		l.took()
		time.Sleep(fullSync)
		require.Equal(t, []string{"watch public>>*>>*"}, l.took(), "compared from time to time")
		require.NoError(t, k.withdrawAll(t.Context()))
		require.Equal(t, []string{"withdraw a 1", "withdraw b 2"}, l.took())
		registrations, subscriptions, unmet := k.counts()
		require.Equal(t, []int{0, 1, 0}, []int{registrations, subscriptions, unmet})
	})
}

func TestKeeper_FailuresArePausedAndRefusalsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		l := &fakeLink{err: errors.New("no answer")}
		k.connected(l)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := k.put(ctx, "a", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "no answer", "it tells why")
		n := len(l.took())
		require.Greater(t, n, 5)
		require.Less(t, n, 25, "pauses grow to two seconds")
		require.Equal(t, n, l.doubts)
		l.set(nil, false)
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"publish a 1"}, l.took())

		refusal := &ServerError{Code: 400, Message: "no"}
		l.set(refusal, false)
		require.ErrorIs(t, k.put(t.Context(), "a", 2), error(refusal))
		require.ErrorIs(t, k.put(t.Context(), "b", 1), error(refusal))
		l.took()
		l.set(nil, false)
		k.disconnected()
		k.connected(l)
		require.Equal(t, []string{"publish a 1"}, l.took(), "what was accepted is kept, what was refused is not wanted")

		// What a server has taken is tried again when another one refuses it.
		l.set(refusal, false)
		k.disconnected()
		k.connected(l)
		time.Sleep(time.Minute)
		require.Greater(t, len(l.took()), 20)
		l.set(nil, false)
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"publish a 1"}, l.took())
	})
}

func TestKeeper_CallsThatHang(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		l := new(fakeLink)
		k.connected(l)
		require.NoError(t, k.put(t.Context(), "a", 1))
		l.took()
		l.set(nil, true)
		began := time.Now()
		settled, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _ = k.put(t.Context(), "a", 0) }()
		require.Equal(t, []string{"withdraw a 1"}, l.took())
		k.settle(settled)
		require.Equal(t, time.Second, time.Since(began), "it waits for the call")
		next := new(fakeLink)
		k.connected(next)
		require.Equal(t, []string{"withdraw a 1"}, next.took(), "what was cut off is finished on the next link")
		k.settle(t.Context())
		time.Sleep(time.Minute)
		require.Empty(t, next.took(), "the late end of the hanging call means nothing")
		require.Empty(t, k.registrations)
	})
}

func TestKeeper_ManyWaitForOneService(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		l := new(fakeLink)
		errs := make(chan error, 100)
		for n := range 100 {
			go func() {
				errs <- k.change(t.Context(), key("a"), func(list []naming.Instance) []naming.Instance {
					return put(list, naming.NewInstance("10.0.0.1", n))
				})
			}()
		}
		synctest.Wait()
		k.connected(l)
		for range 100 {
			require.NoError(t, <-errs)
		}
		require.Equal(t, []string{"publish a 100"}, l.took(), "one call for all")
		require.NoError(t, k.put(t.Context(), "a", 0))
		require.Equal(t, []string{"withdraw a 100"}, l.took())
		require.ErrorIs(t, func() error { k.close(); return k.put(t.Context(), "a", 1) }(), ErrClosed)
	})
}
