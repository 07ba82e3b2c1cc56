package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

// A query that is reading while its view is dropped must not get a time that a
// view made after the drop gives again.
func TestViews_TimesRiseWhenDroppedWhileRead(t *testing.T) {
	b := newTable()
	vs := b.views()
	seen := int64(0)
	for n := range 10_000 { // times run ahead of the clock
		b.set(service("a"), weighted(float64(n%2)))
		vs.changed(service("a"))
		seen = vs.get(service("a"), naming.Filter{}).LastRefTimeMs
	}
	require.Greater(t, seen, time.Now().UnixMilli())

	reading, release := make(chan struct{}), make(chan struct{})
	b.hook(func(naming.ServiceKey) { close(reading); <-release })
	b.set(service("a"), weighted(2))
	vs.changed(service("a"))
	oldCh, newCh := make(chan *naming.ServiceInfo, 1), make(chan *naming.ServiceInfo, 1)
	go func() { oldCh <- vs.get(service("a"), naming.Filter{}) }()
	<-reading
	b.hook(nil)
	b.set(service("a"), weighted(3))
	dropped := make(chan struct{})
	go func() {
		defer close(dropped)
		vs.drop(service("a"))
	}()
	go func() {
		select { // after the drop has begun
		case <-dropped:
		case <-time.After(20 * time.Millisecond):
		}
		newCh <- vs.get(service("a"), naming.Filter{})
	}()
	select {
	case info := <-newCh:
		newCh <- info
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	<-dropped
	before, after := <-oldCh, <-newCh
	require.Greater(t, before.LastRefTimeMs, seen)
	require.InDelta(t, 3, after.Hosts[0].Weight, 0)
	require.Greater(t, after.LastRefTimeMs, before.LastRefTimeMs)
}
