//go:build tools

// Package tools names the managers that `cargo xtask assets --capi` builds, so that `go mod tidy` keeps their modules in go.mod
// and pins their sums in go.sum. It is never compiled.
package tools

import (
	_ "sigs.k8s.io/cluster-api/controlplane/kubeadm"
	_ "sigs.k8s.io/cluster-api/core"
)
