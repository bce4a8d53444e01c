#!/usr/bin/env bash
# Prints the folder of a CUDA compiler: $CUDA_HOME or the nvcc on the PATH where there is one, else .cuda/, which is filled once from
# Python packages (about 400 MB unpacked; needs python3 and a package index).
#   scripts/cuda-home.sh --link   makes .cuda/ fit to link programs with candle's CUDA against too: libraries that have the names of the
#                                 driver's, cuBLAS' and cuRAND's functions and nothing else. Where such a program runs, the real ones must be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ -n "${CUDA_HOME:-}" ] && [ -x "$CUDA_HOME/bin/nvcc" ]; then
    echo "$CUDA_HOME"
    exit
fi
if nvcc=$(command -v nvcc); then
    dirname "$(dirname "$(readlink -f "$nvcc")")"
    exit
fi
home() { echo "$PWD"/.cuda/venv/lib/python3*/site-packages/nvidia/cu13; }
if [ ! -e .cuda/complete ]; then
    python3 -m venv .cuda/venv >&2
    .cuda/venv/bin/python -m pip install --quiet --disable-pip-version-check \
        nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \
        nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cuda-nvrtc==13.0.88 >&2
    "$(home)/bin/nvcc" --version >&2
    touch .cuda/complete
fi
home=$(home)
if [ "${1:-}" = --link ] && [ ! -e "$home/lib/.linkable" ]; then
    cargo fetch --locked >&2
    sources=("${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/cudarc-*/src)
    while read -r library folder soname; do
        sed -n 's/.*load::<_F>("\([A-Za-z0-9_]*\)").*/void \1(void) {}/p' "${sources[-1]}/$folder/sys/mod.rs" | sort -u |
            cc -shared -fPIC -xc - -Wl,-soname,"$soname" -o "$home/lib/lib$library.so"
    done <<'LIBRARIES'
cuda driver libcuda.so.1
cublas cublas libcublas.so.13
cublasLt cublaslt libcublasLt.so.13
curand curand libcurand.so.10
LIBRARIES
    for library in cudart nvrtc; do
        ln -sf "lib$library.so.13" "$home/lib/lib$library.so"
    done
    touch "$home/lib/.linkable"
fi
echo "$home"
