package wire

// Codes of the protocol's v2 and v3 answers (http.md 1.6).
const (
	CodeSuccess          = 0
	CodeParameterMissing = 10000
	CodeParameterInvalid = 20002
	CodeMediaType        = 20003
	CodeNotFound         = 20004
	CodeWeight           = 21001
	CodeMetadata         = 21002
	CodeInstanceUnknown  = 21003
	CodeInstance         = 21004
	CodeSelector         = 21006
	CodeServiceExists    = 21007
	CodeServiceUnknown   = 21008
	CodeServiceNotEmpty  = 21009
	CodeHealthMissing    = 21010
	CodeHealthChecked    = 21011
	CodeNamespace        = 22000
	CodeNamespaceUnknown = 22001
	CodeNamespaceExists  = 22002
	CodeState            = 23000
	CodeServerError      = 30000
	CodeAbsent           = 40001
	CodeTooManyPatterns  = 50310
	CodeTooManyMatches   = 50311
)

var codeMessages = map[int]string{ //nolint:gochecknoglobals // a constant table
	CodeSuccess:          "success",
	CodeParameterMissing: "parameter missing",
	CodeParameterInvalid: "parameter validate error",
	CodeMediaType:        "MediaType Error",
	CodeNotFound:         "resource not found",
	CodeWeight:           "weight error",
	CodeMetadata:         "instance metadata error",
	CodeInstanceUnknown:  "instance not found",
	CodeInstance:         "instance error",
	CodeSelector:         "selector error",
	CodeServiceExists:    "service already exist",
	CodeServiceUnknown:   "service not exist",
	CodeServiceNotEmpty:  "service delete failure",
	CodeHealthMissing:    "healthy param miss",
	CodeHealthChecked:    "health check still running",
	CodeNamespace:        "illegal namespace",
	CodeNamespaceUnknown: "namespace not exist",
	CodeNamespaceExists:  "namespace already exist",
	CodeState:            "illegal state",
	CodeServerError:      "server error",
	CodeAbsent:           "API function disabled.",
	CodeTooManyPatterns:  "fuzzy watch pattern over limit",
	CodeTooManyMatches:   "fuzzy watch pattern matched count over limit",
}

// CodeMessage returns the fixed text of a v2 code.
func CodeMessage(code int) string { return codeMessages[code] }

// Refusal is how a failed request is answered.
type Refusal struct {
	Status int    // of HTTP
	Code   int    // of the v2 and v3 result
	Text   string // for the client
	// Param: the value broke a parameter rule. HTTP answers those in plain text on
	// every path; gRPC in the handler's own response type.
	Param bool
	// Wrapped is the text as the protocol wraps it for errors of the runtime kind.
	Wrapped string
}
