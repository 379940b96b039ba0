package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-volumes/etcd-volumes/test/cluster"
	"github.com/etcd-volumes/etcd-volumes/test/cluster/node"
)

// The test binary is also a program that enters, and the image of the pods; its first argument says which.
const (
	argEntered = "entered"
	argServe   = "serve"
)

// shared is the one cluster that the tests of this package use, each in a namespace of its own.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == argServe {
		serve()
	}
	if len(os.Args) > 1 && os.Args[1] == argEntered {
		cluster.Enter()
		os.Exit(entered())
	}
	cluster.Enter(cluster.Program("./test/cluster/cmd/local-cluster"))
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	self, err := os.Executable()
	if err == nil {
		shared, err = cluster.Start(ctx, cluster.Options{Images: map[string]node.Image{
			"server": {Path: self, Args: []string{argServe}},
		}})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer shared.Stop()
	code := m.Run()
	if code != 0 {
		shared.DumpOnFailure(os.Stderr)
	}
	return code
}

// serve is the program of the pods: it says its name, fetches what it is told to, and keeps a file.
func serve() {
	const file = "/data/file"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /name", func(w http.ResponseWriter, _ *http.Request) {
		name, err := os.Hostname()
		answer(w, strings.NewReader(name), err)
	})
	mux.HandleFunc("GET /fetch", func(w http.ResponseWriter, r *http.Request) {
		resp, err := http.Get(r.URL.Query().Get("url"))
		if err != nil {
			answer(w, nil, err)
			return
		}
		defer resp.Body.Close()
		answer(w, resp.Body, nil)
	})
	mux.HandleFunc("GET /file", func(w http.ResponseWriter, _ *http.Request) {
		content, err := os.ReadFile(file)
		answer(w, strings.NewReader(string(content)), err)
	})
	mux.HandleFunc("PUT /file", func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err == nil {
			err = os.WriteFile(file, content, 0o600)
		}
		answer(w, strings.NewReader(""), err)
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Println("listening")
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func answer(w http.ResponseWriter, body io.Reader, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.Copy(w, body)
}

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: registry.example/some/path/server:v1
          readinessProbe: {httpGet: {path: /name, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: NAMESPACE}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

const statefulSet = `
apiVersion: v1
kind: Service
metadata: {name: store, namespace: NAMESPACE}
spec: {clusterIP: None, selector: {app: store}, ports: [{port: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store, namespace: NAMESPACE}
spec:
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
        - name: store
          image: server
          readinessProbe: {httpGet: {path: /name, port: 8080}, periodSeconds: 1}
          volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec:
        storageClassName: slow
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: 1Gi}}
`

const claim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: NAMESPACE}
spec: {storageClassName: slow, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

func TestClientAndServerSayTheirVersion(t *testing.T) {
	t.Parallel()
	stdout, _, err := shared.Kubectl(t.Context(), "version")
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^Client Version: v1\.37\.2$`, stdout)
	assert.Regexp(t, `(?m)^Server Version: v1\.37\.2$`, stdout)
}

func TestThreeNodesAreReadyInThreeZones(t *testing.T) {
	t.Parallel()
	stdout, _, err := shared.Kubectl(t.Context(), "get", "nodes", "--output",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.labels.topology\.kubernetes\.io/zone} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	require.NoError(t, err)
	assert.Equal(t, "node-1 zone-a True\nnode-2 zone-b True\nnode-3 zone-c True\n", stdout)
}

func TestAnonymousMayNotReadSecrets(t *testing.T) {
	t.Parallel()
	clients, err := kubernetes.NewForConfig(rest.AnonymousClientConfig(shared.REST()))
	require.NoError(t, err)
	_, err = clients.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsForbidden(err), "got %v", err)
}

func TestPreconditionsOfADeletionAreInTheAuditLog(t *testing.T) {
	t.Parallel()
	const namespace = "audited"
	apply(t, namespace, claim)
	clients, err := shared.Clientset()
	require.NoError(t, err)
	claims := clients.CoreV1().PersistentVolumeClaims(namespace)
	got, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, claims.Delete(t.Context(), "data", *metav1.NewPreconditionDeleteOptions(string(got.UID))))
	assert.Contains(t, auditOf(t, "delete", "persistentvolumeclaims", namespace), fmt.Sprintf(`"preconditions":{"uid":%q}`, got.UID))
}

// auditOf is what the audit log has of requests of a kind.
func auditOf(t *testing.T, verb, resource, namespace string) string {
	t.Helper()
	log, err := os.ReadFile(shared.AuditLog)
	require.NoError(t, err)
	var found []string
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, `"verb":"`+verb+`"`) && strings.Contains(line, `"resource":"`+resource+`","namespace":"`+namespace+`"`) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

func TestServiceOfADeploymentIsReachedFromAPodByAddressAndByName(t *testing.T) {
	t.Parallel()
	const namespace = "reach"
	apply(t, namespace, deployment)
	kubectl(t, namespace, "rollout", "status", "deployment/web", "--timeout=60s")
	pod := strings.Fields(kubectl(t, namespace, "get", "pods", "--output=jsonpath={.items[*].status.podIP}"))[0]
	clusterIP := kubectl(t, namespace, "get", "service/web", "--output=jsonpath={.spec.clusterIP}")
	names := kubectl(t, namespace, "get", "pods", "--output=jsonpath={.items[*].metadata.name}")
	for _, host := range []string{clusterIP, "web", "web.reach", "web.reach.svc.cluster.local"} {
		got := fetch(t, http.MethodGet, "http://"+pod+":8080/fetch?url="+url.QueryEscape("http://"+host+"/name"), "")
		assert.Contains(t, strings.Fields(names), got, "asked by %s", host)
	}
}

func TestFileOnAClaimOutlivesThePod(t *testing.T) {
	t.Parallel()
	const namespace = "outlive"
	apply(t, namespace, statefulSet)
	address := func() string {
		kubectl(t, namespace, "rollout", "status", "statefulset/store", "--timeout=60s")
		return "http://" + kubectl(t, namespace, "get", "pod/store-0", "--output=jsonpath={.status.podIP}") + ":8080/file"
	}
	uid := func() string { return kubectl(t, namespace, "get", "pod/store-0", "--output=jsonpath={.metadata.uid}") }
	fetch(t, http.MethodPut, address(), "still here")
	before := uid()
	kubectl(t, namespace, "delete", "pod/store-0")
	kubectl(t, namespace, "wait", "--for=create", "pod/store-0", "--timeout=60s")
	kubectl(t, namespace, "wait", "--for=condition=Ready", "pod/store-0", "--timeout=60s")
	assert.Equal(t, "still here", fetch(t, http.MethodGet, address(), ""))
	assert.NotEqual(t, before, uid())
}

func TestLogsAndExecReachTheContainer(t *testing.T) {
	t.Parallel()
	const namespace = "kubelet"
	apply(t, namespace, statefulSet)
	kubectl(t, namespace, "rollout", "status", "statefulset/store", "--timeout=60s")
	assert.Equal(t, "store-0\n", kubectl(t, namespace, "exec", "store-0", "--", "/bin/sh", "-c", "cat /etc/hostname"))
	assert.Equal(t, "listening\n", kubectl(t, namespace, "logs", "store-0"))
	logs, err := shared.PodLogs(namespace, "store-0")
	require.NoError(t, err)
	assert.Equal(t, "--- store, restart 0\nlistening\n", logs)
}

func TestDumpShowsPodsEventsAndLogs(t *testing.T) {
	t.Parallel()
	const namespace = "dumped"
	apply(t, namespace, strings.ReplaceAll(statefulSet, "image: server", "image: unknown"))
	kubectl(t, namespace, "wait", "--for=create", "pod/store-0", "--timeout=60s")
	kubectl(t, namespace, "wait", "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImagePull", "pod/store-0", "--timeout=60s")
	var dump strings.Builder
	kept := *shared // the dump has Stop keep the directory, which only a failure should
	kept.DumpOnFailure(&dump)
	assert.Regexp(t, `(?m)^dumped +pod/store-0 `, dump.String())
	assert.Contains(t, dump.String(), `image "unknown" is not registered with this cluster`)
	assert.Contains(t, dump.String(), "--- kube-apiserver.log")
}

func TestADirectoryInUseIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := filepath.Join(dir, "mine")
	require.NoError(t, os.WriteFile(mine, nil, 0o600))
	_, err := cluster.Start(t.Context(), cluster.Options{Dir: dir})
	require.ErrorContains(t, err, "must be new or empty")
	assert.FileExists(t, mine)
}

func TestProgramsAskedForAreThereInside(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), cluster.ProgramPath("local-cluster"), "help").Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "usage:")
}

// Not parallel: the others need the API.
func TestAPIServerAndControllerManagerCanBeKilledAndStartedAgain(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, shared.KillAPIServer(ctx))
	_, _, err := shared.Kubectl(ctx, "get", "nodes")
	require.ErrorContains(t, err, "connection refused")
	require.NoError(t, shared.KillControllerManager(ctx))
	require.NoError(t, shared.RestartAPIServer(ctx))
	require.NoError(t, shared.RestartControllerManager(ctx))
	newNamespace(t, "again")
	kubectl(t, "again", "wait", "--for=create", "serviceaccount/default", "--timeout=60s")
	require.NoError(t, shared.Failure())
}

func newNamespace(t *testing.T, name string) {
	t.Helper()
	_, _, err := shared.Kubectl(t.Context(), "create", "namespace", name)
	require.NoError(t, err)
}

func apply(t *testing.T, namespace, manifest string) {
	t.Helper()
	newNamespace(t, namespace)
	require.NoError(t, shared.Apply(t.Context(), strings.ReplaceAll(manifest, "NAMESPACE", namespace)))
}

func kubectl(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	stdout, _, err := shared.Kubectl(t.Context(), append([]string{"--namespace=" + namespace}, args...)...)
	require.NoError(t, err)
	return stdout
}

func fetch(t *testing.T, method, address, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(got))
	return string(got)
}
