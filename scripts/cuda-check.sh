#!/usr/bin/env bash
# Compiles every kernel for every target and checks what the assembler says: no spills, no local memory; and check-builds the crate with
# the feature `cuda`. Needs no GPU. The table of registers and shared memory lies in kernels/README.md between its markers:
#   scripts/cuda-check.sh           writes it
#   scripts/cuda-check.sh --check   fails when it is stale
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

python3 - "$work" "${1:-}" "${targets[@]}" <<'PYTHON'
import pathlib, re, sys
work, mode, targets = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
found, bad = {}, []
for log in sorted(work.glob("*.*")):
    if log.suffix[1:] not in targets:
        continue
    symbol = None
    for line in log.read_text().splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            symbol = m[1]
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, stores, loads = map(int, m.groups())
            if stack or stores or loads:
                bad.append(f"{symbol} for sm_{log.suffix[1:]}: {stack} bytes of local memory, {stores} spilled, {loads} loaded back")
            spills = stores + loads
        elif m := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found.setdefault((log.stem, symbol), {})[log.suffix[1:]] = (int(m[1]), int(shared[1]) if shared else 0, spills)
if bad:
    sys.exit("error: kernels must not spill or use local memory\n" + "\n".join(bad))
lines = ["| kernel | " + " | ".join(f"sm_{t}" for t in targets) + " |", "| --- |" + " --- |" * len(targets)]
for (module, symbol), by in sorted(found.items()):
    lines.append(f"| `{symbol}` | " + " | ".join("{} / {} / {}".format(*by[t]) for t in targets) + " |")
readme = pathlib.Path("kernels/README.md")
text = readme.read_text()
begin, end = "<!-- registers: begin -->\n", "<!-- registers: end -->"
head, rest = text.split(begin)
new = head + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1]
if mode == "--check":
    if new != text:
        sys.exit("error: the table in kernels/README.md is stale; run scripts/cuda-check.sh")
else:
    readme.write_text(new)
print(f"{len(found)} kernels for {len(targets)} targets: no spills, no local memory", file=sys.stderr)
PYTHON

cargo check --locked --features cuda --all-targets
