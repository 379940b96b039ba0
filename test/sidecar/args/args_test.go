package args_test

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/args"
)

func TestUnknownFlagsAreLoggedAndIgnored(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	flags := pflag.NewFlagSet("server", pflag.ContinueOnError)
	port := flags.Int("server-port", 1, "")

	err := args.Parse(flags, []string{"--server-port=8080", "--use-etcd-wrapper=true"}, zap.New(core))

	require.NoError(t, err)
	assert.Equal(t, 8080, *port)
	require.Equal(t, 1, logs.Len())
	assert.Equal(t, "--use-etcd-wrapper=true", logs.All()[0].ContextMap()["flag"])
}

func TestABadValueOfAKnownFlagIsAnError(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("server", pflag.ContinueOnError)
	flags.Int("server-port", 1, "")
	assert.ErrorContains(t, args.Parse(flags, []string{"--server-port=x"}, zap.NewNop()), "parse flags of server")
}
