package node

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setGroups sets the supplementary groups of this thread. A user namespace that was entered without privilege does not
// allow it at all; there the groups are those of the person who runs the cluster and stay.
func setGroups(groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0)
	if errno != 0 && errno != unix.EPERM {
		return fmt.Errorf("set groups %v: %w", groups, errno)
	}
	return nil
}
