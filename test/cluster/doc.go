// Package cluster runs a real Kubernetes control plane and three nodes whose pods are real processes,
// on one Linux machine, as root or not, without Docker, cgroups, iptables or downloads of images.
//
// # What it promises
//
// [Enter] moves the program into Linux namespaces of its own: network, mount, pid, uts and ipc, and a
// user namespace where the caller is not root. So every cluster has the same fixed addresses and two
// of them never meet; and when the program dies, by whatever signal, everything it started dies with
// it. Nothing outlives a run but the directory of a failed one.
//
// [Start] brings up etcd, kube-apiserver (RBAC and Node authorizers, audit log, webhook calls sent
// straight to a Service's endpoints), kube-controller-manager, kube-scheduler, three nodes in three
// zones, Services, cluster DNS and storage classes. It returns when all of it is ready to be used.
//
// The binaries are the released versions, built from their Go modules by the two nested modules under
// build, and kept in the user's cache directory by version. A first build takes minutes; it can be
// interrupted and resumed, and two programs that want it at once share it.
//
//	func TestMain(m *testing.M) {
//		cluster.Enter(cluster.Program("./cmd/etcd-volumes"))
//		os.Exit(m.Run())
//	}
//
//	c, err := cluster.Start(ctx, cluster.Options{})
//	...
//	defer c.Stop()
//	c.RegisterImage("etcd-volumes", node.Image{Path: cluster.ProgramPath("etcd-volumes")})
//	stdout, stderr, err := c.Kubectl(ctx, "get", "nodes")
//
// # What it does not model
//
// One API server and one etcd member, without fsync, reached over plain HTTP on loopback. No leader
// election of the control plane, no aggregated API servers, no cloud provider, no network policies,
// no limits on memory or CPU. Several clusters in one program can follow each other, not overlap.
//
// # Decisions
//
// 2026-12-01: Namespaces are entered by re-executing the program with clone flags and not through
// unshare(1), so that nothing but the kernel decides whether it works, and pid 1 of the pid namespace
// is a small init of ours that reaps orphans and passes signals and the exit code on.
//
// 2026-12-01: What runs inside has its own process group. Ctrl-C reaches the outer process alone,
// which forwards it: the API server must outlive the pods that are stopped in order. The price is
// that nothing inside can read from the terminal.
package cluster
