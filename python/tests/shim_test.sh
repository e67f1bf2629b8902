#!/bin/sh
# Builds and runs the tests of the shim. Needs g++ and an installed PyTorch with CUDA, but no GPU:
#
#	sh python/tests/shim_test.sh [TEST...]
#
# PYTHON is the interpreter that has torch. Without one, TORCH_INCLUDE, TORCH_LIB, CUDA_INCLUDE and CUDART (the path of
# libcudart.so.N) say where the files are. CXXFLAGS are added, such as -fsanitize=address.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
shim=$here/../ashlar/shim
header=$here/../../cmd/libashlar

if [ -z "${TORCH_LIB:-}" ]; then
	torch=$("${PYTHON:-python3}" -c '
import importlib.util
spec = importlib.util.find_spec("torch")
print(spec.submodule_search_locations[0] if spec else "")')
	if [ ! -e "$torch/lib/libc10_cuda.so" ]; then
		echo "shim_test: skipped: no PyTorch with CUDA in ${PYTHON:-python3}, and TORCH_LIB is not set"
		exit 0
	fi
	TORCH_LIB=$torch/lib
	TORCH_INCLUDE=$torch/include
	site=$(dirname "$torch")
	for dir in "$site"/nvidia/cu*/include "$site"/nvidia/cuda_runtime/include /usr/local/cuda/include; do
		[ -e "$dir/cuda_runtime_api.h" ] && CUDA_INCLUDE=${CUDA_INCLUDE:-$dir}
	done
	for file in "$site"/nvidia/cu*/lib/libcudart.so.* "$site"/nvidia/cuda_runtime/lib/libcudart.so.*; do
		[ -e "$file" ] && CUDART=${CUDART:-$file}
	done
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
${CXX:-g++} -std=c++17 -O1 -g -Wall -D_GLIBCXX_USE_CXX11_ABI="${CXX11_ABI:-1}" -pthread ${CXXFLAGS:-} \
	-I"$shim" -I"$header" -I"$here" -isystem "$TORCH_INCLUDE" -isystem "$TORCH_INCLUDE/torch/csrc/api/include" \
	-isystem "$CUDA_INCLUDE" "$here/shim_test.cpp" "$shim"/*.cpp -o "$out/shim_test" \
	-L"$TORCH_LIB" -lc10 -lc10_cuda "$CUDART" -Wl,-rpath,"$TORCH_LIB" -Wl,-rpath,"$(dirname "$CUDART")"
"$out/shim_test" "$@"
