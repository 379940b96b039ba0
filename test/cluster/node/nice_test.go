package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAContainerIsAsNiceAsItsCPURequestIsSmall(t *testing.T) {
	for request, want := range map[int64]int{0: 10, 2: 10, 50: 10, 250: 3, 400: 1, 500: 0, 4000: 0} {
		assert.Equal(t, want, niceness(request), "request of %dm", request)
	}
}
