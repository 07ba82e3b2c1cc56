package naming

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of the protocol (http.md 1.7).
const (
	maxNamespaceLen = 64
	maxServiceLen   = 512
	maxGroupLen     = 128
	maxClusterLen   = 64
	maxIPLen        = 128
	maxWeight       = 10000

	// DefaultMetadataLimit is the number of characters that the keys and values
	// of one instance's metadata may have together.
	DefaultMetadataLimit = 1024
)

func illegal(field string) error {
	return &InvalidError{FaultParam, field, "Param '" + field + "' is illegal, illegal characters should not appear in the param."}
}

func tooLong(field string, limit int) error {
	return &InvalidError{FaultParam, field, "Param '" + field + "' is illegal, the param length should not exceed " + strconv.Itoa(limit) + "."}
}

// CheckNamespace refuses a namespace id that is not made of letters, digits, _
// and -, or is longer than 64.
func CheckNamespace(s string) error {
	const field = "namespaceId/tenant"
	if textLen(s) > maxNamespaceLen {
		return tooLong(field, maxNamespaceLen)
	}
	if s == "" || !all(s, func(c byte) bool { return wordByte(c) || c == '-' }) {
		return illegal(field)
	}
	return nil
}

// CheckService refuses a plain service name with white space, Chinese
// characters (U+4E00 to U+9FA5), a leading @ or an @@ in it, or over 512 long.
func CheckService(s string) error {
	const field = "serviceName"
	if textLen(s) > maxServiceLen {
		return tooLong(field, maxServiceLen)
	}
	if s == "" || s[0] == '@' || strings.Contains(s, Separator) || !cleanText(s) {
		return illegal(field)
	}
	return nil
}

// CheckGroup refuses a group with characters other than letters, digits, - _ : .
// or over 128 long.
func CheckGroup(s string) error {
	const field = "group"
	if textLen(s) > maxGroupLen {
		return tooLong(field, maxGroupLen)
	}
	if s == "" || !all(s, func(c byte) bool { return wordByte(c) || c == '-' || c == ':' || c == '.' }) {
		return illegal(field)
	}
	return nil
}

// CheckKey checks the three parts of a service key.
func CheckKey(k ServiceKey) error {
	if err := CheckNamespace(k.Namespace); err != nil {
		return err
	}
	if err := CheckService(k.Name); err != nil {
		return err
	}
	return CheckGroup(k.Group)
}

// CheckClusters refuses a comma separated list of clusters in which a name has
// characters other than letters, digits, _ and -, or is over 64 long. A blank
// list is legal.
func CheckClusters(list string) error {
	if strings.TrimSpace(list) == "" {
		return nil
	}
	for name := range strings.SplitSeq(list, ",") {
		if err := checkCluster(name); err != nil {
			return err
		}
	}
	return nil
}

func checkCluster(name string) error {
	const field = "cluster"
	if textLen(name) > maxClusterLen {
		return tooLong(field, maxClusterLen)
	}
	if name == "" || !all(name, func(c byte) bool { return wordByte(c) || c == '-' }) {
		return illegal(field)
	}
	return nil
}

// CheckIP refuses an address with white space or Chinese characters, over 128
// long, or made of digits and dots without being an IPv4 address. Host names and
// IPv6 addresses pass.
func CheckIP(s string) error {
	const field = "ip"
	if textLen(s) > maxIPLen {
		return tooLong(field, maxIPLen)
	}
	if s == "" {
		return &InvalidError{FaultParam, field, "Param 'ip' is required."}
	}
	if !cleanText(s) {
		return illegal(field)
	}
	if all(s, func(c byte) bool { return c == '.' || c >= '0' && c <= '9' }) {
		if a, err := netip.ParseAddr(s); err != nil || !a.Is4() {
			return &InvalidError{FaultParam, field, "Param 'ip' is illegal, '" + s + "' is neither an IP address nor a host name."}
		}
	}
	return nil
}

// CheckPort refuses a port outside 0 to 65535.
func CheckPort(p int) error {
	if p < 0 || p > math.MaxUint16 {
		return badPort()
	}
	return nil
}

