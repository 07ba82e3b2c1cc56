// Command rollcall is the service registry and its command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the build.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		if !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "rollcall:", err)
		}
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "rollcall",
		Short:         "A service registry for Nacos clients",
		Long:          "Rollcall is a service registry that clients written for Nacos use unmodified, and the command line to look into one.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(os.Stdout)
	root.AddCommand(newServer(), newConfig(), newService(), newInstance(), newWatch(), newNode(), newSnapshot(), newHealthcheck(), newBench(), newBenchLimit(), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(c *cobra.Command, _ []string) { c.Println(versionText()) },
	}
}

// versionText is the version of the build, or of its source.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "devel-" + s.Value[:12]
			}
		}
	}
	return "devel"
}
