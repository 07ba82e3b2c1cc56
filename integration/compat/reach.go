package compat

import (
	"fmt"
	"os"
	"strings"
)

// Reach lists what the server does not do yet, each with its reason. What is
// not listed must pass.
type Reach struct {
	// Groups are out of reach as a whole, by name.
	Groups map[string]string `json:"groups"`
	// Scenarios are by "group/name", or "group/name@version" for one version.
	Scenarios map[string]string `json:"scenarios"`
}

// LoadReach reads the file strictly. An entry without a reason, or of a scenario
// that there is not, is an error.
func LoadReach(path string, all []Recording) (Reach, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Reach{}, err
	}
	var r Reach
	if err := decode(text, &r); err != nil {
		return Reach{}, fmt.Errorf("read %s: %w", path, err)
	}
	known := map[string]bool{}
	for _, recording := range all {
		known[recording.Group] = true
		for _, s := range recording.Scenarios {
			known[recording.Group+"/"+s.Name] = true
			known[recording.Group+"/"+s.Name+"@"+recording.Version] = true
		}
	}
	for _, entries := range []map[string]string{r.Groups, r.Scenarios} {
		for name, reason := range entries {
			if !known[name] {
				return Reach{}, fmt.Errorf("%s: there is no %s", path, name)
			}
			if strings.TrimSpace(reason) == "" {
				return Reach{}, fmt.Errorf("%s: %s has no reason", path, name)
			}
		}
	}
	return r, nil
}

// Reason tells why a scenario is out of reach, "" if it is not, and whether it is
// listed by its own name rather than with its group.
func (r Reach) Reason(group, version, name string) (reason string, byName bool) {
	for _, entry := range []string{group + "/" + name, group + "/" + name + "@" + version} {
		if reason := r.Scenarios[entry]; reason != "" {
			return reason, true
		}
	}
	return r.Groups[group], false
}
