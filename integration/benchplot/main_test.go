package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const output = `goos: linux
BenchmarkGrowth/instances=1000/register-2         	   47898	      2590 ns/op	     647 B/instance	      14 allocs/op
BenchmarkGrowth/instances=1000/register-2         	   47898	      2000 ns/op	     640 B/instance	      14 allocs/op
BenchmarkGrowth/instances=1000/register-2         	   47898	      9000 ns/op	     650 B/instance	      14 allocs/op
BenchmarkGrowth/instances=10000/register-2        	   47898	      2600 ns/op	     648 B/instance	      14 allocs/op
BenchmarkGrowth/members=1/list-2                  	   49184	      2691 ns/op	      2691 ns/member
BenchmarkGrowth/members=100/list-2                	   49184	      26910 ns/op	      269.1 ns/member
PASS
`

func TestRun_KeepsAndDraws(t *testing.T) {
	kept, drawn := filepath.Join(t.TempDir(), "growth.json"), filepath.Join(t.TempDir(), "growth.svg")
	require.NoError(t, run(kept, "", strings.NewReader(output)))
	b, err := os.ReadFile(kept)
	require.NoError(t, err)
	var results []result
	require.NoError(t, json.Unmarshal(b, &results))
	require.Equal(t, []result{
		{"instances", 1000, "register", map[string]float64{"ns/op": 2590, "B/instance": 647, "allocs/op": 14}},
		{"instances", 10000, "register", map[string]float64{"ns/op": 2600, "B/instance": 648, "allocs/op": 14}},
		{"members", 1, "list", map[string]float64{"ns/op": 2691, "ns/member": 2691}},
		{"members", 100, "list", map[string]float64{"ns/op": 26910, "ns/member": 269.1}},
	}, results)
	require.NoError(t, run("", drawn, bytes.NewReader(b)))
	svg, err := os.ReadFile(drawn)
	require.NoError(t, err)
	require.Contains(t, string(svg), "<svg")
	require.Contains(t, string(svg), "instances on the node")
}

func TestRun_Refuses(t *testing.T) {
	require.ErrorContains(t, run("", "", nil), "give one of")
	require.ErrorContains(t, run("x", "y", nil), "give one of")
	require.ErrorContains(t, run(filepath.Join(t.TempDir(), "x"), "", strings.NewReader("ok")), "no results")
	require.ErrorContains(t, run("", filepath.Join(t.TempDir(), "x"), strings.NewReader("{")), "read results")
	require.ErrorContains(t, run("", filepath.Join(t.TempDir(), "x"), strings.NewReader("[]")), "two sizes")
}

// The page shows what is kept.
func TestRun_ThePlotIsOfTheKeptResults(t *testing.T) {
	kept, err := os.ReadFile("../../docs/benchmarks/growth.json")
	require.NoError(t, err)
	drawn := filepath.Join(t.TempDir(), "growth.svg")
	require.NoError(t, run("", drawn, bytes.NewReader(kept)))
	want, err := os.ReadFile("../../docs/benchmarks/growth.svg")
	require.NoError(t, err)
	got, err := os.ReadFile(drawn)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "make bench-growth")
}
