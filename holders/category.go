package holders

// A Category says what a block is for.
type Category uint8

// Unknown is the category of a block whose purpose is not known.
const Unknown Category = 0

// String returns the name of the category.
func (c Category) String() string { return "unknown" }
