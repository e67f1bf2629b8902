#!/bin/sh
# Compiles move.cu to PTX: go generate ./mem/arena/internal/region. It needs an nvcc of CUDA 11.8, which writes the PTX that
# drivers of CUDA 11.8 and all later ones load: $NVCC says which. The first line names the source by its SHA-256.
set -eu
cd "$(dirname "$0")"
"${NVCC:-nvcc}" -ptx -std=c++17 -arch=compute_70 -O3 -o move.tmp move.cu
{
    echo "// source: sha256 $(sha256sum <move.cu | cut -d ' ' -f 1)"
    sed -e 's/^[[:space:]]*//' -e 's/[[:space:]]*\/\/.*$//' -e '/^$/d' move.tmp
} >move.ptx
rm move.tmp
