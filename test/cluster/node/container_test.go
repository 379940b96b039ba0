package node

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// box is a container under test: what a Node would make of a pod, without the API.
type box struct {
	spec       *launchSpec
	namespaces []*os.File
	out        bytes.Buffer
}

func newBox(t *testing.T, script string, mounts ...mount) *box {
	t.Helper()
	network, err := os.Open("/proc/self/ns/net")
	require.NoError(t, err)
	uts, ipc, err := newHost("member-0")
	require.NoError(t, err, "tests of containers need the right to make namespaces")
	b := &box{
		namespaces: []*os.File{network, uts, ipc},
		spec: &launchSpec{
			Join: sandboxNamespaces, Root: t.TempDir(), Dir: "/somewhere", Args: []string{"sh", "-c", script},
			Mounts: append(systemMounts(), mounts...),
			Env:    []string{"PATH=" + defaultPath, "COLOUR=blue"},
		},
	}
	t.Cleanup(func() { closeAll(b.namespaces) })
	return b
}

func (b *box) start(t *testing.T) *process {
	t.Helper()
	p, err := launcher{self: self()}.start(b.spec, b.namespaces, stdio{out: &b.out, err: &b.out})
	require.NoError(t, err)
	t.Cleanup(func() {
		p.signal(unix.SIGKILL)
		<-p.done
	})
	return p
}

func (b *box) run(t *testing.T) (exit, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended, err := b.start(t).run(ctx)
	require.NoError(t, err)
	return ended, b.out.String()
}

func TestContainerSeesItsOwnWorld(t *testing.T) {
	b := newBox(t, `hostname; echo $$; pwd; echo $COLOUR; ls -d /image /home /root /.old 2>&1; ls /tmp; echo x > /tmp/x && cat /tmp/x; cat /proc/1/comm; echo y > /dev/null && echo null works`)
	ended, out := b.run(t)
	assert.Zero(t, ended.code)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	assert.Equal(t, []string{"member-0", "1", "/somewhere", "blue"}, lines[:4])
	for _, path := range []string{"/image", "/home", "/root", "/.old"} {
		assert.Contains(t, out, "cannot access '"+path+"'")
	}
	assert.Equal(t, []string{"x", "sh", "null works"}, lines[len(lines)-3:])
}

func TestContainerCannotWriteToTheMachine(t *testing.T) {
	ended, out := newBox(t, "touch /usr/bin/new").run(t)
	assert.NotZero(t, ended.code)
	assert.Contains(t, out, "Read-only file system")
	assert.NoFileExists(t, "/usr/bin/new")
}

func TestContainerLeavesItsDataOnAVolume(t *testing.T) {
	data, config := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(config, "key"), []byte("value"), 0o644))
	b := newBox(t, "cat /etc/config/key > /var/etcd/data/copy; echo no > /etc/config/key",
		mount{Kind: mountBind, Source: data, Target: "/var/etcd/data"},
		mount{Kind: mountBind, Source: config, Target: "/etc/config", ReadOnly: true})
	ended, out := b.run(t)
	assert.NotZero(t, ended.code)
	assert.Contains(t, out, "Read-only file system")
	copied, err := os.ReadFile(filepath.Join(data, "copy"))
	require.NoError(t, err)
	assert.Equal(t, "value", string(copied))
	assert.NoError(t, os.RemoveAll(data), "nothing of the container holds on to the volume")
}

func TestContainerRunsAsTheUserThatTheNamespaceKnows(t *testing.T) {
	uids, err := readIDMap("/proc/self/uid_map")
	require.NoError(t, err)
	b := newBox(t, "id -u; id -g")
	b.spec.User = identity{UID: uids.orRoot(65532), GID: uids.orRoot(65532)}
	want := "65532\n65532\n"
	if os.Getenv(insideEnv) != "" {
		want = "0\n0\n"
	}
	ended, out := b.run(t)
	assert.Zero(t, ended.code, out)
	assert.Equal(t, want, out)
}

func TestContainerCanGiveItsVolumeAwayWhereverItRuns(t *testing.T) {
	data := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(data, "file"), nil, 0o600))
	uids, err := readIDMap("/proc/self/uid_map")
	require.NoError(t, err)
	b := newBox(t, "chown -R 65532:65532 /backup && stat -c %u /backup/file", mount{Kind: mountBind, Source: data, Target: "/backup"})
	b.spec.OneUser = uids.single()
	want := "65532\n"
	if b.spec.OneUser {
		want = "0\n"
	}
	ended, out := b.run(t)
	assert.Zero(t, ended.code, out)
	assert.Equal(t, want, out)
}

func TestContainerSaysWhyItCannotStart(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*launchSpec)
		want   string
	}{
		"a program that does not exist": {func(s *launchSpec) { s.Args = []string{"no-such-program"} }, `exec: "no-such-program": executable file not found in $PATH`},
		"a path that does not exist":    {func(s *launchSpec) { s.Args = []string{"/image/nothing"} }, "exec: stat /image/nothing: no such file or directory"},
		"a volume that does not exist": {func(s *launchSpec) {
			s.Mounts = append(s.Mounts, mount{Kind: mountBind, Source: "/no/such/volume", Target: "/data"})
		}, "source of /data: lstat /no: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, "true")
			c.change(b.spec)
			_, err := launcher{self: self()}.start(b.spec, b.namespaces, stdio{})
			assert.EqualError(t, err, c.want)
		})
	}
}

