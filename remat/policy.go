package remat

import "github.com/ashlar-go/ashlar/remat/internal/schedule"

// Policies returns the names of the policies for Config.Policy.
func Policies() []string { return schedule.PolicyNames() }
