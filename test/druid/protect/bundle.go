package protect

import (
	"bytes"
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const bundleInterval = 2 * time.Second

// BundleKeeper writes the bundle into a ValidatingWebhookConfiguration, and again whenever it is not there.
type BundleKeeper struct {
	// Client writes, Reader reads; Reader must not be a cache.
	Client client.Client
	Reader client.Reader
	// Configuration is the name of the configuration.
	Configuration string
	Bundle        []byte
}

// Start keeps the bundle until the context ends.
func (k *BundleKeeper) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := k.put(ctx); err != nil {
			log.FromContext(ctx).Error(err, "keep the CA in the webhook configuration")
		}
	}, bundleInterval)
	return nil
}

func (k *BundleKeeper) put(ctx context.Context) error {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := k.Reader.Get(ctx, client.ObjectKey{Name: k.Configuration}, config); err != nil {
		return fmt.Errorf("get webhook configuration %s: %w", k.Configuration, err)
	}
	changed := false
	for i := range config.Webhooks {
		if !bytes.Equal(config.Webhooks[i].ClientConfig.CABundle, k.Bundle) {
			config.Webhooks[i].ClientConfig.CABundle = k.Bundle
			changed = true
		}
	}
	if !changed {
		return nil
	}
	if err := k.Client.Update(ctx, config); err != nil {
		return fmt.Errorf("update webhook configuration %s: %w", k.Configuration, err)
	}
	return nil
}
