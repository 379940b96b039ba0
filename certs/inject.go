package certs

import (
	"bytes"
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applyv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldManager owns caBundle of both webhook configurations, and nothing else.
const FieldManager = "etcd-volumes-certs"

// entry is one webhook of a configuration.
type entry struct {
	name   string
	bundle []byte
}

// configuration is what both kinds of webhook configurations have in common for us.
type configuration struct {
	kind    string
	uid     types.UID
	entries []entry
	apply   func(c configuration, name string, bundle []byte) runtime.ApplyConfiguration
}

// configurations reads both webhook configurations. One that does not exist is left out.
func configurations(ctx context.Context, r client.Reader, name string) ([]configuration, error) {
	var all []configuration
	var validating admissionv1.ValidatingWebhookConfiguration
	var mutating admissionv1.MutatingWebhookConfiguration
	for _, one := range []struct {
		object client.Object
		read   func() configuration
	}{
		{&validating, func() configuration { return ofValidating(&validating) }},
		{&mutating, func() configuration { return ofMutating(&mutating) }},
	} {
		err := r.Get(ctx, client.ObjectKey{Name: name}, one.object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read webhook configuration %s: %w", name, err)
		}
		all = append(all, one.read())
	}
	return all, nil
}

func ofValidating(v *admissionv1.ValidatingWebhookConfiguration) configuration {
	c := configuration{kind: "ValidatingWebhookConfiguration", uid: v.UID, apply: applyValidating}
	for i := range v.Webhooks {
		c.entries = append(c.entries, entry{name: v.Webhooks[i].Name, bundle: v.Webhooks[i].ClientConfig.CABundle})
	}
	return c
}

func ofMutating(m *admissionv1.MutatingWebhookConfiguration) configuration {
	c := configuration{kind: "MutatingWebhookConfiguration", uid: m.UID, apply: applyMutating}
	for i := range m.Webhooks {
		c.entries = append(c.entries, entry{name: m.Webhooks[i].Name, bundle: m.Webhooks[i].ClientConfig.CABundle})
	}
	return c
}

// The UID is a precondition: of a configuration that was deleted meanwhile, no half is made anew.
// Each entry is named, because one that is left out of a later apply loses what it got from an earlier one.

func applyValidating(c configuration, name string, bundle []byte) runtime.ApplyConfiguration {
	a := applyv1.ValidatingWebhookConfiguration(name).WithUID(c.uid)
	for _, e := range c.entries {
		a.WithWebhooks(applyv1.ValidatingWebhook().WithName(e.name).
			WithClientConfig(applyv1.WebhookClientConfig().WithCABundle(bundle...)))
	}
	return a
}

func applyMutating(c configuration, name string, bundle []byte) runtime.ApplyConfiguration {
	a := applyv1.MutatingWebhookConfiguration(name).WithUID(c.uid)
	for _, e := range c.entries {
		a.WithWebhooks(applyv1.MutatingWebhook().WithName(e.name).
			WithClientConfig(applyv1.WebhookClientConfig().WithCABundle(bundle...)))
	}
	return a
}

// holds reports whether each entry has the bundle.
func (c configuration) holds(bundle []byte) bool {
	for _, e := range c.entries {
		if !bytes.Equal(e.bundle, bundle) {
			return false
		}
	}
	return true
}

// bare reports whether an entry has no bundle at all, and none has another one than ours.
func (c configuration) bare(bundle []byte) bool {
	empty := false
	for _, e := range c.entries {
		if len(e.bundle) == 0 {
			empty = true
		} else if !bytes.Equal(e.bundle, bundle) {
			return false
		}
	}
	return empty
}
