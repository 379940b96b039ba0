// Package crds has the CustomResourceDefinition of the Etcd resource for the tests' world, in two variants.
//
// The schema and its wording are our own. It types the fields that the stand-ins and the product touch and keeps all
// others. Modelled after etcd-druid v0.38.0-dev (July 2026), which ships a CRD with CEL rules for Kubernetes 1.29 and
// later and one without any for older versions. The variants here are narrower: the first has the rules that concern
// volumes, replicas and memberNamePrefix; the second lacks exactly the four that pin storageClass and
// volumeClaimTemplate, which is what a cluster looks like where these four were relaxed and nothing else.
//
// The rules' expressions are spelled as the real ones are, down to the double space in one of them, so that who looks
// for them by their text meets here what is met there. Their messages are our own. Not modelled: the rules of fields
// that the stand-in does not know, and the patterns of cron lines.
package crds

import (
	"bytes"
	_ "embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Name is the name of the CustomResourceDefinition.
const Name = "etcds.druid.gardener.cloud"

var (
	//go:embed etcds.yaml
	pinned []byte
	//go:embed etcds_relaxed.yaml
	relaxed []byte
)

// CRD returns the definition as YAML: with the four CEL rules that pin the volumes, or without them.
func CRD(withCEL bool) []byte {
	return bytes.Clone(map[bool][]byte{true: pinned, false: relaxed}[withCEL])
}

// Definition returns what CRD returns, decoded strictly.
func Definition(withCEL bool) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(CRD(withCEL), crd); err != nil {
		return nil, fmt.Errorf("decode CRD %s: %w", Name, err)
	}
	return crd, nil
}
