#!/usr/bin/env bash
# Runs the demo as an array job of four on a real Slurm: one node, loopback only. Needs root on a Debian machine without a Slurm of its
# own; installs slurm-wlm, starts munged, slurmctld and slurmd from a folder of its own, and ends them again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
repository=$PWD
program=${LIVINGRAG:-$repository/target/release/livingrag}
[ -x "$program" ] || { echo "error: $program is not built; cargo build --release, or set LIVINGRAG" >&2; exit 2; }

command -v slurmctld >/dev/null && command -v munged >/dev/null || {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge >/dev/null
}

work=$(mktemp -d)
chmod 755 "$work"
pids=()
finish() {
    code=$?
    [ "$code" = 0 ] || tail -n 20 "$work"/*.log >&2 || true
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
    exit "$code"
}
trap finish EXIT

mkdir -p "$work"/{munge,state,spool}
dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
chmod 600 "$work/munge/key"
chmod 755 "$work/munge"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge.log" --seed-file="$work/munge/seed" >/dev/null 2>&1 &
pids+=($!)

host=$(hostname -s)
cat > "$work/slurm.conf" <<CONF
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
SlurmctldPort=46817
SlurmdPort=46818
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
printf 'CgroupPlugin=%s\n' "${CGROUP_PLUGIN:-autodetect}" > "$work/cgroup.conf"
export SLURM_CONF=$work/slurm.conf

slurmctld -D -c >/dev/null 2>&1 &
pids+=($!)
slurmd -D >/dev/null 2>&1 &
pids+=($!)
for _ in $(seq 60); do
    [ "$(sinfo --noheader --format=%t 2>/dev/null | head -n 1)" = idle ] && break
    sleep 0.5
done
sinfo
[ "$(sinfo --noheader --format=%t | head -n 1)" = idle ] || { echo "error: the node did not come up" >&2; exit 1; }

cat > "$work/check.toml" <<TOML
name = "check"
base = ["$repository/configs/demo.toml"]
methods = ["vanilla", "linear", "living", "no_gate"]
orders = ["file", "shuffle:1"]
[set]
replay.timings = false
[[dataset]]
path = "$repository/data/demo"
TOML
cd "$work"
"$program" sweep check.toml --out whole --threads 1 --quiet
"$program" sweep check.toml --out results --slurm 4 --quiet
sbatch --wait results/check.sbatch
tail -n 3 results/check/slurm/*.log
"$program" status results/check
for run in whole/check/*/; do
    diff -r "$run" "results/check/$(basename "$run")"
done
[ "$(find results/check -name manifest.json | wc -l)" = 8 ]
[ "$(find results/check -maxdepth 1 -name 'sweep-*of4.json' | wc -l)" = 4 ]
"$program" report results/check --out report --quiet | tail -n 1
echo "slurm-check: 4 tasks did 8 runs, files equal to those of one process"
