package druid

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/etcd-volumes/etcd-volumes/test/druid/crds"
)

// Where the stand-in runs, and under which image, which whoever runs the cluster has to map to the command.
const (
	Namespace  = "druid-system"
	Deployment = "etcd-druid"
	Image      = "druid:local"
	// Service is the name of the Service, and that of the ValidatingWebhookConfiguration.
	Service = "etcd-druid"
	// Account is the user name that the stand-in acts under.
	Account = "system:serviceaccount:" + Namespace + ":etcd-druid"
)

// Protect is the argument of the command that makes it guard the components. With it, Manifests and Objects also have
// the webhook. Whom it lets through besides is said by --exempt-service-accounts; without the garbage collector among
// them, which is the default, a deletion that leaves the pods of a StatefulSet hangs.
const Protect = "--enable-protection-webhook"

var (
	//go:embed manifests.yaml
	manifests string
	//go:embed webhook.yaml
	webhook string
)

// CRD is crds.CRD: the definition of Etcds, with the four CEL rules that pin the volumes, or without them.
func CRD(withCEL bool) []byte { return crds.CRD(withCEL) }

// Manifests run the stand-in with these arguments, for kubectl apply. The CRD is not among them.
func Manifests(args ...string) string {
	list, err := json.Marshal(append([]string{}, args...))
	if err != nil {
		panic(fmt.Sprintf("encode strings: %v; this is a bug", err))
	}
	all := strings.Replace(manifests, "args: []", "args: "+string(list), 1)
	if slices.Contains(args, Protect) {
		all += "---\n" + webhook
	}
	return all
}

// Objects are Manifests as objects, in an order in which they can be created.
func Objects(args ...string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	all := Manifests(args...)
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(all), len(all))
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode manifests: %w", err)
		}
		objects = append(objects, obj)
	}
}
