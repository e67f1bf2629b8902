//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/internal/dl"
)

// nodes are the files through which libcuda communicates with the kernel's driver. The files of devices are not listed:
// the kernel numbers them, and a container may have any of them.
var nodes = []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}

// wsl is the file of the driver on Windows Subsystem for Linux, which has none of nodes.
const wsl = "/dev/dxg"

const (
	adviceOld       = "install a newer driver; the CUDA toolkit is not needed"
	adviceContainer = "in a container, give it the GPU (docker run --gpus all, or the NVIDIA device plug-in of " +
		"Kubernetes)"
)

// missingNodes returns the nodes that do not exist.
func (c *cudaDriver) missingNodes() []string {
	if c.exists(wsl) {
		return nil
	}
	var missing []string
	for _, path := range nodes {
		if !c.exists(path) {
			missing = append(missing, path)
		}
	}
	return missing
}

// adviceLibrary returns the advice for a missing libcuda.
func (c *cudaDriver) adviceLibrary() string {
	if len(c.missingNodes()) == 0 {
		return "The kernel's driver is there, so the library belongs to it: install it (Debian: libcuda1, Ubuntu:" +
			" libnvidia-compute); " + adviceContainer
	}
	return "Without an NVIDIA GPU use the driver host or sim. With one, install NVIDIA's driver; " + adviceContainer
}

// adviceInit returns the advice for a result of cuInit.
func (c *cudaDriver) adviceInit(r cu.Result) string {
	if missing := c.missingNodes(); len(missing) > 0 {
		return strings.Join(missing, " and ") + " are not here: the kernel's driver is not loaded, or this is a " +
			"container without the device. Load it (nvidia-modprobe -c 0 -u); " + adviceContainer
	}
	switch r {
	case cu.NotInitialized: // the result of cuInit in the child of a process that called it
		return "This process was forked from one that used CUDA, and CUDA does not work in such a child: start another" +
			" program instead (exec), or fork before CUDA is first used"
	case cu.NoDevice:
		return "CUDA_VISIBLE_DEVICES may hide the devices; see what nvidia-smi -L lists"
	case cu.SystemDriverMismatch:
		return "The driver was updated and the old one is still loaded: restart the machine, or unload and load its " +
			"modules"
	case cu.SystemNotReady:
		return "On machines with NVSwitch the Fabric Manager must run, in the driver's own version (systemctl status" +
			" nvidia-fabricmanager)"
	case cu.CompatNotSupported:
		return "The compatibility libraries of a CUDA container come before the driver's own: take them out of" +
			" LD_LIBRARY_PATH"
	case cu.StubLibrary:
		return "This is the toolkit's stub, for linking only: take its directory out of LD_LIBRARY_PATH"
	}
	return "See whether nvidia-smi works, and what dmesg says of NVRM"
}

// Diagnose looks for the library, its version, the device nodes, the devices and NVML. It makes no context.
func (c *cudaDriver) Diagnose() []driver.Finding {
	lib, tries, err := c.load()
	found := []driver.Finding{libraryFinding("the library libcuda", tries, driver.Broken)}
	if err != nil {
		found[0].Do = c.adviceLibrary()
		return append(found, c.nodesFinding())
	}
	version, r := lib.DriverVersion()
	f := driver.Finding{
		What: "the driver's version", Where: "cuDriverGetVersion",
		Found: "CUDA " + versionText(version),
	}
	switch {
	case r != cu.Success:
		f.Found, f.State, f.Do = lib.Describe(r), driver.Broken, "reinstall the driver"
	case version < minimum:
		f.State, f.Do = driver.Broken, fmt.Sprintf("CUDA %s is the oldest that works: %s", versionText(minimum),
			adviceOld)
	}
	found = append(found, f)
	if missing := lib.Missing(); len(missing) > 0 {
		found = append(found, driver.Finding{
			What: "functions of libcuda", Where: tries.Opened(), Found: "not there: " + strings.Join(missing, ", "),
			State: driver.Lacking, Do: "what needs them is unsupported here; a newer driver has them",
		})
	}
	found = append(found, c.nodesFinding())
	r = lib.Init()
	f = driver.Finding{What: "initialisation", Where: "cuInit", Found: "done"}
	if r != cu.Success {
		f.Found, f.State, f.Do = lib.Describe(r), driver.Broken, c.adviceInit(r)
		return append(found, f)
	}
	found = append(found, f)
	return append(append(found, c.devicesFindings(lib)...), c.nvmlFindings(lib)...)
}

