//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runtimeSteps are what each client under clients has to go through, in this order;
// it may say of a step that it lacks it.
func runtimeSteps(client string) []string {
	switch client {
	case "prometheus":
		return []string{"register", "discover", "push", "deregister", "recover", "close"}
	case "spring":
		return []string{"register", "call", "push", "deregister", "recover", "close"}
	}
	return []string{"register", "list", "subscribe", "push", "deregister", "batch", "persistent", "recover", "close"}
}

const (
	installTime  = 10 * time.Minute
	runtimeTime  = 5 * time.Minute
	notInstalled = 77 // exit status: what it needs is out of reach here
)

// TestRuntimes runs unmodified clients, each in its own runtime and in each version that
// its folder names, against one node that is killed and started again, and against three
// of which the first is killed. clients/README.md says how a client speaks with the test.
func TestRuntimes(t *testing.T) {
	if os.Getenv("ROLLCALL_TEST_CLIENTS") == "" {
		t.Skip("SKIP: make test-clients runs this (ROLLCALL_TEST_CLIENTS=1)")
	}
	folders, err := filepath.Glob("clients/*/versions")
	require.NoError(t, err)
	require.NotEmpty(t, folders)
	for _, file := range folders {
		folder, err := filepath.Abs(filepath.Dir(file))
		require.NoError(t, err)
		versions, err := os.ReadFile(file)
		require.NoError(t, err)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			for version := range strings.FieldsSeq(string(versions)) {
				t.Run(version, func(t *testing.T) { runRuntime(t, folder, version) })
			}
		})
	}
}

func runRuntime(t *testing.T, folder, version string) {
	t.Helper()
	env := append(os.Environ(), "VERSION="+version, "WORK="+t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), installTime)
	defer cancel()
	install := group(ctx, filepath.Join(folder, "install"), env)
	out, err := install.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == notInstalled {
		t.Skipf("SKIP: %s", bytes.TrimSpace(out))
	}
	require.NoError(t, err, "install: %s", out)
	for _, mode := range []string{"one", "three"} {
		t.Run(mode, func(t *testing.T) {
			var nodes []*Node
			fault := func() {
				nodes[0].Kill(t)
				require.NoError(t, nodes[0].Start())
			}
			want := "restart"
			if mode == "one" {
				nodes = []*Node{StartNode(t)}
			} else {
				nodes = StartCluster(t, 3).Nodes
				fault, want = func() { nodes[0].Kill(t) }, "kill"
			}
			var servers []string
			for _, node := range nodes {
				servers = append(servers, node.Addr())
			}
			service := "runtime-" + strings.ReplaceAll(filepath.Base(folder)+"-"+version, ".", "-")
			converse(t, folder, append(env, "SERVERS="+strings.Join(servers, ","), "SERVICE="+service, "MODE="+mode), want, fault)
		})
	}
}

// group returns a command whose whole process group ends with ctx.
func group(ctx context.Context, path string, env []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// converse runs a client and does what it asks for.
func converse(t *testing.T, folder string, env []string, want string, fault func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runtimeTime)
	defer cancel()
	cmd := group(ctx, filepath.Join(folder, "run"), env)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // what it left
	var done []string
	var asked, ended bool
	for lines := bufio.NewScanner(out); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		name, detail, _ := strings.Cut(rest, " ")
		switch word {
		case "step":
			done = append(done, name)
			t.Logf("%-12s %s ms", name, detail)
		case "skip":
			done = append(done, name)
			t.Logf("%-12s not there: %s", name, detail)
		case "ask":
			require.Equal(t, want, name)
			asked = true
			fault()
			_, err := io.WriteString(in, "done\n")
			require.NoError(t, err, "%s", complaints.Bytes())
		case "end":
			ended = true
		default:
			require.Fail(t, "a line that is none", "%q", lines.Text())
		}
	}
	require.NoError(t, cmd.Wait(), "%s", tail(complaints.String()))
	require.True(t, asked && ended, "%s", tail(complaints.String()))
	require.Equal(t, runtimeSteps(filepath.Base(folder)), done)
}

// tail returns the last lines of a text.
func tail(s string) string {
	const most = 8 << 10
	return fmt.Sprintf("...%s", s[max(0, len(s)-most):])
}
