package server

import (
	"slices"
	"strings"

	"rollcall/naming"
)

// maxTerms bounds what one search may ask.
const maxTerms = 32

// term is one condition of a selector of services.
type term struct {
	instance   bool // of an instance's metadata, not the service's
	key, value string
}

// parseTerms reads "INSTANCE.metadata.key = 'value' & SERVICE.metadata.key = 'value'"
// (http.md 2.2, service list). Clients of 1.x also write label in place of metadata.
func parseTerms(expression string) (terms []term, ok bool) {
	if strings.TrimSpace(expression) == "" {
		return nil, true
	}
	for part := range strings.SplitSeq(expression, "&") {
		left, value, found := strings.Cut(part, "=")
		left, value = strings.TrimSpace(left), strings.TrimSpace(value)
		of, what, _ := strings.Cut(left, ".")
		kind, key, _ := strings.Cut(what, ".")
		instance := of == "INSTANCE"
		if !found || key == "" || !instance && of != "SERVICE" || kind != "metadata" && kind != "label" || len(terms) == maxTerms {
			return nil, false
		}
		terms = append(terms, term{instance, key, strings.Trim(value, "'")})
	}
	return terms, true
}

// selects tells whether a service fits: every condition must, those about instances
// for one instance.
func selects(terms []term, s *naming.Service) bool {
	asks := false
	for _, t := range terms {
		if t.instance {
			asks = true
		} else if s.Settings == nil || s.Settings.Metadata[t.key] != t.value {
			return false
		}
	}
	return !asks || slices.ContainsFunc(s.Effective(), func(i *naming.Instance) bool {
		return !slices.ContainsFunc(terms, func(t term) bool { return t.instance && i.Metadata[t.key] != t.value })
	})
}

// selected returns a test of services for a selector in the expression's words; nil
// lets every service pass.
func (r *Registry) selected(expression string) (func(naming.ServiceKey) bool, error) {
	terms, ok := parseTerms(expression)
	if !ok {
		return nil, &naming.InvalidError{
			Fault: naming.FaultSelector, Field: "selector",
			Text: "Selector parses failed: the expression should be INSTANCE.metadata.x = 'y' or SERVICE.metadata.x = 'y', joined by &.",
		}
	}
	if len(terms) == 0 {
		return nil, nil
	}
	return func(k naming.ServiceKey) bool {
		s, _ := r.router.Service(k)
		return selects(terms, &s)
	}, nil
}