func libraryFinding(what string, tries dl.Tries, lacking driver.State) driver.Finding {
	names := make([]string, len(tries))
	for i, t := range tries {
		names[i] = t.Name
	}
	f := driver.Finding{What: what, Where: strings.Join(names, ", "), Found: tries.Opened()}
	if f.Found == "" {
		f.Found, f.State = tries.String(), lacking
	}
	return f
}

func (c *cudaDriver) nodesFinding() driver.Finding {
	f := driver.Finding{What: "device nodes", Where: strings.Join(nodes, ", "), Found: "there"}
	if missing := c.missingNodes(); len(missing) > 0 {
		f.Found, f.State = "not there: "+strings.Join(missing, ", "), driver.Broken
		f.Do = "load the kernel's driver (nvidia-modprobe -c 0 -u); " + adviceContainer
	}
	return f
}

// devicesFindings describes each device.
func (c *cudaDriver) devicesFindings(lib *cu.Lib) []driver.Finding {
	n, r := lib.DeviceCount()
	f := driver.Finding{What: "devices", Where: "cuDeviceGetCount", Found: strconv.Itoa(n)}
	switch {
	case r != cu.Success:
		f.Found, f.State, f.Do = lib.Describe(r), driver.Broken, c.adviceInit(r)
	case n == 0:
		f.State, f.Do = driver.Broken, c.adviceInit(cu.NoDevice)
	}
	found := []driver.Finding{f}
	for i := range n {
		f := driver.Finding{What: fmt.Sprintf("device %d", i), Where: fmt.Sprintf("cuda:%d", i)}
		if _, info, err := describe(lib, i); err != nil {
			f.Found, f.State = err.Error(), driver.Broken
		} else {
			f.Found = fmt.Sprintf("%s, %s, compute capability %d.%d, %s", info.Name, bytesize.Format(info.TotalMemory),
				info.Compute/10, info.Compute%10, info.UUID)
			if info.Granularity == 0 {
				f.Found, f.State = f.Found+", without virtual memory", driver.Lacking
			}
		}
		found = append(found, f)
	}
	return found
}

// nvmlFindings describes the other users of the devices.
func (c *cudaDriver) nvmlFindings(lib *cu.Lib) []driver.Finding {
	watch, tries, err := c.nvml()
	f := libraryFinding("the library NVML", tries, driver.Lacking)
	if err != nil {
		f.Do = "nothing: it only tells which processes hold memory"
		return []driver.Finding{f}
	}
	version, err := watch.Version()
	if err != nil {
		f.Found, f.State = err.Error(), driver.Lacking
		f.Do = "nothing: it only tells which processes hold memory, and inside a MIG slice it may be denied"
		return []driver.Finding{f}
	}
	f.Found += ", driver " + version
	found := []driver.Finding{f}
	n, _ := lib.DeviceCount()
	for i := range n {
		_, info, err := describe(lib, i)
		if err != nil {
			continue
		}
		holders, err := watch.Processes(info.UUID)
		if err != nil || len(holders) == 0 {
			continue
		}
		var lines []string
		for _, p := range holders {
			line := "process " + strconv.Itoa(p.PID)
			if p.Used >= 0 {
				line += ": " + bytesize.Format(p.Used)
			}
			lines = append(lines, line)
		}
		found = append(found, driver.Finding{
			What: fmt.Sprintf("memory held on device %d", i), Where: "NVML", Found: strings.Join(lines, ", "),
		})
	}
	return found
}
