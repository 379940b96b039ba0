package druid_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/etcd-volumes/etcd-volumes/test/cluster"
	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/controller"
	"github.com/etcd-volumes/etcd-volumes/test/druid/crds"
)

// These tests run the controller against a real API server, without controllers of Kubernetes' own: what a StatefulSet
// controller, a member or a garbage collector would do, a test does itself.

const (
	patience = 30 * time.Second
	pulse    = 20 * time.Millisecond
	never    = time.Hour
)

var (
	server *rest.Config
	scheme = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runWithServer(m))
}

func runWithServer(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return complain(err)
		}
	}
	if testing.Short() {
		return m.Run()
	}
	env := &envtest.Environment{Scheme: scheme}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		paths, err := cluster.BuildBinaries(context.Background(), os.Stderr)
		if err != nil {
			return complain(err)
		}
		env.ControlPlane.GetAPIServer().Path = paths["kube-apiserver"]
		env.ControlPlane.Etcd = &envtest.Etcd{Path: paths["etcd"]}
		env.ControlPlane.KubectlPath = paths["kubectl"]
	}
	config, err := env.Start()
	if err != nil {
		return complain(err)
	}
	server = config
	code := m.Run()
	if err := env.Stop(); err != nil {
		return complain(err)
	}
	return code
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// world is one namespace with a controller that looks after the Etcds of this namespace only.
type world struct {
	client.Client
	t         *testing.T
	namespace string
}

// newWorld starts the controller; it stops with the test.
func newWorld(t *testing.T, mods ...func(*controller.Config)) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real API server")
	}
	c, err := client.New(server, client.Options{Scheme: scheme})
	require.NoError(t, err)
	installCRD(t, c, false)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "druid-"}}
	require.NoError(t, c.Create(t.Context(), namespace))

	config := controller.DefaultConfig()
	config.StatusSyncPeriod, config.RetryInterval, config.CleanupInterval = 200*time.Millisecond, never, 100*time.Millisecond
	for _, mod := range mods {
		mod(&config)
	}
	mgr, err := ctrl.NewManager(server, ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Cache:      cacheOf(namespace.Name),
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Event{}}}},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	require.NoError(t, err)
	require.NoError(t, controller.SetUp(mgr, config))
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-stopped)
	})
	return &world{Client: c, t: t, namespace: namespace.Name}
}

// installCRD puts the definition in place and waits until the server uses it.
func installCRD(t *testing.T, c client.Client, withCEL bool) {
	t.Helper()
	wanted, err := crds.Definition(withCEL)
	require.NoError(t, err)
	live := &apiextensionsv1.CustomResourceDefinition{}
	err = c.Get(t.Context(), client.ObjectKeyFromObject(wanted), live)
	if apierrors.IsNotFound(err) {
		require.NoError(t, c.Create(t.Context(), wanted))
	} else {
		require.NoError(t, err)
		live.Spec = wanted.Spec
		require.NoError(t, c.Update(t.Context(), live))
	}
	require.Eventually(t, func() bool {
		return c.List(t.Context(), &api.EtcdList{}) == nil
	}, patience, pulse, "the server does not know Etcds")
}

// etcd makes a new Etcd with three members on class slow, and waits until it is reconciled.
func (w *world) etcd(name string, mods ...func(*api.Etcd)) *api.Etcd {
	w.t.Helper()
	etcd := &api.Etcd{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       api.EtcdSpec{Labels: map[string]string{"app": name}, Replicas: 3, StorageClass: ptr.To("slow")},
	}
	for _, mod := range mods {
		mod(etcd)
	}
	require.NoError(w.t, w.Create(w.t.Context(), etcd))
	w.until(name, "it is reconciled", func(e *api.Etcd) bool {
		return ptr.Deref(e.Status.ObservedGeneration, 0) == e.Generation && operation(e) == "Reconcile/Succeeded"
	})
	return etcd
}

// until waits for the Etcd to be as wanted, and returns it.
func (w *world) until(name, what string, wanted func(*api.Etcd) bool) *api.Etcd {
	w.t.Helper()
	etcd := &api.Etcd{}
	require.Eventually(w.t, func() bool {
		etcd = &api.Etcd{}
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, etcd) == nil && wanted(etcd)
	}, patience, pulse, "waiting until "+what)
	return etcd
}

// change patches the Etcd.
func (w *world) change(name string, change func(*api.Etcd)) error {
	w.t.Helper()
	etcd := &api.Etcd{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, etcd))
	before := etcd.DeepCopy()
	change(etcd)
	return w.Patch(w.t.Context(), etcd, client.MergeFrom(before))
}

func (w *world) statefulSet(name string) *appsv1.StatefulSet {
	w.t.Helper()
	sts := &appsv1.StatefulSet{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, sts))
	return sts
}

// heartbeat lets a member renew its lease.
func (w *world) heartbeat(member, holder string) {
	w.t.Helper()
	lease := &coordinationv1.Lease{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: member}, lease))
	lease.Spec.HolderIdentity = &holder
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now()))
	require.NoError(w.t, w.Update(w.t.Context(), lease))
}

// pod makes a member's pod, as a StatefulSet controller would.
func (w *world) pod(etcd *api.Etcd, ordinal int32) {
	w.t.Helper()
	require.NoError(w.t, w.Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: etcd.PodName(ordinal), Labels: etcd.DefaultLabels()},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "etcd", Image: "any"}}},
	}))
}

func operation(etcd *api.Etcd) string {
	if op := etcd.Status.LastOperation; op != nil {
		return string(op.Type) + "/" + string(op.State)
	}
	return ""
}

func annotate(key, value string) func(*api.Etcd) {
	return func(e *api.Etcd) { metav1.SetMetaDataAnnotation(&e.ObjectMeta, key, value) }
}

func automatic(c *controller.Config) { c.AutoReconcile = true }

func (w *world) emptyStatefulSet() *appsv1.StatefulSet { return &appsv1.StatefulSet{} }

// raw is the spec of an Etcd with all its fields.
func (w *world) raw(name string) map[string]any {
	w.t.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(api.GroupVersion.WithKind(api.Kind))
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, obj))
	spec, _, err := unstructured.NestedMap(obj.Object, "spec")
	require.NoError(w.t, err)
	return spec
}

func lenOf(list client.ObjectList) int { return meta.LenList(list) }
