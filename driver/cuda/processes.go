//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"os"

	"github.com/ashlar-go/ashlar/driver"
)

// Processes asks NVML, which may be missing, or denied: to a slice of a GPU, to a container. In a container the driver
// shows the processes of that container only, or none, or all by the host's numbers, depending on its version.
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
	if len(holders) == 0 { // this process is one
		return nil, unknown("NVML lists no process here, not even this one")
	}
	all := make([]driver.ProcessMemory, len(holders))
	for i, p := range holders {
		all[i] = driver.ProcessMemory{PID: p.PID, Self: p.PID == os.Getpid(), Bytes: p.Used}
	}
	return all, nil
}
