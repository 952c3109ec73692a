package main

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// workSource is the namespace of the objects that are watched in suite work.
const workSource = "work-source"

// onlySource limits caches to the objects of suite work.
func onlySource(o *cluster.Options) {
	o.Cache.DefaultNamespaces = map[string]cache.Config{workSource: {}}
}

// apply applies a copy of an object that was written in this round, server-side, into the namespace of its cluster.
func (b *bench) apply(ctx context.Context, to client.Client, namespace string, object *corev1.ConfigMap) error {
	if b.round == 0 || object.Data["round"] != strconv.FormatInt(b.round, 10) {
		return nil
	}
	copied := corev1ac.ConfigMap(object.Name, namespace).WithData(object.Data)
	err := to.Apply(ctx, copied, client.ForceOwnership, client.FieldOwner("mcr-bench"))
	if err != nil {
		b.failed.Add(1)
		return err
	}
	if b.applied.Add(1) == b.expected {
		b.send(map[string]any{"event": "applied", "at": time.Now().UnixNano(), "failed": b.failed.Load()})
	}
	return nil
}
