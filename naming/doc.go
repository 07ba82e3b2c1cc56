// Package naming says what a service and an instance are: their keys, the one
// validator that every protocol uses, and the pure function that turns what is
// registered into what a client sees.
//
// # Invariants
//
//   - A service is named by namespace, group and name. Whether it is ephemeral
//     or persistent is no part of its key: the instances that it holds decide,
//     and an empty service has no kind unless somebody created it explicitly.
//   - An instance is one ip:port in one cluster of a service. A view shows one
//     row for each; [Service.Instances] is sorted by cluster, ip and port.
//   - Instances, settings and overrides are immutable once they have been handed
//     to a store: a change makes a new value. So readers share them unlocked.
//   - Text that is legal goes in and comes out byte for byte.
//
// # Choices where users of such registries report different wishes
//
//   - A text of digits and dots that is no IPv4 address is refused, host names
//     are accepted. Nacos 2.3 and later accept both, and 10.0.0.999 then sits in
//     every client's list.
//   - Heartbeat times below [MinBeatTime] count as that minimum: users wrote
//     seconds where milliseconds are meant, and lost their instances at once.
//   - Protection (threshold) can be switched off for a service by its metadata
//     key [MetaProtection] with the value "off": a negative threshold counts as
//     0, as in Nacos, so it cannot serve as that switch.
//   - When protection is active and not one instance is healthy, a query for
//     healthy instances answers the protected list: the caller needs it most. While
//     some are healthy it gets those, as from Nacos.
package naming
