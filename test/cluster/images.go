package cluster

import (
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/etcd-volumes/etcd-volumes/test/cluster/node"
)

// imageTable maps image references to programs of this machine.
type imageTable struct {
	mu     sync.RWMutex
	images map[string]node.Image
}

func newImageTable(images map[string]node.Image) *imageTable {
	t := &imageTable{images: map[string]node.Image{}}
	for ref, image := range images {
		t.register(ref, image)
	}
	return t
}

func (t *imageTable) register(ref string, image node.Image) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.images[ref] = image
}

// resolve prefers the very reference over the bare name of its repository.
func (t *imageTable) resolve(ref string) (node.Image, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, key := range []string{ref, baseName(ref)} {
		if image, ok := t.images[key]; ok {
			return image, nil
		}
	}
	return node.Image{}, fmt.Errorf("image %q is not registered with this cluster", ref)
}

// baseName is an image reference without registry, path, tag and digest.
func baseName(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	name, _, _ := strings.Cut(path.Base(ref), ":")
	return name
}
