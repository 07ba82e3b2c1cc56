package server

import (
	"context"
	"strconv"
	"strings"
	"time"

	"rollcall/naming"
)

// defaultSwitches is what holds until an operator changes it.
func defaultSwitches(cfg Config) naming.Switches {
	return naming.Switches{
		LightBeatEnabled: true, DefaultInstanceEphemeral: true, AutoChangeHealthCheckEnabled: true,
		ClientBeatIntervalMs: cfg.BeatInterval.Milliseconds(),
	}
}

// Switches returns the switches as they are now.
func (r *Registry) Switches() naming.Switches {
	if s := r.switches.Load(); s != nil {
		return *s
	}
	return defaultSwitches(r.cfg)
}

func (r *Registry) beatInterval() time.Duration {
	return time.Duration(r.Switches().ClientBeatIntervalMs) * time.Millisecond
}

// ChangeSwitch changes one switch. An unknown one, or a value that it cannot
// have, is refused: there is no "ok" without effect.
func (r *Registry) ChangeSwitch(_ context.Context, entry, value string) error {
	bad := func(rule string) error {
		return &naming.InvalidError{Fault: naming.FaultValue, Field: "value", Text: "Param 'value' is illegal, the switch " + entry + " should be " + rule + "."}
	}
	s := r.Switches()
	flag := func(into *bool) error {
		switch strings.ToLower(value) {
		case "true":
			*into = true
		case "false":
			*into = false
		default:
			return bad("true or false")
		}
		return nil
	}
	var err error
	switch entry {
	case "lightBeatEnabled":
		err = flag(&s.LightBeatEnabled)
	case "defaultInstanceEphemeral":
		err = flag(&s.DefaultInstanceEphemeral)
	case "autoChangeHealthCheckEnabled":
		err = flag(&s.AutoChangeHealthCheckEnabled)
	case "clientBeatInterval":
		ms, errNumber := strconv.ParseInt(value, 10, 64)
		if errNumber != nil || ms <= 0 {
			return bad("a number of milliseconds above 0")
		}
		s.ClientBeatIntervalMs = ms
	case "overriddenServerStatus":
		if value != "UP" && value != "null" {
			return bad("UP or null: this node cannot be forced into another state")
		}
	default:
		return &naming.InvalidError{Fault: naming.FaultValue, Field: "entry", Text: "Param 'entry' is illegal, there is no switch '" + entry + "'."}
	}
	if err != nil {
		return err
	}
	r.switches.Store(&s)
	return nil
}
