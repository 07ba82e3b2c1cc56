package naming

import "time"

// Backup says what is in a file that holds the persistent data of all nodes.
type Backup struct {
	Bytes     int64     `json:"bytes"`
	Format    int       `json:"format"`
	Index     uint64    `json:"index"`         // log index of the last write in it
	Time      time.Time `json:"time,omitzero"` // of that write, by the clock of the leader; zero when unknown
	Cluster   string    `json:"cluster"`       // id of the nodes whose data it is; empty when they had none yet
	Services  int       `json:"services"`      // with settings, instances or overrides
	Instances int       `json:"instances"`     // published ones, doubles by several publishers counted
	Settings  int       `json:"settings"`
	Overrides int       `json:"overrides"`
	Switches  int       `json:"switches"`
	Clusters  int       `json:"clusters"` // settings of clusters
	Recorded  int       `json:"recorded"` // namespaces that operators recorded
	// Namespaces is the number of services in each namespace.
	Namespaces map[string]int `json:"namespaces"`
}

// BackupChange is what a restored backup does to the data that is there, counted in
// records: instances, settings, overrides, switches, clusters and namespaces.
type BackupChange struct {
	Added     int `json:"added"`
	Removed   int `json:"removed"`
	Altered   int `json:"altered"`
	Unchanged int `json:"unchanged"`
}
