package holders

// A Category says what a block is for. New infers the categories of all blocks; see Block.Category.
type Category uint8

// The categories.
const (
	// Unknown is the category of a block whose purpose is not known, such as data that the user's code keeps, a cache
	// of keys and values, and what was allocated just before the recording ended.
	Unknown Category = iota

	// Weights are the parameters and buffers of modules, also those that a module replaces when it is converted, copies
	// of modules, and other tensors that an optimizer updates.
	Weights

	// Gradients are the gradients of weights: the tensors that backward passes leave in .grad.
	Gradients

	// OptimizerState is what optimizers keep between their steps, such as the moments of Adam.
	OptimizerState

	// Activations are the results of forward passes that live until the backward pass, and those of forward passes
	// that a checkpoint repeats.
	Activations

	// Temporaries live within one pass or one step of an optimizer. They include the scratch memory of single
	// operations, such as that of a convolution of cuDNN.
	Temporaries

	// Workspace is scratch memory that cuBLAS keeps from operation to operation.
	Workspace

	numCategories
)

var categoryNames = [numCategories]string{
	"unknown", "weights", "gradients", "optimizer state", "activations", "temporaries", "workspace",
}

// String returns the name of the category, such as "optimizer state".
func (c Category) String() string { return categoryNames[c] }
