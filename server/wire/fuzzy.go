package wire

import (
	"strconv"
	"strings"

	"rollcall/naming"
)

// Types and words of fuzzy watches (grpc.md 3.11).
const (
	TypeFuzzyWatch   = "NamingFuzzyWatchRequest"
	TypeFuzzyAnswer  = "NamingFuzzyWatchResponse"
	TypeFuzzySync    = "NamingFuzzyWatchSyncRequest"
	TypeFuzzyChange  = "NamingFuzzyWatchChangeNotifyRequest"
	WatchFuzzy       = "WATCH"
	CancelWatchFuzzy = "CANCEL_WATCH"
	FuzzyInit        = "FUZZY_WATCH_INIT_NOTIFY"
	FuzzyFinish      = "FINISH_FUZZY_WATCH_INIT_NOTIFY"
	FuzzyDiff        = "FUZZY_WATCH_DIFF_SYNC_NOTIFY"
	fuzzyChanged     = "FUZZY_WATCH_RESOURCE_CHANGED"
)

// FuzzyWatchRequest watches a pattern, or ends that.
type FuzzyWatchRequest struct {
	Pattern      Str   `json:"groupKeyPattern"`
	WatchType    Str   `json:"watchType"`
	Initializing Bool  `json:"initializing"`
	Received     []Str `json:"receivedGroupKeys"` // services that the client has
}

// FuzzyContext is one service that matches a pattern, or does so no more.
type FuzzyContext struct {
	Service naming.ServiceKey
	There   bool
}

// FuzzyAnswer says that the watch is, or is ended.
func FuzzyAnswer() *Payload {
	return answer(TypeFuzzyAnswer, []byte(`{"resultCode":200,"errorCode":0,"success":true}`))
}

// FuzzyRefused says that a limit is reached.
func FuzzyRefused(code int) *Payload {
	return answer(TypeFuzzyAnswer, failure(500, code, CodeMessage(code), nil))
}

// ParseServiceKey reads "namespace@@group@@name".
func ParseServiceKey(s string) (k naming.ServiceKey, ok bool) {
	parts := strings.SplitN(s, naming.Separator, 3)
	if len(parts) != 3 {
		return k, false
	}
	return naming.ServiceKey{Namespace: parts[0], Group: parts[1], Name: parts[2]}, true
}

func appendFuzzyService(b []byte, k naming.ServiceKey, there bool) []byte {
	b = AppendString(append(b, `"serviceKey":`...), k.Namespace+naming.Separator+k.Grouped())
	change := "DELETE_SERVICE"
	if there {
		change = "ADD_SERVICE"
	}
	return AppendString(append(b, `,"changedType":`...), change)
}

// FuzzySync is one batch of a round of a pattern's services; seq comes back in its
// acknowledgement.
func FuzzySync(serverIP string, seq uint64, sync, pattern string, contexts []FuzzyContext, total, current int) *Payload {
	b := strconv.AppendUint([]byte(`{"headers":{},"requestId":"`), seq, 10)
	b = AppendString(append(b, `","syncType":`...), sync)
	b = AppendString(append(b, `,"groupKeyPattern":`...), pattern)
	b = append(b, `,"contexts":[`...)
	for n, c := range contexts {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(appendFuzzyService(append(b, '{'), c.Service, c.There), '}')
	}
	b = strconv.AppendInt(append(b, `],"totalBatch":`...), int64(total), 10)
	b = strconv.AppendInt(append(b, `,"currentBatch":`...), int64(current), 10)
	return &Payload{Type: TypeFuzzySync, ClientIP: serverIP, Body: [][]byte{append(b, `,"module":"naming"}`...)}}
}

// FuzzyChange says that a service has appeared or gone; seq comes back in its
// acknowledgement.
func FuzzyChange(serverIP string, seq uint64, svc naming.ServiceKey, there bool) *Payload {
	b := strconv.AppendUint([]byte(`{"headers":{},"requestId":"`), seq, 10)
	b = AppendString(append(b, `","syncType":`...), fuzzyChanged)
	b = appendFuzzyService(append(b, ','), svc, there)
	return &Payload{Type: TypeFuzzyChange, ClientIP: serverIP, Body: [][]byte{append(b, `,"module":"naming"}`...)}}
}
