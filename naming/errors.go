package naming

// Fault tells which rule a refused request broke; front ends choose the code and
// the form of the answer by it.
type Fault uint8

// The families of rules. Nodes tell each other these numbers: add new ones at the end.
const (
	FaultParam            Fault = iota // a name, address or size that the parameter rules forbid
	FaultMissing                       // a required value is missing
	FaultInstance                      // an instance that contradicts itself
	FaultWeight                        // a weight out of range
	FaultMetadata                      // metadata that cannot be read
	FaultValue                         // any other value that cannot be read
	FaultSelector                      // a selector that cannot be read
	FaultKind                          // an instance of the kind that the service does not take
	FaultServiceUnknown                // no such service
	FaultServiceExists                 // the service exists already
	FaultServiceNotEmpty               // the service still has instances
	FaultInstanceUnknown               // no such instance to change
	FaultResourceUnknown               // no such thing to show
	FaultCatalogUnknown                // no such service or cluster to list
	FaultHealthMissing                 // no health given
	FaultHealthChecked                 // the health is not for operators to set
	FaultNamespace                     // a namespace that cannot be
	FaultNamespaceUnknown              // no such namespace
	FaultNamespaceExists               // the namespace exists already
	FaultState                         // no such state of a node
	FaultMediaType                     // a body of a kind that is not read
	FaultOther                         // any other fault of the request
)

// InvalidError is a request that was refused for a fault of its own. Nothing was
// changed. Its text is what the protocol answers, with the field named in it.
type InvalidError struct {
	Fault Fault
	Field string // the parameter as the protocol names it
	Text  string
}

// Error returns the text for the client.
func (e *InvalidError) Error() string { return e.Text }
