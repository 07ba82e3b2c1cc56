package integration

import "syscall"

// childAttr makes the kernel kill a node whose test process dies without
// running its clean-ups, as a test timeout does.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
