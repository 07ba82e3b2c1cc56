package server

import (
	"context"
	"errors"
	"net/http"

	"rollcall/consistency"
	"rollcall/naming"
	"rollcall/server/wire"
)

// Refusal translates an error of the registry's methods into how it is answered.
// It is the only place where errors become codes.
func (r *Registry) Refusal(err error) wire.Refusal {
	out := wire.Refusal{Status: http.StatusBadRequest, Code: wire.CodeParameterInvalid, Text: err.Error()}
	var invalid *naming.InvalidError
	switch {
	case errors.As(err, &invalid):
		switch invalid.Fault {
		case naming.FaultParam:
			out.Param = true
		case naming.FaultMissing:
			out.Code = wire.CodeParameterMissing
		case naming.FaultInstance:
			out.Code = wire.CodeInstance
		case naming.FaultWeight:
			out.Code = wire.CodeWeight
		case naming.FaultMetadata:
			out.Code = wire.CodeMetadata
		case naming.FaultValue:
		case naming.FaultSelector:
			out.Code = wire.CodeSelector
		case naming.FaultKind:
			out.Code = wire.CodeServerError
			out.Wrapped = "errCode: 400, errMsg: " + err.Error() + " "
		case naming.FaultServiceUnknown:
			out.Code = wire.CodeServiceUnknown
		case naming.FaultServiceExists:
			out.Code = wire.CodeServiceExists
		case naming.FaultServiceNotEmpty:
			out.Code = wire.CodeServiceNotEmpty
		case naming.FaultInstanceUnknown:
			out.Status, out.Code = http.StatusNotFound, wire.CodeInstanceUnknown
		case naming.FaultResourceUnknown:
			out.Status, out.Code = http.StatusNotFound, wire.CodeNotFound
		case naming.FaultCatalogUnknown:
			out.Status, out.Code = http.StatusNotFound, wire.CodeServerError
		case naming.FaultHealthMissing:
			out.Code = wire.CodeHealthMissing
		case naming.FaultHealthChecked:
			out.Code = wire.CodeHealthChecked
		case naming.FaultNamespace:
			out.Code = wire.CodeNamespace
		case naming.FaultNamespaceUnknown:
			out.Status, out.Code = http.StatusNotFound, wire.CodeNamespaceUnknown
		case naming.FaultNamespaceExists:
			out.Code = wire.CodeNamespaceExists
		case naming.FaultState:
			out.Code = wire.CodeState
		case naming.FaultMediaType:
			out.Code = wire.CodeMediaType
		case naming.FaultOther:
			out.Code = wire.CodeServerError
		}
	case errors.Is(err, consistency.ErrNoLeader), errors.Is(err, consistency.ErrReadOnly), errors.Is(err, consistency.ErrNotReady),
		errors.Is(err, consistency.ErrClosed), errors.Is(err, consistency.ErrUnknownOutcome),
		errors.Is(err, errUnsent), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		out.Status, out.Code = http.StatusServiceUnavailable, wire.CodeServerError
	default:
		out.Status, out.Code = http.StatusInternalServerError, wire.CodeServerError
	}
	return out
}
