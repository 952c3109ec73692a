//go:build tools

// Package assets names the commands that `cargo xtask assets` builds, so that `go mod tidy` keeps
// their modules in go.mod and pins their sums in go.sum. It is never compiled.
package assets

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
