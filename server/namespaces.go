package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"rollcall/consistency"
	"rollcall/naming"
)

// Namespaces returns the default namespace and then the recorded ones, sorted by id.
// Services may live in others too: naming does not ask whether a namespace is
// recorded.
func (r *Registry) Namespaces() []naming.Namespace {
	return slices.Concat([]naming.Namespace{{
		ID: naming.DefaultNamespace, Name: naming.DefaultNamespace, Description: "Default Namespace",
	}}, r.router.Namespaces())
}

// Namespace returns the namespace with the id, which may be the default one. The
// error is of FaultNamespaceUnknown if it is not recorded.
func (r *Registry) Namespace(id string) (naming.Namespace, error) {
	for _, n := range r.Namespaces() {
		if n.ID == id {
			return n, nil
		}
	}
	return naming.Namespace{}, &naming.InvalidError{Fault: naming.FaultNamespaceUnknown, Field: "namespaceId", Text: "namespaceId [ " + id + " ] not exist"}
}

// CreateNamespace records a namespace; without an id it gets a random one.
func (r *Registry) CreateNamespace(ctx context.Context, n naming.Namespace) error {
	if n.ID == "" {
		var err error
		if n.ID, err = newUUID(); err != nil {
			return err
		}
	}
	if err := checkNamespace(n); err != nil {
		return err
	}
	if n.ID == naming.DefaultNamespace {
		return &naming.InvalidError{Fault: naming.FaultNamespaceExists, Field: "namespaceId", Text: "namespaceId [public] is default namespace id and already exist."}
	}
	if err := r.consistent(ctx); err != nil {
		return err
	}
	if _, err := r.Namespace(n.ID); err == nil {
		return &naming.InvalidError{Fault: naming.FaultNamespaceExists, Field: "namespaceId", Text: "namespaceId [" + n.ID + "] already exist."}
	}
	return r.putNamespace(ctx, n)
}

// UpdateNamespace replaces the name and the description of a recorded namespace.
func (r *Registry) UpdateNamespace(ctx context.Context, n naming.Namespace) error {
	if err := checkNamespace(n); err != nil {
		return err
	}
	if n.ID == naming.DefaultNamespace {
		return &naming.InvalidError{Fault: naming.FaultNamespace, Field: "namespaceId", Text: "namespaceId [public] is the default namespace, whose name is fixed"}
	}
	if err := r.consistent(ctx); err != nil {
		return err
	}
	if _, err := r.Namespace(n.ID); err != nil {
		return err
	}
	return r.putNamespace(ctx, n)
}

// DeleteNamespace removes the record of a namespace; one that is not recorded is no
// error, and the default one stays. Services in it stay as they are.
func (r *Registry) DeleteNamespace(ctx context.Context, id string) error {
	if err := naming.CheckNamespace(id); err != nil {
		return err
	}
	if id == naming.DefaultNamespace {
		return nil
	}
	return r.router.DeletePersistent(ctx, consistency.NamespaceKey(id))
}

func (r *Registry) putNamespace(ctx context.Context, n naming.Namespace) error {
	return r.router.Put(ctx, consistency.Datum{Key: consistency.NamespaceKey(n.ID), Namespace: &n})
}

func checkNamespace(n naming.Namespace) error {
	if err := naming.CheckNamespace(n.ID); err != nil {
		return err
	}
	if err := naming.CheckNamespaceName(n.Name); err != nil {
		return err
	}
	return naming.CheckNamespaceDescription(n.Description)
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make a namespace id: %w", err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}
