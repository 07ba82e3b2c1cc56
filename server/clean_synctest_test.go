package server

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

// listed tells whether a service is listed.
func (f *fixture) listed(k naming.ServiceKey) bool {
	names, _, _ := f.ServicePage(k.Namespace, k.Group, "", 1, 1000)
	_, ok := f.Service(k)
	return ok && slices.Contains(names, k.Name)
}

func TestEmptyService_ListedUntilItIsCleaned(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
		pass(time.Hour)
		require.True(t, f.listed(service("a")))
		require.NoError(t, f.Deregister(t.Context(), service("a"), "conn", true, naming.InstanceKey{}))
		pass(59900 * ms)
		require.True(t, f.listed(service("a")))
		require.Equal(t, 1, f.Counts().Services)
		s, _ := f.Service(service("a"))
		require.Equal(t, naming.Service{Key: service("a")}, s)
		pass(200 * ms)
		require.False(t, f.listed(service("a")))
		require.Zero(t, f.Counts().Services)
		require.Empty(t, f.empty.since)
	})
}

func TestEmptyService_RegistrationResets(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.CreateService(t.Context(), service("a"), naming.Settings{Kind: naming.KindEphemeral}))
		for range 5 {
			pass(50 * time.Second)
			require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
			pass(30 * time.Second)
			require.NoError(t, f.Deregister(t.Context(), service("a"), "conn", true, naming.InstanceKey{}))
			require.True(t, f.listed(service("a")))
		}
		pass(59 * time.Second)
		require.True(t, f.listed(service("a")))
		pass(2 * time.Second)
		require.False(t, f.listed(service("a")))
	})
}

func TestEmptyService_SettingsAndOverridesGoWithIt(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.CreateService(t.Context(), service("a"), naming.Settings{Kind: naming.KindPersistent}))
		require.NoError(t, f.CreateService(t.Context(), service("b"), naming.Settings{Kind: naming.KindPersistent}))
		f.register(t, service("b"), host("10.0.0.1", persistent))
		f.override(t, service("b"), "10.0.0.1", 5)
		pass(40 * time.Second)
		require.NoError(t, f.UpdateService(t.Context(), service("a"), naming.Settings{ProtectThreshold: 1}))
		pass(30 * time.Second)
		require.False(t, f.listed(service("a")), "written settings are no instance")
		require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")), "nor has it a kind now")
		pass(time.Hour)
		require.True(t, f.listed(service("b")))
		s, _ := f.Service(service("b"))
		require.NotNil(t, s.Settings)
		require.NoError(t, f.Deregister(t.Context(), service("b"), "10.0.0.1:80", false, naming.InstanceKey{}))
		pass(61 * time.Second)
		require.False(t, f.listed(service("b")))
		st, _ := f.router.Stat(service("b"))
		require.Equal(t, consistency.Stat{}, st)
	}, func(c *Config) { c.KeepOverrides, c.OverrideExpiry = true, time.Hour })
}

func TestEmptyService_TriedAgainWhenItCannotBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.CreateService(t.Context(), service("a"), naming.Settings{}))
		pass(30 * time.Second)
		f.persistent.Fail(consistency.ErrNoLeader)
		pass(5 * time.Minute)
		require.True(t, f.listed(service("a")))
		f.persistent.Fail(nil)
		pass(61 * time.Second)
		require.False(t, f.listed(service("a")))
	})
}

func TestEmptyService_DeletedByHandBefore(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.CreateService(t.Context(), service("a"), naming.Settings{}))
		pass(30 * time.Second)
		require.NoError(t, f.DeleteService(t.Context(), service("a")))
		require.False(t, f.listed(service("a")))
		require.NoError(t, f.CreateService(t.Context(), service("a"), naming.Settings{}))
		pass(45 * time.Second)
		require.True(t, f.listed(service("a")), "it is another one")
		pass(16 * time.Second)
		require.False(t, f.listed(service("a")))
	})
}

func TestEmptyService_FromTheDisk(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.CreateService(t.Context(), service("empty"), naming.Settings{}))
		f.register(t, service("full"), host("10.0.0.1", persistent))
		next := f.reopen(t)
		next.begin(t)
		require.True(t, next.listed(service("empty")))
		pass(61 * time.Second)
		require.False(t, next.listed(service("empty")))
		require.True(t, next.listed(service("full")))
		require.NoError(t, next.Deregister(t.Context(), service("full"), "10.0.0.1:80", false, naming.InstanceKey{}))
		require.True(t, next.listed(service("full")))
		pass(61 * time.Second)
		require.False(t, next.listed(service("full")))
	})
}

func TestCleaner_AFullQueueIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		release := make(chan struct{})
		ran := 0
		f.later(func(context.Context) { <-release })
		pass(0)
		for range cleanQueue + 10 {
			f.later(func(ctx context.Context) {
				ran++
				deadline, ok := ctx.Deadline()
				require.True(t, ok)
				require.LessOrEqual(t, time.Until(deadline), cleanTimeout)
			})
		}
		pass(10 * time.Second)
		require.Zero(t, ran)
		close(release)
		pass(2 * time.Second)
		require.Equal(t, cleanQueue+10, ran)
	})
}

func TestRegistry_CloseWhileTheCleanerHasWork(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		ended := false
		f.later(func(ctx context.Context) {
			<-ctx.Done() // a write that finds no leader
			ended = true
		})
		f.later(func(context.Context) { t.Error("not begun after the close") })
		pass(time.Second)
		start := time.Now()
		require.NoError(t, f.close())
		require.True(t, ended)
		require.Zero(t, time.Since(start))
	})
}
