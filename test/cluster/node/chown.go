package node

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// chownCalls are the system calls that change the owner of a file, by architecture. There is no harm in an architecture
// that is missing here: a chown fails there that would have been without effect elsewhere.
var chownCalls = map[string]struct {
	arch  uint32
	calls []uint32
}{
	"amd64": {arch: unix.AUDIT_ARCH_X86_64, calls: []uint32{92, 93, 94, 260}}, // chown, fchown, lchown, fchownat
	"arm64": {arch: unix.AUDIT_ARCH_AARCH64, calls: []uint32{54, 55}},         // fchownat, fchown
}

// Offsets in what a filter gets to see of a system call.
const (
	seccompNumber = 0
	seccompArch   = 4
)

// pretendChown makes each chown of this thread, and of the program it becomes, succeed without effect. In a user namespace
// that knows one user only, all files are and stay that user's, and the kernel would answer "invalid argument" to an init
// container that gives a volume to the user of the next container, who is the same person here.
func pretendChown() error {
	table, ok := chownCalls[runtime.GOARCH]
	if !ok {
		return nil
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: seccompArch},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: table.arch, Jf: uint8(len(table.calls) + 1)},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: seccompNumber},
	}
	for i, call := range table.calls {
		filter = append(filter, unix.SockFilter{
			Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jt: uint8(len(table.calls) - i),
		})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO}, // error number 0: success
	)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("pretend chown: %w", errno)
	}
	return nil
}
