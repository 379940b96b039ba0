// Package node is a Kubernetes node whose pods are plain processes.
//
// The library virtual-kubelet carries what makes it a node: the Node object, its lease and heartbeat, and the loop that
// hands over pods which the scheduler placed here. This package is the part below: it runs a pod without a container
// runtime, a registry, cgroups or root on the machine. It needs namespaces only, and works as root or as uid 0 of a
// user namespace.
//
// # What it promises
//
//   - A pod has a network namespace with an address that other pods reach, a host name, and IPC of its own. A container
//     has a root file system, a mount table and a process tree of its own. When its first process ends, the kernel ends
//     all the others, so nothing is left behind.
//   - The root of a container holds the programs of the machine read-only (/usr, /bin, /sbin, /lib...), its own /etc,
//     /dev, /proc and /tmp, the binary of the image at /image/<name>, and the volumes at their mount paths. Nothing else
//     of the machine can be seen.
//   - Volumes: claims bound to hostPath or local volumes, emptyDir, hostPath, configMap, secret, projected
//     (token, configMap, secret, downward API) and downwardAPI. Contents taken from the API are swapped atomically and
//     follow their source within a minute. A volume is only bind-mounted: data outlives the pod.
//   - Init containers, sidecars, probes, hooks, restarts with back-off, graceful deletion and the status of all this
//     are those of the kubelet. A status says what is, and changes are visible at once.
//   - A pod is taken from the API only after its last process is gone, and a pod of the same name starts only then: two
//     pods of one StatefulSet ordinal never share a volume on a node.
//   - When the context of [Run] ends, all processes, mounts and network namespaces of the node end.
//
// # What it models not
//
//   - Resources: requests and limits are visible to the downward API and to the scheduler, but nothing is limited.
//   - Users other than 0 where the user namespace does not map them: such a container stays uid 0 of the namespace, and
//     the checks of runAsNonRoot look at what was asked for, and chown succeeds without effect. Capabilities, seccomp and SELinux are ignored.
//   - shareProcessNamespace: each container has a process tree of its own. Its first process is number 1, which ignores
//     SIGTERM unless it handles it, as in a container anywhere.
//   - Host ports, host PID and IPC, volumes of other kinds, ephemeral containers, resizing, terminals in exec, the user
//     of an image other than its number.
//
// # How it is built
//
// Each pod is owned by one goroutine (see worker.go) that alone touches its state. Whatever takes time runs in a
// goroutine beside it and hands its result back as a function. The status is computed from that state by a pure
// function (status.go). A container is started by the own binary, executed again: [MaybeShim] builds the root in a new
// mount namespace and then becomes the program of the container.
//
// # Decisions
//
// 2026-12-01: The UTS and IPC namespaces of a pod are held by open files, not by a pause process: a process per pod
// would be the largest cost of an idle pod.
//
// 2026-12-01: Status is patched, not updated as the library would. An update would write back the labels, annotations
// and finalizers this node has last seen, and conditions that others have set. The library's own deletion of pods is
// held back until the processes are gone; see pods.go.
package node