func TestContainerEndTellsCodeAndSignal(t *testing.T) {
	ended, _ := newBox(t, "exit 7").run(t)
	assert.Equal(t, int32(7), ended.code)

	p := newBox(t, "sleep 100").start(t)
	p.signal(unix.SIGKILL)
	<-p.done
	assert.Equal(t, int32(137), p.exit.code)
	assert.Equal(t, int32(9), p.exit.signal)
}

func TestContainerTakesItsChildrenWithIt(t *testing.T) {
	data := t.TempDir()
	b := newBox(t, "mkfifo /data/alive; setsid sh -c 'exec 3<>/data/alive; sleep 1000' & sleep 1000",
		mount{Kind: mountBind, Source: data, Target: "/data"})
	p := b.start(t)
	p.signal(unix.SIGKILL)
	<-p.done
	assert.NoError(t, os.RemoveAll(data))
}

func TestContainerCanBeEnteredByFurtherCommands(t *testing.T) {
	box := target{process: newBox(t, "echo secret > /tmp/secret; sleep 1000").start(t), launch: launcher{self: self()}}
	require.Eventually(t, func() bool {
		_, err := output(t, box, "test -s /tmp/secret")
		return err == nil
	}, 10*time.Second, 20*time.Millisecond)
	out, err := output(t, box, "hostname; cat /tmp/secret; cat /proc/1/comm; pwd; echo $COLOUR")
	require.NoError(t, err)
	assert.Equal(t, "member-0\nsecret\nsh\n/somewhere\nblue\n", out)

	_, err = output(t, box, "echo bad; exit 3")
	require.EqualError(t, err, `bad: command "sh -c echo bad; exit 3" exited with 3`)
}

// output runs a command in a container and returns what it prints.
func output(t *testing.T, in target, script string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	p, err := in.launch.startIn(in.process, []string{"sh", "-c", script}, stdio{out: &out, err: &out})
	require.NoError(t, err)
	ended, err := p.run(t.Context())
	require.NoError(t, err)
	if ended.code != 0 {
		return out.String(), in.exec(t.Context(), []string{"sh", "-c", script})
	}
	return out.String(), nil
}

func TestVolumeMountsFollowSubPathsButNotOutOfTheVolume(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/etc", filepath.Join(dir, "escape")))
	volumes := map[string]volume{"data": {path: dir, readOnly: true}}
	mountOf := func(sub string) ([]mount, error) {
		return volumeMounts(&corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data/", SubPath: sub}}}, volumes, nil)
	}
	mounts, err := mountOf("a/b")
	require.NoError(t, err)
	assert.Equal(t, []mount{{Kind: mountBind, Source: filepath.Join(dir, "a/b"), Target: "/data", ReadOnly: true}}, mounts)
	for _, bad := range []string{"../x", "/etc", "escape"} {
		_, err := mountOf(bad)
		assert.ErrorContains(t, err, "leaves the volume", bad)
	}
}

func TestContentIsSwitchedAtomicallyAndStaleFilesGo(t *testing.T) {
	dir := t.TempDir()
	first := map[string]fileContent{"a": {data: []byte("1"), mode: 0o600}, "sub/b": {data: []byte("2"), mode: 0o644}}
	require.NoError(t, writeAtomically(dir, first, nil))
	assert.True(t, same(dir, first))
	info, err := os.Stat(filepath.Join(dir, "a"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	second := map[string]fileContent{"c": {data: []byte("3"), mode: 0o644}}
	assert.False(t, same(dir, second))
	require.NoError(t, writeAtomically(dir, second, nil))
	assert.True(t, same(dir, second))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 3, "the content, the link to it and the one name")
	assert.NoFileExists(t, filepath.Join(dir, "a"))
}

func TestUserIsThatOfContainerThenPodThenImage(t *testing.T) {
	n := &Node{uids: idMap{{0, 100000}}, gids: idMap{{0, 100000}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{
		RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)), RunAsNonRoot: new(true), FSGroup: new(int64(65532)),
	}}}
	container := &corev1.Container{Name: "c"}
	user, err := n.user(pod, container, Image{User: 7})
	require.NoError(t, err)
	assert.Equal(t, identity{UID: 65532, GID: 65532, Groups: []int64{65532}}, user)

	container.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(0))}
	_, err = n.user(pod, container, Image{User: 7})
	require.ErrorContains(t, err, "container has runAsNonRoot and image will run as root")

	user, err = n.user(&corev1.Pod{}, &corev1.Container{}, Image{User: 7})
	require.NoError(t, err)
	assert.Equal(t, identity{UID: 7}, user)

	n.uids, n.gids = idMap{{0, 1}}, idMap{{0, 1}}
	user, err = n.user(pod, &corev1.Container{}, Image{})
	require.NoError(t, err)
	assert.Equal(t, identity{}, user, "the user namespace knows no other user")
}
