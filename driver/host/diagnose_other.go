//go:build !linux

package host

import "github.com/ashlar-go/ashlar/driver"

func systemFindings() []driver.Finding { return []driver.Finding{virtualFinding()} }
