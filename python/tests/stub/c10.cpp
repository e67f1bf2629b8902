// A libc10.so for the tests: a name with std::string, by which the ABI is known, and calls of an allocator as PyTorch
// makes them.
#include <exception>
#include <functional>
#include <string>
#include <utility>

namespace c10 {
int check(const std::string &text) { return static_cast<int>(text.size()); }
} // namespace c10

template <typename Call> static void *catching(char *err, size_t n, Call call) {
	try {
		return call();
	} catch (const std::exception &e) {
		snprintf(err, n, "%s", e.what());
		return nullptr;
	}
}

extern "C" void *stub_malloc(void *function, size_t size, char *err, size_t n) {
	return catching(err, n, [=] { return ((void *(*)(size_t, int, void *))function)(size, 0, nullptr); });
}

extern "C" void stub_begin_pool(void *function, char *err, size_t n) {
	using Function = void (*)(int, std::pair<unsigned long long, unsigned long long>, std::function<bool(void *)>);
	catching(err, n, [=]() -> void * {
		((Function)function)(0, {0, 1}, [](void *) { return true; });
		return nullptr;
	});
}
