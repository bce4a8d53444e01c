#!/usr/bin/env bash
# Prints the folder of a CUDA compiler: $CUDA_HOME or the nvcc on the PATH where there is one, else .cuda/, which is filled once from
# Python packages (about 400 MB unpacked; needs python3 and a package index).
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
home
