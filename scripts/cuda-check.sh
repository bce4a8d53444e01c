#!/usr/bin/env bash
# Compiles every kernel for every target and checks what the assembler says: no spills, no local memory; and check-builds the crate with
# the features `cuda` and `cuda-encoders`. Needs no GPU. The table of registers and shared memory lies in kernels/README.md between its markers:
#   scripts/cuda-check.sh           writes it
#   scripts/cuda-check.sh --check   fails when it is stale (with another compiler than the table's, it is not compared)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

home=$(scripts/cuda-home.sh)
export CUDA_HOME=$home PATH="$home/bin:$PATH"
targets=(80 86 89 90 120)
# The same flags as build.rs.
flags=(-O3 -fmad=false)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for source in kernels/*.cu; do
    for target in "${targets[@]}"; do
        log=$work/$(basename "$source" .cu).$target
        if ! nvcc -cubin "-arch=sm_$target" "${flags[@]}" -Werror all-warnings -Xptxas -v -o "$work/out.cubin" "$source" >"$log" 2>&1; then
            cat "$log" >&2
            echo "error: $source does not compile for sm_$target" >&2
            exit 1
        fi
    done
done

version=$(nvcc --version | sed -n 's/.*release .*, V//p')
python3 - "$work" "$version" "${1:-}" "${targets[@]}" <<'PYTHON'
import pathlib, re, sys
work, version, mode, targets = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
found, bad = {}, []
for log in sorted(work.glob("*.*")):
    target = log.suffix[1:]
    if target not in targets:
        continue
    for line in log.read_text().splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            symbol = m[1]
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, stores, loads = map(int, m.groups())
            if stack or stores or loads:
                bad.append(f"{symbol} for sm_{target}: {stack} bytes of local memory, {stores} spilled, {loads} loaded back")
        elif m := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found.setdefault((log.stem, symbol), {})[target] = (int(m[1]), int(shared[1]) if shared else 0, stores + loads)
if bad:
    sys.exit("error: kernels must not spill or use local memory\n" + "\n".join(bad))
lines = [f"nvcc {version}; registers a thread / bytes of shared memory a block / bytes spilled.", ""]
lines += ["| kernel | " + " | ".join(f"sm_{t}" for t in targets) + " |", "| --- |" + " --- |" * len(targets)]
for (module, symbol), by in sorted(found.items()):
    lines.append(f"| `{symbol}` | " + " | ".join("{} / {} / {}".format(*by[t]) for t in targets) + " |")
readme = pathlib.Path("kernels/README.md")
text = readme.read_text()
begin, end = "<!-- registers: begin -->\n", "<!-- registers: end -->"
head, rest = text.split(begin)
new = head + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1]
if mode != "--check":
    readme.write_text(new)
elif f"nvcc {version};" not in text:
    print(f"note: the table in kernels/README.md is of another compiler than {version} and is not compared", file=sys.stderr)
elif new != text:
    sys.exit("error: the table in kernels/README.md is stale; run scripts/cuda-check.sh")
print(f"{len(found)} kernels for {len(targets)} targets: no spills, no local memory", file=sys.stderr)
PYTHON

cargo check --locked --features cuda --all-targets
# candle compiles its own kernels for the card it finds; here there may be none.
CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-80} cargo check --locked --features cuda-encoders --all-targets
