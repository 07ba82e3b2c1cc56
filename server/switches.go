package server

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"rollcall/consistency"
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
func (r *Registry) Switches() naming.Switches { return *r.switches.Load() }

// loadSwitches lays what operators changed over the defaults. A value that this
// version cannot read, written by another one, leaves the default.
func (r *Registry) loadSwitches() {
	s := defaultSwitches(r.cfg)
	for entry, value := range r.router.Switches() {
		if err := setSwitch(&s, entry, value); err != nil {
			r.log.Warn("stored switch is not understood", "switch", entry, "err", err)
		}
	}
	r.switches.Store(&s)
}

func (r *Registry) beatInterval() time.Duration {
	return time.Duration(r.Switches().ClientBeatIntervalMs) * time.Millisecond
}

// ChangeSwitch changes one switch on all nodes. An unknown one, or a value that it
// cannot have, is refused: there is no "ok" without effect.
func (r *Registry) ChangeSwitch(ctx context.Context, entry, value string) error {
	s := r.Switches()
	if err := setSwitch(&s, entry, value); err != nil {
		return err
	}
	return r.router.Put(ctx, consistency.Datum{Key: consistency.Key{Kind: consistency.KindSwitch, Switch: entry}, Value: value})
}

// setSwitch sets one switch from its text.
func setSwitch(s *naming.Switches, entry, value string) error {
	bad := func(rule string) error {
		return &naming.InvalidError{Fault: naming.FaultValue, Field: "value", Text: "Param 'value' is illegal, the switch " + entry + " should be " + rule + "."}
	}
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
	switch entry {
	case "lightBeatEnabled":
		return flag(&s.LightBeatEnabled)
	case "defaultInstanceEphemeral":
		return flag(&s.DefaultInstanceEphemeral)
	case "autoChangeHealthCheckEnabled":
		return flag(&s.AutoChangeHealthCheckEnabled)
	case "clientBeatInterval":
		ms, err := strconv.ParseInt(value, 10, 64)
		if err != nil || ms <= 0 || ms > math.MaxInt32 {
			return bad("a number of milliseconds from 1 to " + strconv.Itoa(math.MaxInt32))
		}
		s.ClientBeatIntervalMs = ms
		return nil
	case "overriddenServerStatus":
		if value != "UP" && value != "null" {
			return bad("UP or null: a node cannot be forced into another state")
		}
		return nil
	}
	return &naming.InvalidError{Fault: naming.FaultValue, Field: "entry", Text: "Param 'entry' is illegal, there is no switch '" + entry + "'."}
}
