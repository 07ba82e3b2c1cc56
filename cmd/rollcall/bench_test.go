package main

import (
	"bytes"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"

	"rollcall/cmd/rollcall/internal/bench"
)

func TestBench_ShowsAllServersBesideEachOther(t *testing.T) {
	t.Parallel()
	times := []bench.Time{{What: "call", Mean: 1, P50: 1, P90: 2, P99: 3, P999: 4, Max: 5}}
	r := &bench.Result{Scenario: "query", Servers: []string{"a:8848"}, Calls: 100, Rate: 200, Times: times, CPU: 0.5, RSS: 30 << 20}
	require.Equal(t, `QUERY AT  CALLS  ERRORS  PER SECOND
a:8848    100    0       200

TIME (ms)  MEAN  P50   P90   P99   P99.9  MAX
call       1.00  1.00  2.00  3.00  4.00   5.00

the server used  0.50 cores, 30 MB
`, shown(t, r))

	r.Beside = []*bench.Result{{Scenario: "query", Servers: []string{"b:8848"}, Calls: 50, Errors: 1, Error: "refused", Rate: 100, Ratio: 2, Times: times}}
	r.Limit = &bench.Result{Scenario: "bare grpc server", Servers: []string{"127.0.0.1:1"}, Calls: 125, Rate: 250, Times: times}
	r.Ratio = 0.8
	require.Equal(t, `QUERY AT          CALLS  ERRORS  PER SECOND
a:8848            100    0       200
b:8848            50     1       100
bare grpc server  125    0       250

TIME (ms)                 MEAN  P50   P90   P99   P99.9  MAX
call at a:8848            1.00  1.00  2.00  3.00  4.00   5.00
call at b:8848            1.00  1.00  2.00  3.00  4.00   5.00
call at bare grpc server  1.00  1.00  2.00  3.00  4.00   5.00

ratio to b:8848           2.00
ratio to the bare server  0.80
the server used           0.50 cores, 30 MB
an error of b:8848        refused
`, shown(t, r))
}

func shown(t *testing.T, r *bench.Result) string {
	t.Helper()
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	printResult(w, r)
	require.NoError(t, w.Flush())
	return out.String()
}
