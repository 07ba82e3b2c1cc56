module rollcall

go 1.26

// raft-boltdb v2.3.1 imports a package that go-metrics dropped in v0.7.0.
exclude github.com/hashicorp/go-metrics v0.7.0
