//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
)

// alignment is the alignment that NVIDIA guarantees for cuMemAlloc (CUDA C++ Programming Guide, "Device Memory
// Accesses"); it is 512 in practice.
const alignment = 256

// describe queries the properties of a device that need no context. A property that the driver cannot report stays
// zero; a missing name or memory size is an error.
func describe(lib *cu.Lib, ordinal int) (cu.Device, driver.Info, error) {
	const call = "Open"
	what := fmt.Sprintf("device %d", ordinal)
	dev, r := lib.DeviceGet(ordinal)
	if r != cu.Success {
		return 0, driver.Info{}, failure(lib, call, r, what)
	}
	name, r := lib.DeviceName(dev)
	if r != cu.Success {
		return 0, driver.Info{}, failure(lib, call, r, "name of "+what)
	}
	total, r := lib.DeviceTotalMem(dev)
	if r != cu.Success {
		return 0, driver.Info{}, failure(lib, call, r, "memory of "+what)
	}
	has := func(a cu.Attribute) int {
		v, r := lib.DeviceAttribute(a, dev)
		if r != cu.Success {
			return 0
		}
		return v
	}
	info := driver.Info{
		Driver: "cuda", Name: name, Ordinal: ordinal, TotalMemory: total, Alignment: alignment,
		UnifiedAddressing: has(cu.UnifiedAddressing) != 0, // on every 64-bit system
		Compute:           10*has(cu.ComputeCapabilityMajor) + has(cu.ComputeCapabilityMinor),
		Multiprocessors:   has(cu.MultiprocessorCount),
		L2:                int64(has(cu.L2CacheSize)),
		SharedMemory:      int64(has(cu.MaxSharedPerBlockOptin)),
		MIG:               strings.Contains(name, " MIG "), // "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
	}
	if has(cu.VirtualMemoryManagement) != 0 {
		if g, r := lib.MemGranularity(cu.DeviceMemory(dev, 0)); r == cu.Success {
			info.Granularity = g
		}
	}
	if id, r := lib.DeviceUUID(dev); r == cu.Success {
		info.UUID = uuidText(id, info.MIG)
	}
	if pci, r := lib.DevicePCIBusID(dev); r == cu.Success {
		info.PCI = strings.ToLower(pci)
	}
	return dev, info, nil
}

// uuidText formats a UUID as nvidia-smi does.
func uuidText(id [16]byte, mig bool) string {
	h := hex.EncodeToString(id[:])
	prefix := "GPU-"
	if mig {
		prefix = "MIG-"
	}
	return prefix + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
