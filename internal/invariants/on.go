//go:build invariants

package invariants

// Enabled says whether this build checks invariants: whether it has the build tag "invariants".
const Enabled = true
