// Package deploy is what users apply: the manifests of etcd-volumes, embedded, so that tests install exactly the same.
//
// [Manifests] is the whole installation in an order in which it can be applied. Left out of it are relax-crd.yaml, which
// changes an object of etcd-druid and is applied on purpose, and sample.yaml, which is an example.
//
// # Decisions
//
// 2026-12-01: the webhook configurations come without caBundle. The operator fills it in under a field manager of its
// own, so that applying the manifests again never takes it away.
//
// 2026-12-01: relaxing etcd-druid's CRD is a Job with rights of its own. The operator that runs all the time can not
// change a CustomResourceDefinition.
package deploy

import (
	"bytes"
	"embed"
	"fmt"
)

//go:embed *.yaml
var files embed.FS

// order is that of kustomization.yaml: what others need comes first, the webhook configurations last.
var order = []string{
	"namespace.yaml", "crd.yaml", "rbac.yaml", "service.yaml", "deployment.yaml", "disruption-budget.yaml", "webhooks.yaml",
}

// Names returns the files of the installation, in the order in which they are applied.
func Names() []string { return append([]string(nil), order...) }

// File returns one of the embedded files, such as "crd.yaml" or "relax-crd.yaml".
func File(name string) ([]byte, error) {
	b, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", name, err)
	}
	return b, nil
}

// Manifests returns the whole installation as one stream of YAML documents.
func Manifests() []byte {
	parts := make([][]byte, 0, len(order))
	for _, name := range order {
		b, err := File(name)
		if err != nil {
			panic(err.Error() + ": this is a bug") // embedded: can not fail
		}
		parts = append(parts, bytes.TrimPrefix(b, []byte("---\n"))) // generated files begin with one
	}
	return bytes.Join(parts, []byte("---\n"))
}
