package compat

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"rollcall/integration"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Nearly all of a replay is waiting, so many scenarios go side by side unless
	// the command line says otherwise.
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", "256")
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		integration.RemoveBinary()
		os.Exit(code)
	}))
}

// ownGroups change or count something over the whole server: each has a node to
// itself, and its scenarios run in their order.
func ownGroups() map[string]bool {
	return map[string]bool{"http-switches": true, "http-prometheus": true, "grpc-fuzzy-limits": true}
}

// golden is all that a replay needs.
type golden struct {
	recordings []Recording
	readings   Readings
	reach      Reach
}

func loadGolden(t *testing.T) golden {
	t.Helper()
	recordings, err := LoadRecordings("testdata")
	require.NoError(t, err)
	readings, err := LoadReadings(filepath.Join("testdata", "readings.json"))
	require.NoError(t, err)
	reach, err := LoadReach(filepath.Join("testdata", "reach.json"), recordings)
	require.NoError(t, err)
	return golden{recordings, readings, reach}
}

// playedAs names the earlier version whose recording of the same requests
// stands for this one, "" if there is none: either answer will do, so one
// replay is enough.
func (g golden) playedAs(version, group string, scenario Scenario) string {
	for _, r := range g.recordings {
		if r.Group != group || r.Version >= version {
			continue
		}
		if other, ok := find(g.recordings, group, r.Version, scenario.Name); ok && sameRequests(scenario, other) {
			return r.Version
		}
	}
	return ""
}

// TestGolden plays what was recorded of real servers against a node. The
// subtests are group/version/scenario.
//
//	ROLLCALL_TEST_ADDR=host:port  plays against a running node
//	ROLLCALL_TEST_OWN=1           that node may also be used by the groups that change the whole server
//	ROLLCALL_BINARY=path          starts this binary instead of building one
//	COMPAT_ALL=1                  plays both versions where one stands for the other
//	COMPAT_CHECK_STALE=1          also plays what is out of reach; what passes by now is a failure
func TestGolden(t *testing.T) {
	g := loadGolden(t)
	shared := nodeAddr(t)
	for _, recording := range g.recordings {
		t.Run(recording.Group, func(t *testing.T) {
			if !ownGroups()[recording.Group] {
				t.Parallel()
				t.Run(recording.Version, func(t *testing.T) {
					t.Parallel()
					g.playGroup(t, recording, shared, true)
				})
				return
			}
			given := os.Getenv("ROLLCALL_TEST_ADDR") != ""
			if !given {
				t.Parallel()
			}
			t.Run(recording.Version, func(t *testing.T) {
				if given && os.Getenv("ROLLCALL_TEST_OWN") != "1" {
					t.Skip("needs a node of its own")
				}
				if !g.anyPlayed(recording) {
					t.Skip("out of reach: " + g.reach.Groups[recording.Group])
				}
				g.playGroup(t, recording, nodeAddr(t), false)
			})
		})
	}
}

// anyPlayed reports whether a node is needed at all.
func (g golden) anyPlayed(recording Recording) bool {
	return os.Getenv("COMPAT_CHECK_STALE") == "1" || slices.ContainsFunc(recording.Scenarios, func(s Scenario) bool {
		reason, _ := g.reach.Reason(recording.Group, recording.Version, s.Name)
		return reason == ""
	})
}

func (g golden) playGroup(t *testing.T, recording Recording, target Target, parallel bool) {
	t.Helper()
	for _, scenario := range recording.Scenarios {
		if os.Getenv("COMPAT_ALL") != "1" && g.playedAs(recording.Version, recording.Group, scenario) != "" {
			continue
		}
		t.Run(scenario.Name, func(t *testing.T) {
			script, err := NewScript(g.recordings, g.readings, recording.Group, recording.Version, scenario)
			require.NoError(t, err)
			reason, byName := g.reach.Reason(recording.Group, recording.Version, scenario.Name)
			if reason != "" && os.Getenv("COMPAT_CHECK_STALE") != "1" {
				t.Skip("out of reach: " + reason)
			}
			if parallel {
				t.Parallel()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			err = NewPlayer(target).Play(ctx, script)
			switch {
			case reason == "":
				if err != nil {
					t.Error(err)
				}
			case err != nil:
				t.Skipf("out of reach: %s\n%v", reason, err)
			case byName:
				t.Errorf("%s passes: take it out of testdata/reach.json (%s)", script.Name(), reason)
			default:
				t.Logf("%s passes, though its group is out of reach (%s)", script.Name(), reason)
			}
		})
	}
}
