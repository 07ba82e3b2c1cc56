package consistency

import "context"

type (
	forwardedKey struct{}
	inferredKey  struct{}
)

// WithForwarded returns a context for the writes of a request that another node
// has passed on: a store of ephemeral data takes them even where it holds that
// another node is the owner. So a request goes from node to node once, whatever
// two nodes think of each other.
func WithForwarded(ctx context.Context) context.Context {
	return context.WithValue(ctx, forwardedKey{}, true)
}

// Forwarded tells whether the context is of WithForwarded.
func Forwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }

// WithInferred returns a context for writes that nobody asked for: an instance is
// removed or marked because its client was silent, or because its connection was
// lost. What a client, an operator or a node that hears the client says of the
// instance wins over such a write, even if it was said before it and is heard of
// later. A store of ephemeral data may hold a removal back for some seconds while it
// does not know yet what other nodes did.
func WithInferred(ctx context.Context) context.Context {
	return context.WithValue(ctx, inferredKey{}, true)
}

// Inferred tells whether the context is of WithInferred.
func Inferred(ctx context.Context) bool { return ctx.Value(inferredKey{}) != nil }
