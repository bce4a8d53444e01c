# Shortcuts for cargo and for scripts/; everything works without just.

# What continuous integration runs.
default: ci

ci:
    .ci/run

test:
    cargo test

lint:
    cargo fmt --check
    cargo clippy --all-targets -- -D warnings

# Compiles every kernel for every GPU target and writes the table in kernels/README.md; needs no GPU.
cuda-check *args:
    scripts/cuda-check.sh {{args}}

# On a GPU machine without cargo: parity on the device and timings; `just gpu-check build` first, where cargo works (CUDA_COMPUTE_CAP=90 for a Hopper card).
gpu-check what="run":
    scripts/gpu-check.sh {{what}}

demo:
    cargo run --release -- demo

# The demo as an array job of four on a real Slurm of one node (Debian, root; installs slurm-wlm).
slurm-check:
    cargo build --release
    scripts/slurm-check.sh

bench:
    cargo bench

# Refreshes generated documents and snapshots; look at the difference before committing it.
regen:
    LIVINGRAG_REGEN=1 cargo test --lib config::reference
    INSTA_UPDATE=always cargo test
