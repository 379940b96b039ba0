package backup_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcd-volumes/etcd-volumes/reconciler/backup"
	"github.com/etcd-volumes/etcd-volumes/test/fixture"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

func TestASnapshotIsAskedForAndItsRevisionRead(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		want   int64
		fault  string
	}{
		"taken":               {http.StatusOK, `{"kind":"Full","lastRevision":4711}`, 4711, ""},
		"taken, says nothing": {http.StatusOK, ``, 0, ""},
		"no store":            {http.StatusMethodNotAllowed, ``, 0, "405 Method Not Allowed"},
		"fails":               {http.StatusInternalServerError, ``, 0, "500 Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "POST /snapshot/full", r.Method+" "+r.URL.Path)
				w.WriteHeader(tc.status)
				_, err := w.Write([]byte(tc.body))
				assert.NoError(t, err)
			}))
			t.Cleanup(server.Close)
			c := backup.Client{Address: func(*volume.Etcd) string { return server.URL }}
			got, err := c.Full(t.Context(), fixture.Etcd())
			assert.Equal(t, tc.want, got)
			if tc.fault == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.fault)
		})
	}
}

func TestTheSidecarsAreReachedThroughTheClientService(t *testing.T) {
	etcd := fixture.Etcd()
	assert.Equal(t, "http://main-client.shop.svc:8080", backup.Endpoint(etcd))
	etcd.Spec.Backup.TLS = &volume.TLSConfig{}
	assert.Equal(t, "https://main-client.shop.svc:8080", backup.Endpoint(etcd))
}
