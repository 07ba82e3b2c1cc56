package compat

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every word in the recordings has a reading, in and out of reach.
func TestReadings_CoverAllWords(t *testing.T) {
	g := loadGolden(t)
	for _, r := range g.recordings {
		for _, scenario := range r.Scenarios {
			_, err := NewScript(g.recordings, g.readings, r.Group, r.Version, scenario)
			if err != nil {
				t.Error(err)
			}
		}
	}
	for name := range g.readings.Scenarios {
		found := false
		for _, r := range g.recordings {
			for _, s := range r.Scenarios {
				found = found || name == r.Group+"/"+s.Name || name == r.Group+"/"+s.Name+"@"+r.Version
			}
		}
		require.True(t, found, "a reading of %s, which there is not", name)
	}
}
