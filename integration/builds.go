package integration

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// PreviousBuild builds the server as it was at the last tag, or if there is none at the
// commit before the present one, and returns the path and the revision.
// ROLLCALL_TEST_PREVIOUS names another revision. Without the history the test is skipped.
func PreviousBuild(tb testing.TB) (path, revision string) {
	tb.Helper()
	module, err := moduleDir()
	require.NoError(tb, err)
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(context.Background(), "git", args...)
		cmd.Dir = module
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	if revision = os.Getenv("ROLLCALL_TEST_PREVIOUS"); revision == "" {
		if revision, err = git("describe", "--tags", "--abbrev=0", "HEAD~1"); err != nil {
			revision = "HEAD~1"
		}
	}
	commit, err := git("rev-parse", "--verify", "--quiet", revision+"^{commit}")
	if err != nil {
		tb.Skipf("SKIP: NO PREVIOUS BUILD: the history has no %s (a shallow clone?): %v", revision, err)
	}
	dir := tb.TempDir()
	archive := filepath.Join(dir, "source.tar")
	_, err = git("archive", "--output", archive, commit)
	require.NoError(tb, err)
	source := filepath.Join(dir, "source")
	require.NoError(tb, os.Mkdir(source, 0o750))
	require.NoError(tb, run("tar", "-xf", archive, "-C", source))
	path = filepath.Join(dir, "rollcall")
	compile(tb, source, path)
	return path, commit
}

// skewEnv is how many seconds the clock of a SkewedBuild is ahead.
const skewEnv = "SKEWED_CLOCK_SECONDS"

// skewed is added to package time. It must not use packages that use that.
const skewed = `package time

import "syscall"

var skew = readSkew()

func readSkew() (seconds int64) {
	text, _ := syscall.Getenv("` + skewEnv + `")
	sign := int64(1)
	for n, c := range []byte(text) {
		switch {
		case n == 0 && c == '-':
			sign = -1
		case '0' <= c && c <= '9':
			seconds = 10*seconds + int64(c-'0')
		}
	}
	return sign * seconds
}
`

// SkewedBuild builds the server with a wall clock that the environment sets off. There
// is no other way: Go reads the clock without the C library, so that preloading another
// one does nothing, and a time namespace does not shift the wall clock.
func SkewedBuild(tb testing.TB) (path string) {
	tb.Helper()
	path, missing := skewedBuild(tb)
	if missing != "" {
		tb.Skip("SKIP: " + missing)
	}
	return path
}

// skewedBuild is SkewedBuild, and tells why there can be none.
func skewedBuild(tb testing.TB) (path, missing string) {
	tb.Helper()
	const reads = "sec, nsec, mono := runtimeNow()\n"
	root, err := exec.CommandContext(context.Background(), "go", "env", "GOROOT").Output()
	require.NoError(tb, err)
	folder := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	original := filepath.Join(folder, "time.go")
	text, err := os.ReadFile(original)
	require.NoError(tb, err)
	if strings.Count(string(text), "func Now() Time {\n\t"+reads) != 1 {
		return "", "package time of this Go release reads the clock in another way than the test knows"
	}
	dir := tb.TempDir()
	replace := make(map[string]string)
	for name, content := range map[string]string{
		"time.go": strings.Replace(string(text), reads, reads+"\tsec += skew\n", 1), "skew.go": skewed,
	} {
		replace[filepath.Join(folder, name)] = filepath.Join(dir, name)
		require.NoError(tb, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(tb, err)
	list := filepath.Join(dir, "overlay.json")
	require.NoError(tb, os.WriteFile(list, overlay, 0o600))
	module, err := moduleDir()
	require.NoError(tb, err)
	path = filepath.Join(dir, "rollcall")
	compile(tb, module, path, "-overlay", list)
	return path, ""
}

func compile(tb testing.TB, source, path string, flags ...string) {
	tb.Helper()
	cmd := exec.CommandContext(context.Background(), "go", append(append([]string{"build", "-o", path}, flags...), "./cmd/rollcall")...)
	cmd.Dir = source
	cmd.Env = append(cleanEnv(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(tb, err, "%s", out)
}
