#include "pools.h"

#include <algorithm>

namespace ashlar {

void PoolFilters::begin(DeviceIndex device, MempoolId_t id, Filter filter, bool ashlars) {
	std::lock_guard<std::mutex> lock(mutex_);
	entries_.push_back(Entry{device, id, std::move(filter), ashlars});
}

bool PoolFilters::end(DeviceIndex device, MempoolId_t id) {
	std::lock_guard<std::mutex> lock(mutex_);
	auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry &entry) {
		return entry.device == device && entry.id == id;
	});
	if (it != entries_.end()) {
		entries_.erase(it);
	}
	return entries_.empty();
}

PoolFilters::Route PoolFilters::find(DeviceIndex device, cudaStream_t stream) const {
	std::lock_guard<std::mutex> lock(mutex_);
	// PyTorch asks the latest filter first.
	auto it = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry &entry) {
		return entry.device == device && entry.filter(stream);
	});
	return it == entries_.rend() ? Route{} : Route{it->id, it->ashlars};
}

bool PoolFilters::empty() const {
	std::lock_guard<std::mutex> lock(mutex_);
	return entries_.empty();
}

void PoolFilters::set_last_resort(DeviceIndex device, MempoolId_t id, bool on) {
	std::lock_guard<std::mutex> lock(mutex_);
	if (on) {
		last_resort_.emplace(device, id);
	} else {
		last_resort_.erase({device, id});
	}
}

bool PoolFilters::has_last_resort(DeviceIndex device) const {
	std::lock_guard<std::mutex> lock(mutex_);
	return std::any_of(last_resort_.begin(), last_resort_.end(), [&](const auto &pool) {
		return pool.first == device;
	});
}

} // namespace ashlar
