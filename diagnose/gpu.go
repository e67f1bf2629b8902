package diagnose

import (
	"slices"

	"github.com/ashlar-go/ashlar/holders"
)

// ownOverhead is the most memory of a GPU, in bytes, that a process has beside its allocator: its context and the
// workspaces of libraries. 0.3 to 1.2 GiB are usual.
const ownOverhead = 3 << 29

// The memory sizes of GPUs in MiB, as cudaMemGetInfo and its counterparts report them: of NVIDIA's Hopper and later
// data center GPUs and AMD's, and of other GPUs of NVIDIA.
var (
	largeGPUs = []int64{
		81_050, 81_090, 81_150, 81_560, 95_320, 95_830, 97_250, 97_870, 143_156, 143_770, 182_640, 183_360,
		196_590, 262_130, 275_000, 294_890,
	}
	otherGPUs = []int64{
		4_040, 5_930, 7_980, 8_110, 10_000, 11_010, 11_910, 12_200, 14_910, 15_100, 15_980, 16_270, 20_020, 20_470,
		22_510, 22_730, 24_080, 24_210, 24_250, 32_110, 32_500, 40_320, 40_440, 45_470, 45_490, 48_510, 48_680, 81_050,
		81_090, 81_150, 97_250, 97_870,
	}
)

// otherWorkspace is the size of the workspace that PyTorch gives cuBLAS, as a block of its allocator, on GPUs other
// than Hopper and AMD's (getChosenWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp). Those have 32 MiB.
const otherWorkspace = 2*(4<<20) + 16*(8<<10)

// ownsGPU reports whether the process could have a whole GPU of a usual size, except its own overhead.
func (x *explainer) ownsGPU() bool {
	reachable := x.r.Barrier.Reachable
	return slices.ContainsFunc(x.gpuSizes(), func(mib int64) bool {
		size := mib << 20
		return reachable <= size && size-reachable <= ownOverhead
	})
}

// gpuSizes returns the sizes that the GPU of the recording may have, in MiB.
func (x *explainer) gpuSizes() []int64 {
	if slices.ContainsFunc(x.h.Blocks(), func(b holders.Block) bool { return b.Size == otherWorkspace }) {
		return otherGPUs
	}
	return largeGPUs // or the program does not use cuBLAS, which is rare on smaller GPUs
}
