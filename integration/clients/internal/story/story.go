// Package story is what each client written in Go goes through; see clients/README.md.
package story

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Instance is an instance as the story sees it.
type Instance struct {
	IP         string
	Metadata   map[string]string
	Persistent bool
}

// Client is one client of an SDK. Port 8080 and the default group are everywhere.
type Client interface {
	Register(service string, i Instance) error
	Deregister(service string, i Instance) error
	List(service string) ([]Instance, error)
	Subscribe(service string, fn func([]Instance)) error
	// RegisterBatch registers instances in one call; errors.ErrUnsupported: there is no
	// such call.
	RegisterBatch(service string, all []Instance) error
	Close()
}

// Port is that of all instances.
const Port = 8080

// Server is a server's address.
type Server struct {
	Host string
	Port uint64
}

// Main runs the story with clients that dial makes, each with a folder for its files,
// and ends the process.
func Main(name string, dial func(servers []Server, dir string) (Client, error)) {
	if err := run(name, dial); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // the SDKs leave goroutines behind
}

const (
	patience = 15 * time.Second // SDKs of 1.x ask every 10 s
	recovery = time.Minute
)

func run(name string, dial func([]Server, string) (Client, error)) error {
	var servers []Server
	for text := range strings.SplitSeq(os.Getenv("SERVERS"), ",") {
		host, port, err := net.SplitHostPort(text)
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return err
		}
		servers = append(servers, Server{host, n})
	}
	service := os.Getenv("SERVICE")
	client := func(of string) (Client, error) {
		dir, err := os.MkdirTemp(os.Getenv("WORK"), of)
		if err != nil {
			return nil, err
		}
		return dial(servers, filepath.Join(dir, "files"))
	}
	first, err := client("a")
	if err != nil {
		return fmt.Errorf("first client: %w", err)
	}
	second, err := client("b")
	if err != nil {
		return fmt.Errorf("second client: %w", err)
	}
	a := Instance{IP: "10.1.0.1", Metadata: map[string]string{"lang": name}}
	b := Instance{IP: "10.1.0.2", Metadata: map[string]string{"lang": name}}
	var heard heard

	for _, s := range []struct {
		name string
		do   func() error
		seen func() error
	}{
		{"register", func() error { return first.Register(service, a) }, nil},
		{"list", nil, func() error { return lists(second, service, a) }},
		{"subscribe", func() error { return first.Subscribe(service, heard.take) }, func() error { return heard.is(a) }},
		{"push", func() error { return second.Register(service, b) }, func() error { return heard.is(a, b) }},
		{"deregister", func() error { return second.Deregister(service, b) }, func() error { return heard.is(a) }},
		{"batch", func() error { return second.RegisterBatch(service+"-batch", []Instance{a, b}) }, func() error { return lists(first, service+"-batch", a, b) }},
		{"persistent", func() error { return first.Register(service+"-persistent", kept(a)) }, func() error { return lists(second, service+"-persistent", kept(a)) }},
	} {
		if err := step(s.name, patience, s.do, s.seen); err != nil {
			return err
		}
	}
	if err := ask(); err != nil {
		return err
	}
	if err := step("recover", recovery, func() error {
		return within(recovery, func() error { return second.Register(service, b) })
	}, func() error {
		return errors.Join(lists(second, service, a, b), heard.is(a, b))
	}); err != nil {
		return err
	}
	if err := step("close", recovery, func() error {
		return errors.Join(second.Deregister(service, b), first.Deregister(service, a), first.Deregister(service+"-persistent", kept(a)))
	}, func() error { return errors.Join(lists(second, service), lists(first, service+"-persistent")) }); err != nil {
		return err
	}
	first.Close()
	second.Close()
	say("end")
	return nil
}

func kept(i Instance) Instance {
	i.Persistent = true
	return i
}

// step does something, waits until it is seen, and says so.
func step(name string, wait time.Duration, do, seen func() error) error {
	began := time.Now()
	if do != nil {
		switch err := do(); {
		case errors.Is(err, errors.ErrUnsupported):
			say("skip %s this SDK has no such call", name)
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if seen != nil {
		if err := within(wait, seen); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	say("step %s %d", name, time.Since(began).Milliseconds())
	return nil
}

// within tries until there is no error.
func within(d time.Duration, try func() error) error {
	for end := time.Now().Add(d); ; {
		err := try()
		if err == nil || time.Now().After(end) {
			return err
		}
		<-time.After(5 * time.Millisecond)
	}
}

// ask has the test make the fault.
func ask() error {
	fault := "restart"
	if os.Getenv("MODE") == "three" {
		fault = "kill"
	}
	say("ask %s", fault)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err == nil && answer != "done\n" {
		err = fmt.Errorf("the test answered %q", answer)
	}
	return err
}

// say tells the test something.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format+"\n", args...) }

// heard is the last list that a subscription was told.
type heard struct {
	mu   sync.Mutex
	list []Instance
}

func (h *heard) take(list []Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = list
}

func (h *heard) is(want ...Instance) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return same("the subscription was told", h.list, want)
}

func lists(c Client, service string, want ...Instance) error {
	got, err := c.List(service)
	if err != nil && len(want) > 0 { // some SDKs call an empty list an error
		return err
	}
	return same("the list is", got, want)
}

func same(what string, got, want []Instance) error {
	text := func(list []Instance) string {
		var all []string
		for _, i := range list {
			all = append(all, fmt.Sprint(i.IP, i.Metadata, i.Persistent))
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	if text(got) != text(want) {
		return fmt.Errorf("%s %q, not %q", what, text(got), text(want))
	}
	return nil
}
