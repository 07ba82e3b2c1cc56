package client

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"rollcall/naming"
	"rollcall/server/wire"
)

// diskCache keeps the newest lists in files that other SDKs can read, one for each
// service (semantics.md 12.3). A file is replaced as a whole, so that a reader sees the
// old or the new list; it is not forced to the disk, and one that a power failure cut
// off is passed over when it is read.
type diskCache struct {
	dir    string
	log    *slog.Logger
	loaded map[naming.ServiceKey]*Service // of a former process; not changed once it is set
	wg     sync.WaitGroup
	wakeCh chan struct{} // capacity 1: there is something to write
	endCh  chan struct{}

	mu      sync.Mutex
	pending map[naming.ServiceKey]*Service // the newest of each
}

// cacheFolder returns the folder of a namespace's files.
func cacheFolder(cfg Config) string { return filepath.Join(cfg.CacheDir, "naming", cfg.Namespace) }

// newDiskCache makes the folder and reads it if the configuration says so.
func newDiskCache(cfg Config, log *slog.Logger) (*diskCache, error) {
	d := &diskCache{
		dir: cacheFolder(cfg), log: log, wakeCh: make(chan struct{}, 1), endCh: make(chan struct{}),
		pending: make(map[naming.ServiceKey]*Service),
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the disk cache: %w; CacheDir must name a folder that can be written", err)
	}
	if cfg.LoadCacheAtStart {
		d.loaded = readLists(d.dir, cfg.Namespace, log)
	}
	return d, nil
}

func (d *diskCache) start() { d.wg.Go(d.run) }

// close writes what is left and waits for the goroutine.
func (d *diskCache) close() {
	close(d.endCh)
	d.wg.Wait()
	d.flush()
}

// changed takes a new list. It does not block.
func (d *diskCache) changed(s *Service) {
	d.mu.Lock()
	d.pending[s.Key] = s
	d.mu.Unlock()
	select {
	case d.wakeCh <- struct{}{}:
	default:
	}
}

func (d *diskCache) run() {
	for {
		select {
		case <-d.wakeCh:
			d.flush()
		case <-d.endCh:
			return
		}
	}
}

func (d *diskCache) flush() {
	d.mu.Lock()
	lists := maps.Clone(d.pending)
	clear(d.pending)
	d.mu.Unlock()
	for key, s := range lists {
		if err := d.write(key, s); err != nil {
			d.log.Warn("list not written to the disk cache", "service", key.Grouped(), "err", err)
		}
	}
}

func (d *diskCache) write(key naming.ServiceKey, s *Service) error {
	info := &naming.ServiceInfo{
		Key: key, Hosts: s.Instances, CacheMs: s.CacheMs, LastRefTimeMs: s.LastRefTimeMs, ReachedProtection: s.ReachedProtection,
	}
	f, err := os.CreateTemp(d.dir, tempPattern)
	if err != nil {
		return err
	}
	_, err = f.Write(wire.ServiceInfoGRPC(info))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(d.dir, fileName(key)))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// tempPattern names a file that is being written.
const tempPattern = ".writing-*"

// fileName returns the name of a service's file: group@@name, encoded like the value of
// a form, as the Java SDK does.
func fileName(key naming.ServiceKey) string {
	return strings.NewReplacer("%2A", "*", "~", "%7E").Replace(url.QueryEscape(key.Grouped()))
}

// keyOf returns the service whose list a file has; ok is false for files with something
// else, or with the list of some clusters alone. Names that are not encoded are those
// of the Go SDK.
func keyOf(namespace, name string) (key naming.ServiceKey, ok bool) {
	text, err := url.QueryUnescape(name)
	if err != nil {
		text = name
	}
	group, service, ok := naming.SplitGrouped(text)
	if !ok || strings.Contains(service, naming.Separator) || strings.HasPrefix(name, ".") {
		return naming.ServiceKey{}, false
	}
	key = naming.ServiceKey{Namespace: namespace, Group: group, Name: service}
	return key, naming.CheckKey(key) == nil
}

// readLists reads all lists of a folder that have an instance. What cannot be read is
// logged and passed over.
func readLists(dir, namespace string, log *slog.Logger) map[naming.ServiceKey]*Service {
	lists := make(map[naming.ServiceKey]*Service)
	files, err := os.ReadDir(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("lists on the disk cannot be read", "err", err)
		}
		return lists
	}
	for _, f := range files {
		key, ok := keyOf(namespace, f.Name())
		if !ok || !f.Type().IsRegular() {
			continue
		}
		s, err := readList(filepath.Join(dir, f.Name()))
		if err != nil {
			log.Warn("list on the disk cannot be read", "service", key.Grouped(), "err", err)
			continue
		}
		if s.Key = key; len(s.Instances) > 0 {
			lists[key] = s
		}
	}
	return lists
}

// readList reads a file with a list, or with an instance on each line.
func readList(path string) (*Service, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := decodeService(b, nil)
	if err == nil && (s.Instances != nil || s.Key.Name != "") {
		return s, nil
	}
	s = new(Service)
	for line := range bytes.Lines(b) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		i := new(naming.Instance)
		d := hostDecoder{parser: &parser{b: line}}
		if e := errors.Join(d.host(i), d.end()); e != nil || i.IP == "" {
			return nil, errors.Join(err, e, errors.New("it is neither a list nor an instance on each line"))
		}
		s.Instances = append(s.Instances, i)
	}
	s.Instances = normal(s.Instances)
	return s, nil
}
