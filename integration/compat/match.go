package compat

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Difference is one place where an answer is not what was recorded. Path is a
// JSON pointer into the body, or the name of another part of the answer.
type Difference struct {
	Path string
	Want string
	Got  string
}

// String is the difference in one line.
func (d Difference) String() string {
	path := d.Path
	if path == "" {
		path = "(whole body)"
	}
	return path + ": want " + d.Want + ", got " + d.Got
}

const absent = "(absent)"

// Matcher compares JSON values with recorded ones.
type Matcher struct {
	Names *Names
	// Partial: arrays and maps may hold more than recorded, and counts may be
	// larger.
	Partial bool
	// Twin is the other version's answer to the same request, or nil. Keys that
	// it has may stand in the answer too.
	Twin any
}

// JSON returns what differs; nothing when got is the recorded value.
func (m Matcher) JSON(want, got any) []Difference {
	w := walk{Matcher: m}
	if m.Twin != nil {
		w.twinKeys = map[string]bool{}
		w.collect("", m.Twin)
	}
	w.compare(place{}, want, got)
	return w.found
}

// place is where a walk stands.
type place struct {
	path    string // JSON pointer
	general string // the same with * for every index
	key     string // the nearest key of an object
	parent  string // the key above that
	lenient bool   // keys that were not recorded may stand here
}

func (p place) member(key string) place {
	escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
	return place{path: p.path + "/" + escaped, general: p.general + "/" + escaped, key: key, parent: p.key}
}

func (p place) element(i int, lenient bool) place {
	return place{path: p.path + "/" + strconv.Itoa(i), general: p.general + "/*", key: p.key, parent: p.parent, lenient: lenient}
}

type walk struct {
	Matcher
	found    []Difference
	twinKeys map[string]bool
}

func (w *walk) collect(general string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, element := range v {
			at := place{general: general}.member(w.Names.sample(key))
			w.twinKeys[at.general] = true
			w.collect(at.general, element)
		}
	case []any:
		for _, element := range v {
			w.collect(general+"/*", element)
		}
	}
}

func (w *walk) differ(at place, want, got string) {
	w.found = append(w.found, Difference{Path: at.path, Want: want, Got: got})
}

func (w *walk) compare(at place, want, got any) {
	switch want := want.(type) {
	case nil:
		if got != nil {
			w.differ(at, "null", show(got))
		}
	case bool:
		if got != want {
			w.differ(at, show(want), show(got))
		}
	case json.Number:
		w.compareNumber(at, want, got)
	case string:
		w.compareString(at, want, got)
	case []any:
		w.compareArray(at, want, got)
	case map[string]any:
		w.compareObject(at, want, got)
	default:
		w.differ(at, fmt.Sprintf("a recorded value of type %T", want), show(got))
	}
}

func (w *walk) compareNumber(at place, want json.Number, got any) {
	number, ok := got.(json.Number)
	if !ok {
		w.differ(at, show(want), show(got))
		return
	}
	a, okA := new(big.Rat).SetString(want.String())
	b, okB := new(big.Rat).SetString(number.String())
	if okA && okB {
		order := b.Cmp(a)
		if order == 0 || w.Partial && order > 0 && isCount(at.key) {
			return
		}
	}
	w.differ(at, show(want), show(got))
}

func isCount(key string) bool {
	key = strings.ToLower(key)
	return strings.Contains(key, "count") || strings.HasPrefix(key, "pages")
}

func (w *walk) compareString(at place, want string, got any) {
	name, whole := only(want)
	if whole {
		switch s, known := shapeOf(name); {
		case name == "any":
			return
		case name == "javaText":
			if got == nil {
				return
			}
		case known && s.number:
			w.comparePlaceholderNumber(at, want, name, got)
			return
		}
	}
	text, ok := got.(string)
	if !ok {
		w.differ(at, show(want), show(got))
		return
	}
	if wanted, ok := w.Names.MatchText(want, text); !ok {
		w.differ(at, show(wanted), show(got))
	}
}

func (w *walk) comparePlaceholderNumber(at place, want, name string, got any) {
	value, bound := w.Names.Value(name)
	switch got := got.(type) {
	case json.Number:
		if wanted, ok := w.Names.MatchText(want, got.String()); !ok {
			w.differ(at, wanted+" (a number)", show(got))
		}
	case string:
		// Some answers carry a port as a text; a free number is never one.
		if !bound || got != value {
			w.differ(at, want+" (a number)", show(got))
		}
	default:
		w.differ(at, want+" (a number)", show(got))
	}
}

func (w *walk) compareObject(at place, want map[string]any, got any) {
	object, ok := got.(map[string]any)
	if !ok {
		w.differ(at, show(want), show(got))
		return
	}
	lenient := at.lenient || isServiceInfo(want)
	known := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		filled, ok := w.keyIn(key, object, known)
		known[filled] = true
		if !ok {
			if want[key] != "${javaText}" {
				w.differ(at.member(filled), show(want[key]), absent)
			}
			continue
		}
		w.compare(at.member(filled), want[key], object[filled])
	}
	if lenient || w.Partial {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if key == "instanceId" && isInstance(want) {
			continue // real servers leave it out of what v2 and v3 registered; here every instance has one
		}
		if below := at.member(key); !known[key] && !w.twinKeys[below.general] {
			w.differ(below, absent, show(object[key]))
		}
	}
}

