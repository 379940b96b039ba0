// Package network is the network of the local cluster: a bridge, a namespace
// and an address for each pod, service addresses that work, and cluster DNS.
//
// # What it promises
//
// A pod gets a network namespace of its own with lo and eth0 up, an address
// that is routable from every other pod and from the host end of the bridge,
// and a default route. An address is not given out again before the whole pool
// has been used, so that a stale endpoint never leads to somebody else.
//
// A TCP port of a service is reachable at its ClusterIP, from pods and from
// the host end, as soon as one endpoint is ready, and refuses connections
// again as soon as none is. Connections that are open stay open when their
// endpoint is removed. Each DNS answer is taken from the services and endpoint
// slices as they are in that moment, with a time to live of zero.
//
// Nothing polls: services, listeners and answers follow the watch.
//
// # How it is done
//
// The package expects to run in a network namespace that belongs to the
// cluster alone, with all capabilities over it; root or the only user of a user
// namespace are the same to it. The whole service range is one local route, so
// each service address can be listened on without being configured first, and
// no kernel module beyond bridge and veth is needed: many small kernels have no
// dummy interface, and nothing here needs netfilter or IP forwarding.
//
// # What it models, and what not
//
// Modelled after kube-proxy and CoreDNS of Kubernetes 1.37: readiness as the
// slices tell it, serving but terminating endpoints when no other is left,
// publishNotReadyAddresses, named target ports, headless services, pod host
// names, SRV for named ports, PTR for services and their endpoints, NXDOMAIN
// for a headless service without a ready endpoint.
//
// Not modelled: UDP and SCTP services (DNS itself excepted), IPv6, node ports,
// load balancers, session affinity, ExternalName services, network policies,
// names of the pod subdomain, and the client's source address, which behind a
// ClusterIP is the host end of the bridge. A connection to an endpoint that
// does not accept it is taken first and reset then, where a real one would be
// refused. A service address without a service refuses connections, where a
// real one may drop them. Because the proxy shares
// its namespace with the control plane, nothing there may listen on the
// unspecified address with a port that a service uses. Names outside the
// cluster's domain do not exist.
//
// # Decisions
//
// 2026-12-01: A namespace is kept by a bind mount in a directory that the
// caller names. A path under /proc to a file descriptor would need no mount,
// but the number is used again after a pod is gone, and a container that starts
// late would enter the wrong pod.
package network
