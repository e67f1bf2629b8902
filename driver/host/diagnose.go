package host

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// Devices lists the machine's memory as one device. Open can open it several times, with other Options.
func (hostDriver) Devices() ([]driver.Listing, error) {
	d, err := Open(Options{})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	info := d.Info()
	return []driver.Listing{{Spec: "host", Info: info, Free: info.TotalMemory}}, nil
}

// Diagnose reports how much memory there is, and which abilities the operating system supports.
func (hostDriver) Diagnose() []driver.Finding {
	memory := driver.Finding{What: "memory of the machine"}
	if total, err := totalMemory(); err != nil {
		memory.Found, memory.State = err.Error(), driver.Broken
		memory.Do = "say how much to use: host:total=SIZE"
	} else {
		memory.Found = bytesize.Format(total)
	}
	return append([]driver.Finding{memory}, systemFindings()...)
}

// virtualFinding reports whether there is virtual memory.
func virtualFinding() driver.Finding {
	f := driver.Finding{What: "virtual memory", Where: "memfd_create", Found: "works"}
	pages, err := openPhysical(placement{})
	switch {
	case err != nil:
		f.Found, f.State = err.Error(), driver.Broken
		f.Do = "allow memfd_create: a sandbox or an old kernel refuses it"
	case pages == nil:
		f.Found, f.State = "not on this system", driver.Lacking
		f.Do = "use Linux, if allocators that need VirtualMemory or Sharing are to run here"
	default:
		if err := pages.close(); err != nil {
			f.Found, f.State = fmt.Sprintf("close: %v", err), driver.Broken
		}
	}
	return f
}
