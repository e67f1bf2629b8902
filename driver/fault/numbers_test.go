package fault_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

func TestDefect02_NumbersOfRules(t *testing.T) {
	for _, key := range []string{"nth", "rate", "seed"} {
		for _, n := range append([]string{"0.5", "NaN", "Inf", "1e309", "1e-320"}, testkit.Numbers()...) {
			_, err := fault.ParseRules("kind=Alloc," + key + "=" + n)
			if err != nil && (!strings.Contains(err.Error(), n) || !strings.Contains(err.Error(), "want")) {
				t.Errorf("%s=%s: %v", key, n, err)
			}
		}
	}
}