// keyIn finds the key of the answer that a recorded key stands for.
func (w *walk) keyIn(want string, object map[string]any, taken map[string]bool) (string, bool) {
	filled, err := w.Names.Fill(want)
	if err == nil {
		_, ok := object[filled]
		return filled, ok
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !taken[key] {
			if _, ok := w.Names.MatchText(want, key); ok {
				return key, true
			}
		}
	}
	return want, false
}

// isServiceInfo tells the bodies that clients read leniently: the list of a
// service and the hosts in it.
func isServiceInfo(object map[string]any) bool {
	_, hosts := object["hosts"]
	_, cache := object["cacheMillis"]
	return hosts && cache
}

// isInstance tells an instance in the form of lists.
func isInstance(object map[string]any) bool {
	_, ok := object["ipDeleteTimeout"]
	return ok
}

func (w *walk) compareArray(at place, want []any, got any) {
	array, ok := got.([]any)
	if !ok {
		w.differ(at, show(want), show(got))
		return
	}
	lenient := at.key == "hosts"
	if isSet(at, want) {
		w.compareSet(at, want, array, lenient)
		return
	}
	if w.Partial {
		w.compareSubsequence(at, want, array, lenient)
		return
	}
	if len(want) != len(array) {
		w.differ(at, fmt.Sprintf("%d elements %s", len(want), show(want)), fmt.Sprintf("%d elements %s", len(array), show(array)))
		return
	}
	for i := range want {
		w.compare(at.element(i, lenient), want[i], array[i])
	}
}

// isSet tells the arrays that real servers build from hash sets.
func isSet(at place, want []any) bool {
	switch at.key {
	case "hosts", "ips", "updated", "doms", "services", "serviceNames", "instances", "clusters",
		"subscribers", "pageItems", "serviceList", "list", "contexts":
		return true
	case "data":
		return !slices.ContainsFunc(want, isNamespace)
	}
	return at.parent == "META-INF/services"
}

func isNamespace(v any) bool {
	object, ok := v.(map[string]any)
	_, named := object["namespaceShowName"]
	return ok && named
}

// compareSet pairs equal elements. What stays unpaired is reported against the
// most similar element that is left.
func (w *walk) compareSet(at place, want, got []any, lenient bool) {
	trial := func(i, j int) []Difference {
		sub := walk{Matcher: w.Matcher, twinKeys: w.twinKeys}
		sub.compare(at.element(j, lenient), want[i], got[j])
		return sub.found
	}
	equal := make([][]bool, len(want))
	for i := range want {
		equal[i] = make([]bool, len(got))
		for j := range got {
			equal[i][j] = len(trial(i, j)) == 0
		}
	}
	owner := pair(equal, len(got))
	var lone []int
	for i := range want {
		if !slices.Contains(owner, i) {
			lone = append(lone, i)
		}
	}
	for _, i := range lone {
		best, bestAt := []Difference(nil), -1
		for j := range got {
			if owner[j] >= 0 {
				continue
			}
			if found := trial(i, j); bestAt < 0 || len(found) < len(best) {
				best, bestAt = found, j
			}
		}
		if bestAt < 0 {
			w.differ(at, "an element "+show(want[i]), fmt.Sprintf("%d elements without it", len(got)))
			continue
		}
		owner[bestAt] = i
		w.found = append(w.found, best...)
	}
	if w.Partial {
		return
	}
	for j := range got {
		if owner[j] < 0 {
			w.differ(at.element(j, lenient), absent, show(got[j]))
		}
	}
}

// pair finds a largest matching; owner[j] is the index of the wanted element
// that got element j stands for, or -1 (augmenting paths).
func pair(equal [][]bool, n int) []int {
	owner := slices.Repeat([]int{-1}, n)
	var try func(i int, seen []bool) bool
	try = func(i int, seen []bool) bool {
		for j := range n {
			if !equal[i][j] || seen[j] {
				continue
			}
			seen[j] = true
			if owner[j] < 0 || try(owner[j], seen) {
				owner[j] = i
				return true
			}
		}
		return false
	}
	for i := range equal {
		try(i, make([]bool, n))
	}
	return owner
}

// compareSubsequence finds the recorded elements among others, in their order.
func (w *walk) compareSubsequence(at place, want, got []any, lenient bool) {
	j := 0
	for i := range want {
		start := j
		for ; j < len(got); j++ {
			sub := walk{Matcher: w.Matcher, twinKeys: w.twinKeys}
			sub.compare(at.element(j, lenient), want[i], got[j])
			if len(sub.found) == 0 {
				break
			}
		}
		if j == len(got) {
			w.differ(at, "an element "+show(want[i]), "it does not stand in "+show(got[start:]))
			return
		}
		j++
	}
}

// show is a value as JSON, shortened.
func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return shorten(string(text), 400)
}

func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:cut], len(text))
}
