// Command etcd-volumes explains, confirms and carries out volume changes of running etcd clusters.
//
// It is one program with three commands: manager runs the webhook server, the reconciler and the certificates;
// relax-crd takes the rules that forbid volume changes out of etcd-druid's CRD; version prints the version.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	os.Exit(run(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr))
}
