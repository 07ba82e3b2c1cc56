package integration

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// childEnv tells the test binary to be a client process instead; its value is the
// address of the gRPC port, then a service name, separated by a blank.
const childEnv = "ROLLCALL_TEST_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		os.Exit(runChild(job))
	}
	flag.Parse()
	// Most tests wait most of their time, so more of them than processors run at
	// once, unless the command line says otherwise.
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", "12")
	}
	code := m.Run()
	if err := theShared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "shared node:", err)
		code = max(code, 1)
	}
	RemoveBinary()
	os.Exit(code)
}

// shared is the node that most tests use, and the scratch folder of the process.
type shared struct {
	mu      sync.Mutex
	dir     string
	node    *Node
	trouble []error
}

//nolint:gochecknoglobals // one node for all tests of the process
var theShared shared

// sharedNode returns the shared node and starts it when it is needed for the
// first time, or again after it died. A failed test prints what the node wrote
// meanwhile.
func sharedNode(t *testing.T) *Node {
	t.Helper()
	n, err := theShared.get()
	if err != nil {
		t.Fatal(err)
	}
	began := len(n.Logs())
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		if out := n.Logs()[began:]; out != "" {
			t.Logf("output of the shared node meanwhile:\n%s", out[max(0, len(out)-4<<10):])
		}
	})
	return n
}

// scratchDir returns a new folder that lives as long as the process. SDKs of 1.x
// have no close and write into their folders until the end.
func scratchDir(t *testing.T) string {
	t.Helper()
	dir, err := theShared.scratch()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, uniqueName(t))
}

func (s *shared) scratch() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scratchLocked()
}

func (s *shared) scratchLocked() (string, error) {
	if s.dir != "" {
		return s.dir, nil
	}
	var err error
	s.dir, err = os.MkdirTemp("", "rollcall-integration-")
	return s.dir, err
}

func (s *shared) get() (*Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		if s.node.Running() {
			return s.node, nil
		}
		s.trouble = append(s.trouble, fmt.Errorf("it died:\n%s", s.node.log.tail()))
		s.node = nil
	}
	if len(s.trouble) > 3 {
		return nil, errors.Join(s.trouble...)
	}
	dir, err := s.scratchLocked()
	if err != nil {
		return nil, err
	}
	n, err := NewNode(WithDataDir(filepath.Join(dir, fmt.Sprintf("data-%d", len(s.trouble)))))
	if err != nil {
		return nil, err
	}
	if err := n.start(); err != nil {
		n.Close()
		s.trouble = append(s.trouble, err)
		return nil, err
	}
	s.node = n
	return n, nil
}

func (s *shared) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		if !s.node.Running() {
			s.trouble = append(s.trouble, fmt.Errorf("it died:\n%s", s.node.log.tail()))
		} else if code, err := s.node.Terminate(); err != nil || code != 0 {
			s.trouble = append(s.trouble, fmt.Errorf("exit code %d after SIGTERM (%w)\n%s", code, err, s.node.log.tail()))
		}
		if report := s.node.Trouble(); report != "" {
			s.trouble = append(s.trouble, errors.New(report))
		}
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
	return errors.Join(s.trouble...)
}
