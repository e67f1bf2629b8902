package host

import "testing"

func TestMayLockAll(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t0000000000000000\n": true,
		"Name:\tx\nCapEff:\t0000000000004000\n":                            true,
		"Name:\tx\nCapEff:\t000001ffffffbfff\nCapBnd:\t000001ffffffffff\n": false,
		"Name:\tx\nCapEff:\t0000000000000000\n":                            false,
		"Name:\tx\nCapEff:\tnone\n":                                        false,
		"Name:\tx\n":                                                       false,
		"":                                                                 false,
	} {
		if got := mayLockAll([]byte(status)); got != want {
			t.Errorf("%q: %v, want %v", status, got, want)
		}
	}
}
