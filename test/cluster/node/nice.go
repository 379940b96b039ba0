package node

import (
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// fullShare is the CPU request, in thousandths of a core, from which on a container is not held back at all.
	fullShare = 500
	// noShare is what the kubelet takes for a container that requests no CPU: the least weight of a cgroup.
	noShare = 2
	// maxNice is not the kernel's largest value: whatever else the machine does, a container must get something.
	maxNice = 10
)

// niceness stands in for the CPU weight that the kubelet gives a container's cgroup in proportion to its request: where
// cores are short, a container with half the request gets half the time. One step of the nice value is a factor of 1.25.
func niceness(request int64) int {
	share := max(float64(request), noShare)
	steps := math.Round(math.Log(fullShare/share) / math.Log(1.25))
	return int(min(max(steps, 0), maxNice))
}

// beNice sets the nice value of this process, and of its session's group where the kernel weighs sessions against each
// other (sched_autogroup), in which case that of a process counts within its session only. A kernel without it has no such
// file, and one with it may limit how often an ordinary user writes there: neither is worth a container.
func beNice(nice int) error {
	_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, nice); err != nil {
		return fmt.Errorf("set nice value %d: %w", nice, err)
	}
	return nil
}
