package naming

import "strings"

// Namespace is an operator's record of a namespace. Services may live in a namespace
// that nobody recorded.
type Namespace struct {
	ID, Name, Description string
}

// maxNamespaceText bounds the name and the description of a namespace, in
// characters (http.md 1.7).
const maxNamespaceText = 256

// CheckNamespaceName refuses a display name with one of @#$%^&* in it, or over 256
// long.
func CheckNamespaceName(s string) error {
	const field = "namespaceShowName"
	if textLen(s) > maxNamespaceText {
		return tooLong(field, maxNamespaceText)
	}
	if strings.ContainsAny(s, "@#$%^&*") {
		return illegal(field)
	}
	return nil
}

// CheckNamespaceDescription refuses a description over 256 long.
func CheckNamespaceDescription(s string) error {
	if textLen(s) > maxNamespaceText {
		return tooLong("namespaceDesc", maxNamespaceText)
	}
	return nil
}
