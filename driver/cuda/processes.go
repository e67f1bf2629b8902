//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"os"

	"github.com/ashlar-go/ashlar/driver"
)

// Processes queries NVML, which may be missing, or denied in a slice of a GPU or in a container. In a container it
// lists, depending on the driver's version, only the container's processes, none, or all processes with the host's
// numbers.
func (d *device) Processes() ([]driver.ProcessMemory, error) {
	const call = "Processes"
	if d.isClosed() {
		return nil, closedError(call, "the device")
	}
	unknown := func(detail string) error {
		return &driver.Error{Call: call, Code: driver.ErrUnsupported, Detail: detail}
	}
	watch, _, err := d.nvml()
	if err != nil {
		return nil, unknown("NVML: " + err.Error())
	}
	holders, err := watch.Processes(d.info.UUID)
	if err != nil {
		return nil, unknown("NVML: " + err.Error())
	}
	if len(holders) == 0 { // this process must be listed
		return nil, unknown("NVML lists no process here, not even this one")
	}
	all := make([]driver.ProcessMemory, len(holders))
	for i, p := range holders {
		all[i] = driver.ProcessMemory{PID: p.PID, Self: p.PID == os.Getpid(), Bytes: p.Used}
	}
	return all, nil
}
