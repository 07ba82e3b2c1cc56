// Command consumer watches the service "orders" and calls it once a second.
package main

import (
	"context"
	"io"
	"log"
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

	// Told of each change once, with the difference; change.Service is the whole list.
	orders := naming.ServiceKey{Name: "orders"}
	_, err = registry.Subscribe(ctx, orders, naming.Filter{}, func(change client.Change) {
		log.Printf("%d instances: %d added, %d removed, %d changed",
			len(change.Service.Instances), len(change.Added), len(change.Removed), len(change.Changed))
	})
	if err != nil {
		return err
	}

	// The host of the URL is the service; each request goes to an instance chosen by weight.
	web := &http.Client{Transport: registry.Transport(nil), Timeout: time.Second}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		text, err := get(ctx, web, "http://orders/hello")
		if err != nil {
			log.Print("no answer: ", err)
			continue
		}
		log.Print("answer: ", text)
	}
}

func get(ctx context.Context, web *http.Client, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := web.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
