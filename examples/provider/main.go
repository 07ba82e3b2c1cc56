// Command provider serves HTTP as an instance of the service "orders": it registers when
// it can serve, and deregisters before it stops to.
package main

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"rollcall/client"
	"rollcall/naming"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	cfg := client.DefaultConfig()
	cfg.Servers = []string{os.Getenv("ROLLCALL_SERVER")} // such as 127.0.0.1:8848
	registry, err := client.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = registry.Close() }()

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("hello\n")) })
	mux.Handle("GET /health", registry.Health())
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()

	// Registered again after every disconnect, for as long as the program runs.
	orders := naming.ServiceKey{Name: "orders"}
	self := naming.NewInstance("127.0.0.1", listener.Addr().(*net.TCPAddr).Port)
	self.Metadata = map[string]string{"version": "1.0.0"}
	if err := registry.Register(ctx, orders, self); err != nil {
		return err
	}
	log.Print("serving at ", listener.Addr())

	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Out of the lists first, then finish what callers have begun.
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(registry.Deregister(last, orders, self), web.Shutdown(last))
}
