package distro

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// places remembers in a file where the other nodes were. A node that starts when
// nothing answers at the addresses of Join, since all of them have moved, finds them
// there. Used by the rejoin loop alone.
type places struct {
	path   string // empty: nothing is kept
	former []string
	kept   []string
}

// read takes what a former run of this node has kept.
func (p *places) read() error {
	if p.path == "" {
		return nil
	}
	b, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &p.former)
	}
	if err != nil {
		p.former = nil
		return fmt.Errorf("where other nodes were is not known any more: %w", err)
	}
	p.kept = p.former
	return nil
}

// keep writes the addresses of the other nodes, unless there are none or they stand there.
func (p *places) keep(addresses []string) error {
	slices.Sort(addresses)
	if p.path == "" || len(addresses) == 0 || slices.Equal(addresses, p.kept) {
		return nil
	}
	b, err := json.Marshal(addresses)
	if err != nil {
		return err
	}
	next := p.path + ".new"
	if err := os.WriteFile(next, append(b, '\n'), 0o600); err != nil {
		return err
	}
	if err := os.Rename(next, p.path); err != nil {
		return err
	}
	p.kept = addresses
	return nil
}
