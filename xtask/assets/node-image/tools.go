//go:build tools

// Package nodeimage names the command that `cargo xtask node-image` builds, so that `go mod tidy` keeps its module in
// go.mod and pins its sums in go.sum. It is never compiled.
package nodeimage

import (
	_ "k8s.io/kubernetes/cmd/kubeadm"
)
