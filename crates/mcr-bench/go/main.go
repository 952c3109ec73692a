// Command bench is the Go side of the benchmarks: one controller-runtime cluster.Cluster for each context of a
// kubeconfig, and one controller with one work queue over all of them, as Go's multicluster-runtime has it underneath.
//
// With -mode serial clusters are engaged one after the other, each waited for until its cache is synced, as the
// providers of multicluster-runtime do it. With -mode concurrent all are engaged at once, discovery is asked of one
// cluster only, and managedFields are not kept: what someone who has measured would write.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// request is what the queue holds: an object of a kind in a cluster.
type request struct {
	cluster string
	kind    string
	object  types.NamespacedName
}

// observation is one beat that one cluster's reconciler has seen.
type observation struct {
	Cluster string `json:"cluster"`
	Seq     int64  `json:"seq"`
	At      int64  `json:"at"`
}

// bench is what the reconciler counts, and reports on stdout.
type bench struct {
	clusters sync.Map // name -> cluster.Cluster
	kinds    []string
	expected int64
	work     time.Duration
	round    int64
	plain    bool
	count    atomic.Int64
	applied  atomic.Int64
	failed   atomic.Int64
	mu       sync.Mutex
	beats    []observation
	out      sync.Mutex
}

func (b *bench) send(value any) {
	b.out.Lock()
	defer b.out.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(value)
}

// Reconcile reads the object from its cluster's cache, as every controller does.
func (b *bench) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	found, ok := b.clusters.Load(req.cluster)
	if !ok {
		return reconcile.Result{}, nil
	}
	if b.work > 0 {
		time.Sleep(b.work)
	}
	reader := found.(cluster.Cluster).GetClient()
	read := kinds[req.kind].new()
	if err := reader.Get(ctx, req.object, read); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	object, isMap := read.(*corev1.ConfigMap)
	if isMap && object.Name == "beat" {
		var seq int64
		if _, err := fmt.Sscan(object.Data["seq"], &seq); err == nil {
			b.mu.Lock()
			b.beats = append(b.beats, observation{Cluster: req.cluster, Seq: seq, At: time.Now().UnixNano()})
			b.mu.Unlock()
		}
	}
	if b.count.Add(1) == b.expected {
		b.send(map[string]any{"event": "synced", "at": time.Now().UnixNano()})
	}
	if !isMap {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, b.apply(ctx, reader, req.cluster, object)
}

// engage makes a context a cluster and has the controller follow it, after its cache is synced or before.
func (b *bench) engage(ctx context.Context, config *clientcmdapi.Config, name string, wait bool, ctrl controller.TypedController[request], options ...cluster.Option) error {
	access, err := clientcmd.NewNonInteractiveClientConfig(*config, name, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return err
	}
	// The queue is what limits; the default of 20 requests a second is for people.
	access.QPS = -1
	access.DisableCompression = b.plain
	made, err := cluster.New(access, options...)
	if err != nil {
		return err
	}
	go func() {
		if err := made.Start(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		}
	}()
	if !made.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("%s: its cache did not start", name)
	}
	b.clusters.Store(name, made)
	for _, kind := range b.kinds {
		if err := follow(ctx, made, name, kind, wait, ctrl); err != nil {
			return err
		}
	}
	return nil
}

// follow has the controller follow a kind of a cluster.
func follow(ctx context.Context, made cluster.Cluster, name, kind string, wait bool, ctrl controller.TypedController[request]) error {
	// Whether this waits for the cache to be synced is the one difference between the modes here. Not done inside of
	// Watch, which holds the controller's lock.
	informer, err := made.GetCache().GetInformer(ctx, kinds[kind].new(), cache.BlockUntilSynced(wait))
	if err != nil {
		return err
	}
	if wait && !made.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("%s: its cache did not sync", name)
	}
	return ctrl.Watch(source.TypedFunc[request](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
		enqueue := func(object any) {
			if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if object, ok := object.(client.Object); ok {
				queue.Add(request{cluster: name, kind: kind, object: client.ObjectKeyFromObject(object)})
			}
		}
		_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    enqueue,
			UpdateFunc: func(_, object any) { enqueue(object) },
			DeleteFunc: enqueue,
		})
		return err
	}))
}

