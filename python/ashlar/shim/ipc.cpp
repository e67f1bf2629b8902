// Memory that other processes open: CUDA IPC, as torch.multiprocessing sends tensors. With the setting ipc:ashlar,
// blocks of Ashlar's are sent as descriptors of their pages. Native shares all other memory.
//
// PyTorch counts the tensors that it sent, and keeps each in the sender until all receivers have dropped it. So a block
// is not freed while another process uses it, and its pages stay in place.
#include "allocator.h"

#include <cstdio>

namespace ashlar {

namespace {

// PyTorch before 2.12 reads handles of pages in the form that Ashlar writes.
constexpr uint32_t share_flags = TORCH_VERSION_MINOR == 11 ? static_cast<uint32_t>(ASHLAR_TORCH_HANDLE) : 0;

// Only a lack of memory could raise an exception here.
void keep_handle(void *ctx, const void *handle, size_t n, int64_t offset) noexcept {
	auto *to = static_cast<caching::ShareableHandle *>(ctx);
	to->offset = static_cast<ptrdiff_t>(offset);
	to->handle.assign(static_cast<const char *>(handle), n);
}

// Closes opened memory when PyTorch has dropped it, in a destructor.
struct CloseShared {
	const ashlar_api *api;
	void operator()(void *p) const noexcept {
		if (api->close_shared(p) != ASHLAR_OK) {
			std::fprintf(stderr, "ashlar: closing memory of another process at %p: %s\n", p, api->last_error());
		}
	}
};

} // namespace

caching::ShareableHandle Allocator::shareIpcHandle(void *p) {
	if (!owns(p)) {
		return native_->shareIpcHandle(p);
	}
	TORCH_CHECK(
		options_.own_ipc,
		"ashlar: memory of Ashlar cannot be shared with another process. Use the setting ipc:ashlar, or allocate the "
		"tensor within `with ashlar.native_pool():`, so that PyTorch's own allocator holds it");
	caching::ShareableHandle handle{};
	check(api_, api_->share(p, share_flags, &keep_handle, &handle), "shareIpcHandle");
	return handle;
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
	if (options_.own_ipc) {
		void *p = nullptr;
		const ashlar_status status =
			api_->open_shared(c10::cuda::current_device(), handle.data(), handle.size(), &p);
		if (status != ASHLAR_UNKNOWN) {
			check(api_, status, "getIpcDevPtr");
			return std::shared_ptr<void>(p, CloseShared{api_});
		}
	}
	return native_->getIpcDevPtr(std::move(handle));
}

} // namespace ashlar
