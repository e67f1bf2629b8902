package host

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"golang.org/x/sys/unix"
)

func systemFindings() []driver.Finding {
	return []driver.Finding{virtualFinding(), sharingFinding(), lockedFinding(), mappingsFinding(), nodesFinding()}
}

// sharingFinding reports whether handles of other processes could be opened.
func sharingFinding() driver.Finding {
	f := driver.Finding{What: "sharing between processes", Where: "/proc/self", Found: "works"}
	if _, err := startOf(unix.AT_FDCWD, "/proc/self/stat"); err != nil {
		f.Found, f.State = err.Error(), driver.Lacking
		f.Do = "mount /proc: what Sharing exports is opened through it"
	}
	return f
}

// lockedFinding reports how much memory a process may lock. Few hosts allow much; Pinned works without locked memory.
func lockedFinding() driver.Finding {
	f := driver.Finding{What: "locked memory", Where: "RLIMIT_MEMLOCK"}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		f.Found, f.State = err.Error(), driver.Lacking
		return f
	}
	status, _ := os.ReadFile("/proc/self/status")
	switch {
	case limit.Cur == math.MaxUint64:
		f.Found = "unlimited"
	case mayLockAll(status):
		f.Found = "unlimited, by CAP_IPC_LOCK"
	default:
		f.Found, f.State = bytesize.Format(int64(limit.Cur)), driver.Lacking
		f.Do = "raise it (ulimit -l, LimitMEMLOCK= of systemd, --ulimit memlock= of a container), " +
			"or live with pinned memory that the system may swap out"
	}
	return f
}

// mayLockAll reports whether a process, by its file status in /proc, has CAP_IPC_LOCK, to which no limit applies: bit 14
// of its effective set.
func mayLockAll(status []byte) bool {
	for line := range strings.Lines(string(status)) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return err == nil && bits>>unix.CAP_IPC_LOCK&1 == 1
		}
	}
	return false
}

// mappingsFinding reports how many mappings a process may have: each block of Alloc and each mapped page is one.
func mappingsFinding() driver.Finding {
	const name, usual = "/proc/sys/vm/max_map_count", 65530
	f := driver.Finding{What: "mappings of a process", Where: name}
	text, err := os.ReadFile(name)
	if err != nil {
		f.Found, f.State = err.Error(), driver.Lacking
		return f
	}
	f.Found = strings.TrimSpace(string(text))
	if n, err := strconv.Atoi(f.Found); err == nil && n < usual {
		f.State, f.Do = driver.Lacking, fmt.Sprintf("sysctl vm.max_map_count=%d", usual)
	}
	return f
}

// nodesFinding reports whether all of the machine's memory is equally near to every processor.
func nodesFinding() driver.Finding {
	const pattern = "/sys/devices/system/node/node[0-9]*"
	f := driver.Finding{What: "NUMA nodes", Where: pattern}
	nodes, _ := filepath.Glob(pattern) // the only error is that of a bad pattern
	switch len(nodes) {
	case 0:
		f.Found = "not told"
	case 1:
		f.Found = "1"
	default:
		f.Found = strconv.Itoa(len(nodes))
		f.Do = "take memory from one (host:node=0), and bind the program to its processors (numactl --cpunodebind=0) " +
			"if it measures"
	}
	return f
}