// answer answers the questions on stdin, line by line.
// The process ends with its stdin, so that none outlives a driver that was killed.
func (b *bench) answer() {
	defer os.Exit(0)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch strings.TrimSpace(lines.Text()) {
		case "seen":
			b.send(map[string]any{"event": "seen", "count": b.count.Load()})
		case "beats":
			b.mu.Lock()
			beats := b.beats
			b.beats = nil
			b.mu.Unlock()
			if beats == nil {
				beats = []observation{}
			}
			b.send(map[string]any{"event": "beats", "beats": beats})
		}
	}
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "the file whose contexts are the clusters")
	expect := flag.Int64("expect", 0, "how many objects there are in all clusters together")
	mode := flag.String("mode", "serial", "serial or concurrent")
	workers := flag.Int("workers", 0, "how many reconciles run at once, if not the default number")
	work := flag.Int64("work", 0, "how long each reconcile takes, in microseconds")
	threads := flag.Int("threads", 0, "how many threads run Go code at once, if not one for each core")
	round := flag.Int64("round", 0, "the round of suite work: only objects of its namespace are watched, and those written in this round are applied")
	list := flag.String("kinds", "configmaps", "which kinds are watched, separated by commas")
	gzip := flag.String("gzip", "on", "whether lists are compressed: off, on, or lists, with LISTs in place of streaming lists")
	flag.Parse()
	if *gzip == "lists" {
		// client-go reads it when it is first asked for a feature.
		os.Setenv("KUBE_FEATURE_WatchListClient", "false")
	}
	if *threads > 0 {
		goruntime.GOMAXPROCS(*threads)
	}
	if *mode != "serial" && *mode != "concurrent" {
		return fmt.Errorf("-mode is serial or concurrent, not %q", *mode)
	}
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	server.DefaultBindAddress = "0"
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	names, err := named(*list)
	if err != nil {
		return err
	}
	b := &bench{kinds: names, expected: *expect, work: time.Duration(*work) * time.Microsecond, round: *round, plain: *gzip == "off"}
	go b.answer()
	config, err := clientcmd.LoadFromFile(*kubeconfig)
	if err != nil {
		return err
	}
	scheme, mapper, err := schemeOf(names)
	if err != nil {
		return err
	}
	options := []cluster.Option{func(o *cluster.Options) { o.Scheme = scheme; o.Logger = logr.Discard() }}
	skip := true
	settings := controller.TypedOptions[request]{
		Reconciler:         b,
		SkipNameValidation: &skip,
		Logger:             logr.Discard(),
		LogConstructor:     func(*request) logr.Logger { return logr.Discard() },
	}
	if *mode == "concurrent" {
		settings.MaxConcurrentReconciles = 256
		options = append(options, func(o *cluster.Options) {
			o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
			o.Cache = cache.Options{DefaultTransform: cache.TransformStripManagedFields()}
		})
	}
	if *round > 0 {
		options = append(options, onlySource)
	}
	if *workers > 0 {
		settings.MaxConcurrentReconciles = *workers
	}
	ctrl, err := controller.NewTypedUnmanaged("bench", settings)
	if err != nil {
		return err
	}
	// A controller that is not started yet keeps its watches for later: it must run before clusters are engaged.
	running := make(chan error, 1)
	started := make(chan struct{})
	if err := ctrl.Watch(source.TypedFunc[request](func(context.Context, workqueue.TypedRateLimitingInterface[request]) error {
		close(started)
		return nil
	})); err != nil {
		return err
	}
	go func() { running <- ctrl.Start(ctx) }()
	<-started

	switch *mode {
	case "serial":
		for name := range config.Contexts {
			if err := b.engage(ctx, config, name, true, ctrl, options...); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			}
		}
	case "concurrent":
		for name := range config.Contexts {
			go func() {
				if err := b.engage(ctx, config, name, false, ctrl, options...); err != nil {
					fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
				}
			}()
		}
	}
	return <-running
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