func badPort() error {
	return &InvalidError{FaultParam, "port", "Param 'port' is illegal, the value should be between 0 and 65535."}
}

// ParsePort reads a port; text that is no number is refused like one out of range.
func ParsePort(s string) (int, error) {
	p, err := strconv.Atoi(s)
	if err != nil {
		return 0, badPort()
	}
	return p, CheckPort(p)
}

// CheckWeight refuses a weight outside 0 to 10000, and NaN.
func CheckWeight(w float64) error {
	if w >= 0 && w <= maxWeight {
		return nil
	}
	return &InvalidError{FaultWeight, "weight", "instance format invalid: The weights range from 0.0 to 10000.0"}
}

// CheckMetadata refuses metadata whose keys and values together are longer than
// limit characters, or hold text that is no UTF-8.
func CheckMetadata(m map[string]string, limit int) error {
	const field = "Metadata"
	n := 0
	for k, v := range m {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return illegal(field)
		}
		n += textLen(k) + textLen(v)
	}
	if n > limit {
		return tooLong(field, limit)
	}
	return nil
}

// CheckInstance is the one validator of registrations, for every protocol.
// metadataLimit is in characters, see [CheckMetadata].
func CheckInstance(i *Instance, metadataLimit int) error {
	if err := CheckIP(i.IP); err != nil {
		return err
	}
	if err := CheckPort(i.Port); err != nil {
		return err
	}
	if err := CheckMetadata(i.Metadata, metadataLimit); err != nil {
		return err
	}
	if !utf8.ValidString(i.ID) {
		return illegal("instanceId")
	}
	if textLen(i.ID) > maxServiceLen {
		return tooLong("instanceId", maxServiceLen)
	}
	if err := checkCluster(i.Cluster); err != nil {
		return err
	}
	if !all(i.Cluster, func(c byte) bool { return wordByte(c) && c != '_' || c == '-' }) {
		return &InvalidError{FaultInstance, "clusterName", fmt.Sprintf("Instance 'clusterName' should be characters with only 0-9a-zA-Z-. (current: %s)", i.Cluster)}
	}
	if err := CheckWeight(i.Weight); err != nil {
		return err
	}
	return checkBehaviour(i)
}

// CheckOverride checks an override of a published instance by itself, and what the
// metadata of the two say together. metadataLimit is that of the override alone.
func CheckOverride(o *Override, i *Instance, metadataLimit int) error {
	if err := CheckWeight(o.Weight); err != nil {
		return err
	}
	if err := CheckMetadata(o.Metadata, metadataLimit); err != nil {
		return err
	}
	return checkBehaviour(o.Apply(i))
}

// checkBehaviour refuses metadata that tells the registry what cannot be.
func checkBehaviour(i *Instance) error {
	interval := i.BeatInterval(DefaultBeatInterval)
	if i.BeatTimeout() < interval || i.DeleteTimeout() < interval {
		return &InvalidError{FaultInstance, MetaBeatInterval, "Instance 'heart beat interval' must less than 'heart beat timeout' and 'ip delete timeout'."}
	}
	if g := i.Metadata[MetaIDGenerator]; g != "" && g != "simple" && g != "snowflake" {
		return &InvalidError{FaultInstance, MetaIDGenerator, fmt.Sprintf("Metadata '%s' is illegal, '%s' is neither simple nor snowflake.", MetaIDGenerator, g)}
	}
	return nil
}

// cleanText tells whether s is UTF-8 without white space, control characters
// and Chinese characters (U+4E00 to U+9FA5).
func cleanText(s string) bool {
	for _, r := range s {
		if r <= ' ' || r == 0x7f || r == utf8.RuneError || r >= 0x4E00 && r <= 0x9FA5 || r > 0x7f && unicode.IsSpace(r) {
			return false
		}
	}
	return true
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

func all(s string, ok func(byte) bool) bool {
	for n := range len(s) {
		if !ok(s[n]) {
			return false
		}
	}
	return true
}

// textLen counts UTF-16 units, as the limits of the protocol do.
func textLen(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
