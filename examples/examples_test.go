package examples_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/client/clienttest"
)

var update = flag.Bool("update", false, "rewrite the Go section of README.md from the examples")

// section finds a part of README.md that is a file: a comment that names the file, and
// the block of code after it.
func section(file string) *regexp.Regexp {
	return regexp.MustCompile("(?s)(<!-- " + regexp.QuoteMeta(file) + " -->\n```go\n).*?(```\n)")
}

func TestREADME_HasTheExamples(t *testing.T) {
	const readme = "../README.md"
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	for _, file := range []string{"examples/provider/main.go", "examples/consumer/main.go"} {
		code, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		_, body, found := strings.Cut(string(code), "func run() error {\n")
		require.True(t, found)
		body = "func run() error {\n" + body
		found2 := section(file).FindSubmatchIndex(text)
		require.NotNil(t, found2, "README.md has no section for %s", file)
		want := string(text[:found2[3]]) + body + string(text[found2[4]:])
		if *update {
			text = []byte(want)
			continue
		}
		require.Equal(t, want, string(text), "README.md differs from %s: run this test with -update", file)
	}
	if *update {
		require.NoError(t, os.WriteFile(readme, text, 0o644))
	}
}

// program is an example that runs.
type program struct {
	t   *testing.T
	cmd *exec.Cmd

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *program) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func start(t *testing.T, name, server string) *program {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as everything is that was compiled before
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	p := &program{t: t, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), binary)}
	p.cmd.Env = append(os.Environ(), "ROLLCALL_SERVER="+server)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

func (p *program) says(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.output(), text) }, 20*time.Second, 5*time.Millisecond, "%s", &p.out)
}

// stop requires a graceful end.
func (p *program) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(p.t, p.cmd.Wait(), "%s", &p.out)
}

func TestExamples_Run(t *testing.T) {
	node := clienttest.Start(t)
	consumer := start(t, "consumer", node.Addr())
	consumer.says("0 instances: 0 added")
	provider := start(t, "provider", node.Addr())
	provider.says("serving at 127.0.0.1:")
	consumer.says("1 instances: 1 added, 0 removed, 0 changed")
	consumer.says("answer: hello")
	node.Restart(t)
	provider.stop()
	consumer.says("0 instances: 0 added, 1 removed, 0 changed")
	consumer.says("no answer: ")
	consumer.stop()
}
