// Command druid is the stand-in for etcd-druid. It runs as a pod; see package test/druid for its manifests, and the
// packages below it for what it models.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	os.Exit(run(ctrl.SetupSignalHandler(), os.Args[1:], os.Stderr))
}
