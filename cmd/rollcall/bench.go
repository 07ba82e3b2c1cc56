package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/internal/bench"
)

func newBench() *cobra.Command {
	t := &tool{output: "table"}
	cfg := bench.DefaultConfig()
	quiet := false
	c := &cobra.Command{
		Use:   "bench SCENARIO",
		Short: "Load a server and measure it",
		Long:  "Load a server and measure it. Every server that speaks Nacos's protocols can be measured.\n\n" + scenarios(),
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := t.check(); err != nil {
				return err
			}
			cfg.Scenario = args[0]
			if !quiet {
				cfg.Progress = os.Stderr
			}
			r, err := bench.Run(c.Context(), cfg)
			if err != nil {
				return err
			}
			return t.print(c.OutOrStdout(), r, func(w io.Writer) { printResult(w, r) })
		},
	}
	f := c.Flags()
	f.StringSliceVar(&cfg.Servers, "server", cfg.Servers, "servers, host:port of HTTP, separated by commas")
	f.StringSliceVar(&cfg.Beside, "beside", nil, "other servers, host:port of HTTP: the same is measured at each, in turns with the first")
	f.StringVarP(&t.output, "output", "o", t.output, "table or json")
	f.IntVar(&cfg.Connections, "connections", cfg.Connections, "connections, spread over the servers")
	f.IntVar(&cfg.Workers, "workers", cfg.Workers, "calls under way on each connection of gRPC")
	f.IntVar(&cfg.Instances, "instances", cfg.Instances, "instances of the service that is queried or watched; of scenario fill in all")
	f.IntVar(&cfg.Subscribers, "subscribers", cfg.Subscribers, "subscribers of scenario fanout, subscriptions of scenario fill")
	f.IntVar(&cfg.Slow, "slow", cfg.Slow, "further subscribers of scenario fanout, which read nothing")
	f.IntVar(&cfg.Rate, "rate", cfg.Rate, "calls per second in all; 0: as many as are answered")
	f.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long to measure")
	f.DurationVar(&cfg.WarmUp, "warm-up", cfg.WarmUp, "how long to load before that")
	f.IntVar(&cfg.PID, "pid", cfg.PID, "process id of the server on this machine, to tell its CPU and memory")
	f.BoolVar(&cfg.Limits, "limits", cfg.Limits, "measure the same calls at a bare server too, and tell the ratio")
	f.BoolVar(&quiet, "quiet", quiet, "no progress on standard error")
	return c
}

func newBenchLimit() *cobra.Command {
	return &cobra.Command{
		Use:    bench.LimitCommand + " KIND",
		Short:  "Serve the bare limit that bench compares with",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return bench.ServeLimit(args[0], os.Stdin, os.Stdout) },
	}
}

func scenarios() string {
	var text strings.Builder
	text.WriteString("Scenarios:\n")
	for _, s := range bench.Scenarios() {
		_, _ = fmt.Fprintf(&text, "  %-14s %s\n", s.Name, s.Does)
	}
	return text.String()
}

func printResult(w io.Writer, r *bench.Result) {
	row := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	all := append([]*bench.Result{r}, r.Beside...)
	if r.Limit != nil {
		all = append(all, r.Limit)
	}
	who := func(x *bench.Result) string {
		if x == r.Limit {
			return x.Scenario
		}
		return strings.Join(x.Servers, ",")
	}
	row("%s AT\tCALLS\tERRORS\tPER SECOND", strings.ToUpper(r.Scenario))
	for _, x := range all {
		row("%s\t%d\t%d\t%.0f", who(x), x.Calls, x.Errors, x.Rate)
	}
	row("")
	row("TIME (ms)\tMEAN\tP50\tP90\tP99\tP99.9\tMAX")
	for _, x := range all {
		for _, t := range x.Times {
			what := t.What
			if len(all) > 1 {
				what += " at " + who(x)
			}
			row("%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f", what, t.Mean, t.P50, t.P90, t.P99, t.P999, t.Max)
		}
	}
	row("")
	for _, x := range r.Beside {
		if x.Ratio > 0 {
			row("ratio to %s\t%.2f", who(x), x.Ratio)
		}
	}
	if r.Limit != nil {
		row("ratio to the bare server\t%.2f", r.Ratio)
	}
	if r.Syncs > 0 {
		row("4 KB made safe on this disk\t%.0f per second", r.Syncs)
	}
	if r.CPU > 0 {
		row("the server used\t%.2f cores, %d MB", r.CPU, r.RSS>>20)
	}
	for _, x := range all {
		if x.Error != "" {
			row("an error of %s\t%s", who(x), x.Error)
		}
	}
}
