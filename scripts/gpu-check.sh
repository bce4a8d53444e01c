#!/usr/bin/env bash
# Checks and times the kernels on a GPU machine that needs no cargo.
#   scripts/gpu-check.sh build    where cargo works: builds what runs there into target/gpu-check/ (carry that folder over)
#   scripts/gpu-check.sh run      on the GPU machine, from the repository root: parity on the device, compute-sanitizer where it is installed,
#                                 timings into benches/results/gpu-<card>-<date>.{json,md}
# Leaves the card's settings alone. The whole run ends within 8 minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=target/gpu-check

case "${1:-}" in
build)
    CUDA_HOME=$(scripts/cuda-home.sh --link)
    export CUDA_HOME
    mkdir -p "$out"
    cargo build --locked --release --features cuda --example gpu_check
    cp target/release/examples/gpu_check "$out/gpu_check"
    # candle's own kernels are compiled for one card: CUDA_COMPUTE_CAP=90 for an H100 or H200.
    CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-80} cargo build --locked --release --features cuda-encoders --example gpu_encoders
    cp target/release/examples/gpu_encoders "$out/gpu_encoders"
    test=$(cargo test --locked --release --features cuda --no-run --test backends --message-format=json |
        python3 -c 'import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m.get("executable") and m["target"]["name"] == "backends": print(m["executable"])')
    cp "$test" "$out/backends"
    strip "$out/gpu_check" "$out/gpu_encoders" "$out/backends"
    size=$(du -sm "$out" | cut -f1)
    echo "$out: $size MiB"
    [ "$size" -le 60 ] || { echo "error: more than 60 MiB" >&2; exit 1; }
    ;;
run)
    [ -x "$out/gpu_check" ] && [ -x "$out/backends" ] || { echo "error: run scripts/gpu-check.sh build where cargo works, and carry $out over" >&2; exit 2; }
    # Tests must not pass for want of a device.
    LIVINGRAG_REQUIRE_CUDA=1 timeout 60 "$out/backends" --test-threads 1
    if command -v compute-sanitizer >/dev/null; then
        for tool in memcheck racecheck; do
            # Two cases of each property are enough for these tools, which slow kernels down a lot.
            LIVINGRAG_REQUIRE_CUDA=1 PROPTEST_CASES=2 timeout 75 compute-sanitizer --tool "$tool" --error-exitcode 1 "$out/backends" --test-threads 1
        done
    else
        echo "note: compute-sanitizer is not installed; races are not looked for" >&2
    fi
    card=$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0 | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
    name=benches/results/gpu-$card-$(date -u +%Y-%m-%d)
    mkdir -p benches/results
    timeout 190 "$out/gpu_check" "$name.json" | tee "$name.md"
    # Linked with cuBLAS and cuRAND, which a machine with only a driver lacks.
    missing=$(ldd "$out/gpu_encoders" | awk '/not found/ { print $1 }' | paste -sd' ')
    if [ -z "$missing" ]; then
        timeout 80 "$out/gpu_encoders" "$name-encoders.json" | tee "$name-encoders.md"
    else
        echo "note: encoders are not checked or timed: $missing not found; they come with the CUDA toolkit" >&2
    fi
    ;;
*)
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
