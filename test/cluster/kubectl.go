package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// fieldManager owns what Apply applies.
const fieldManager = "local-cluster"

// Kubectl runs the real kubectl as the admin. The error says what was run and what kubectl said.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	return c.KubectlStdin(ctx, nil, args...)
}

// KubectlStdin is Kubectl with something to read, for `-f -`.
func (c *Cluster) KubectlStdin(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, BinaryPath("kubectl"), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	// HOME keeps the caller's own kubectl settings out and the discovery cache within the cluster.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "HOME="+c.Dir)
	if err := cmd.Run(); err != nil {
		return out.String(), errOut.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), errOut.String(), nil
}

// Apply applies manifests server-side, taking over fields that others own.
func (c *Cluster) Apply(ctx context.Context, yaml string) error {
	_, _, err := c.KubectlStdin(ctx, strings.NewReader(yaml), "apply", "--server-side", "--force-conflicts", "--field-manager="+fieldManager, "-f", "-")
	return err
}

// writeKubectlScript writes KubectlPath. Only the user and network namespaces are entered, so that the
// caller's files and working directory stay as they are.
func (c *Cluster) writeKubectlScript() error {
	enter := "--net"
	if inside.Rootless {
		enter = "--user --preserve-credentials --net"
	}
	script := fmt.Sprintf("#!/bin/sh\n# kubectl for the local cluster in %[1]s, while it runs.\n"+
		"exec nsenter --target %[2]d %[3]s -- env KUBECONFIG=%[4]s %[5]s \"$@\"\n",
		c.Dir, inside.InitPID, enter, shellQuote(c.Kubeconfig), shellQuote(BinaryPath("kubectl")))
	if err := os.WriteFile(c.KubectlPath, []byte(script), 0o755); err != nil {
		return fmt.Errorf("write the kubectl script: %w", err)
	}
	return nil
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
