#!/bin/sh
# Compiles the kernels here to PTX, compressed to a fifth: go generate ./compute/cuda. With names of sources, only those. It
# needs nvcc 11.8 or newer, but none that writes a newer PTX than 7.8, which drivers of CUDA 11.8 and all later ones load:
# $NVCC says which.
#
# A source with a line "// types: f32 f64" becomes one module for each type, compiled with -DELEMENT=f32; others become
# one. A module says what it was made of: the SHA-256 of the source and of the headers that it includes, directly or not,
# in the order of their names. Those that are up to date are left alone.
set -eu
cd "$(dirname "$0")"
export LC_ALL=C
nvcc=${NVCC:-nvcc}
newest=7.8

parts() { # a source: itself and its headers
    found=$1
    while
        more=$(printf '%s\n' $found $(sed -n 's/^#include "\(.*\)"$/\1/p' $found) | sort -u)
        [ "$more" != "$found" ]
    do
        found=$more
    done
    echo "$found"
}

build() { # source, module, more arguments
    source=$1 module=$2
    shift 2
    sum=$(cat $(parts "$source") | sha256sum | cut -d ' ' -f 1)
    if gzip -dc "$module.ptx.gz" 2>/dev/null | head -n 1 | grep -q "^// source: sha256 $sum\$"; then
        return
    fi
    echo "$module.ptx.gz"
    "$nvcc" -ptx -std=c++17 -arch=compute_70 -O3 "$@" -o "$module.tmp" "$source"
    version=$(sed -n 's/^\.version //p' "$module.tmp")
    if [ "$(printf '%s\n' "$version" "$newest" | sort -V | tail -n 1)" != "$newest" ]; then
        rm "$module.tmp"
        echo "build.sh: $nvcc writes PTX $version, which older drivers do not load: take one that writes $newest" >&2
        exit 1
    fi
    {
        echo "// source: sha256 $sum"
        sed -e 's/^[[:space:]]*//' -e 's/[[:space:]]*\/\/.*$//' -e '/^$/d' "$module.tmp"
    } | gzip -n -9 >"$module.new"
    rm "$module.tmp"
    mv "$module.new" "$module.ptx.gz"
}

for source in ${*:-*.cu}; do
    base=${source%.cu}
    types=$(sed -n 's/^\/\/ types: //p' "$source")
    if [ -z "$types" ]; then
        build "$source" "$base"
    fi
    for type in $types; do
        build "$source" "${base}_$type" "-DELEMENT=$type"
    done
done
