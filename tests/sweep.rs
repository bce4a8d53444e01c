//! Sweeps through the command: every run equals the run done alone, whatever is killed, shared or divided on the way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Sandbox, repository};

/// All six methods under three orders.
const SWEEP: &str = "name = 's'\nbase = ['[REPO]/configs/demo.toml']\n\
    methods = ['vanilla', 'linear', 'living', 'no_fusion', 'no_scaffold', 'no_gate']\n\
    orders = ['file', 'shuffle:1', 'drift']\n[set]\nreplay.timings = false\nreplay.block = 2\n[[dataset]]\npath = '[REPO]/data/demo'\n";

fn with_sweep(extra: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let text = format!("{SWEEP}{extra}").replace("[REPO]", repository().to_str().unwrap());
    sandbox.write("s.toml", text);
    sandbox
}

/// Contents of every file of every run folder, by path below `folder`.
fn runs(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    for run in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        let name = run.file_name().unwrap().to_str().unwrap().to_owned();
        if !run.is_dir() || name.starts_with('.') || name == "indexes" || name == "s" {
            continue;
        }
        for file in std::fs::read_dir(&run).unwrap().map(|e| e.unwrap().path()) {
            let key = format!("{name}/{}", file.file_name().unwrap().to_str().unwrap());
            out.insert(key, std::fs::read(&file).unwrap());
        }
    }
    out
}

fn shared_data() -> PathBuf {
    let shared = std::env::var_os("LIVINGRAG_SHARED").map_or_else(|| repository().join("../shared"), PathBuf::from);
    shared.join("data")
}

fn ok(sandbox: &Sandbox, args: &[&str]) -> String {
    let output = sandbox.output(args);
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{args:?}\n{err}");
    err
}

fn same(found: &BTreeMap<String, Vec<u8>>, expected: &BTreeMap<String, Vec<u8>>, when: &str) {
    let names = |of: &BTreeMap<String, Vec<u8>>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{when}");
    let differ: Vec<_> = found.iter().filter(|(name, bytes)| expected[*name] != **bytes).map(|(n, _)| n).collect();
    assert!(differ.is_empty(), "{when}: {differ:?}");
}

/// The sweep done in one go, as the others must come out.
fn reference() -> (Sandbox, BTreeMap<String, Vec<u8>>) {
    let sandbox = with_sweep("");
    ok(&sandbox, &["sweep", "s.toml", "--out", "r"]);
    let found = runs(&sandbox.path().join("r/s"));
    assert_eq!(found.len(), 18 * 5, "{:?}", found.keys());
    (sandbox, found)
}

#[test]
fn runs_of_a_sweep_equal_runs_alone_and_are_left_alone_afterwards() {
    let (sandbox, together) = reference();
    let demo = repository().join("configs/demo.toml");
    let data = format!("dataset.path={}", repository().join("data/demo").display());
    for method in ["vanilla", "linear", "living", "no_fusion", "no_scaffold", "no_gate"] {
        for order in ["file", "shuffle:1", "drift"] {
            let (method, order) = (format!("method={method}"), format!("order={order}"));
            let sets = ["--set", &data, "--set", &method, "--set", &order, "--set", "replay.timings=false"];
            // The block is written into plan.toml, though it changes no row.
            let block = ["--set", "replay.block=2", "--out", "alone", "--quiet"];
            ok(&sandbox, &[&["run", demo.to_str().unwrap()], &sets[..], &block[..]].concat());
        }
    }
    same(&together, &runs(&sandbox.path().join("alone")), "alone");

    // The same sweep again: refused, or with --resume nothing is done.
    let again = sandbox.run(&["sweep", "s.toml", "--out", "r"]);
    assert!(again.starts_with("exit code: 2\n"), "{again}");
    assert!(again.contains("error: r/s holds a sweep: 18 of 18 runs are finished, 0 begun"), "{again}");
    // What a kill between a run's manifest and the end of its journal leaves behind is tidied away.
    let finished = together.keys().find_map(|name| name.strip_suffix("/manifest.json")).unwrap();
    let left = sandbox.path().join("r/s").join(finished).join("journal.jsonl");
    std::fs::write(&left, "of a finished run").unwrap();
    let resumed = ok(&sandbox, &["sweep", "s.toml", "--out", "r", "--resume"]);
    assert!(resumed.contains("18 runs: 0 finished, 18 finished before"), "{resumed}");
    assert!(!left.exists());
    let rerun = ok(&sandbox, &["sweep", "s.toml", "--out", "r", "--rerun", "all", "--only", "*-living-*"]);
    assert!(rerun.contains("3 runs: 3 finished\n"), "{rerun}");
    same(&runs(&sandbox.path().join("r/s")), &together, "after --rerun all");

    // Equal work was done once: living, no_scaffold and no_gate share nothing with each other across orders but base rankings.
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(sandbox.path().join("r/s/sweep.json")).unwrap()).unwrap();
    let work = &manifest["work"][0]["work"];
    assert_eq!(work["queries"], work["requests"]["asked"]);
    for what in ["requests", "retrievals", "candidates", "pairs"] {
        let (asked, done) = (work[what]["asked"].as_u64().unwrap(), work[what]["done"].as_u64().unwrap());
        assert!(0 < done && done < asked, "{what}: {work}");
    }

    // Tables 5 and 18 hold every method and order.
    ok(&sandbox, &["report", "r/s", "--out", "report", "--quiet"]);
    let table = |name: &str| std::fs::read_to_string(sandbox.path().join("report/tables").join(name)).unwrap();
    let ablation = table("table-5.csv");
    assert_eq!(ablation.lines().count(), 7, "{ablation}");
    assert!(ablation.lines().next().unwrap().ends_with("reduction"), "{ablation}");
    let orders = table("table-18.csv");
    let header = orders.lines().next().unwrap();
    assert!(header.contains("file_0,drift_0,shuffle:1_0,mean,sd,linear_sd"), "{header}");
    assert!(orders.lines().skip(1).filter(|l| l.contains(",living,")).all(|l| l.split(',').count() > 8), "{orders}");
}

/// The same on real data: three methods under two orders of a stream whose fused activations reach new entities.
#[test]
fn runs_of_a_sweep_equal_runs_alone_on_real_data() {
    let data = shared_data().join("musique_train");
    if !data.is_dir() {
        eprintln!("skipped: no ../shared");
        return;
    }
    let sandbox = Sandbox::new();
    let preset = repository().join("configs/presets/musique.toml");
    let text = format!(
        "name = 's'\nmethods = ['linear', 'living', 'no_gate']\norders = ['file', 'shuffle:1']\n[set]\nreplay.timings = false\n\
         replay.limit = 60\n[[dataset]]\npath = {:?}\nconfig = [{:?}]\n",
        data.display().to_string(),
        preset.display().to_string()
    );
    sandbox.write("s.toml", text);
    ok(&sandbox, &["sweep", "s.toml", "--out", "r", "--quiet"]);
    let path = format!("dataset.path={}", data.display());
    for method in ["linear", "living", "no_gate"] {
        for order in ["file", "shuffle:1"] {
            let (method, order) = (format!("method={method}"), format!("order={order}"));
            let sets = ["--set", &path, "--set", &method, "--set", &order, "--set", "replay.timings=false"];
            let more = ["--set", "replay.limit=60", "--out", "r", "--quiet"];
            ok(&sandbox, &[&["run", preset.to_str().unwrap()], &sets[..], &more[..]].concat());
        }
    }
    same(&runs(&sandbox.path().join("r/s")), &runs(&sandbox.path().join("r")), "alone");
}

/// pitfalls 28 and 30: `kill -9` at any moment, then `--resume`, gives the files of an unbroken sweep.
#[test]
fn a_killed_sweep_goes_on_to_the_same_files() {
    let (sandbox, expected) = reference();
    let started = Instant::now();
    ok(&sandbox, &["sweep", "s.toml", "--out", "timed", "--quiet"]);
    let whole = started.elapsed();
    // Moments of a fixed pseudo-random sequence over the duration of the sweep.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut kills = 0;
    for moment in 0..20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let after = whole.mul_f64((state >> 11) as f64 / (1_u64 << 53) as f64);
        let mut child = sandbox
            .command(&["sweep", "s.toml", "--out", "killed", "--resume", "--quiet"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(after);
        kills += usize::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        // Every other time the sweep is finished and begun anew, so that kills fall on early and late moments alike.
        if moment % 2 == 1 {
            ok(&sandbox, &["sweep", "s.toml", "--out", "killed", "--resume", "--quiet"]);
            same(&runs(&sandbox.path().join("killed/s")), &expected, &format!("moment {moment}"));
            std::fs::remove_dir_all(sandbox.path().join("killed/s")).unwrap();
        }
    }
    assert!(kills > 5, "only {kills} of 20 kills hit a working process");
}

/// Two processes on one folder: every run is done, none twice.
#[test]
fn two_processes_share_a_folder() {
    let (sandbox, expected) = reference();
    let start = || {
        sandbox
            .command(&["sweep", "s.toml", "--out", "shared", "--resume", "--in-step", "2"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children = [start(), start()];
    let mut finished = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{err}");
        let said = err.lines().find_map(|l| l.strip_prefix("18 runs: ")).unwrap_or_else(|| panic!("{err}")).to_owned();
        finished += said.split(' ').next().unwrap().parse::<usize>().unwrap();
    }
    assert_eq!(finished, 18, "runs finished by both processes together");
    same(&runs(&sandbox.path().join("shared/s")), &expected, "shared");
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(sandbox.path().join("shared/s/sweep.json")).unwrap()).unwrap();
    let parts = manifest["work"].as_array().unwrap();
    let done: Vec<&str> =
        parts.iter().flat_map(|p| p["runs"].as_array().unwrap()).map(|r| r.as_str().unwrap()).collect();
    assert_eq!((done.len(), done.iter().collect::<BTreeSet<_>>().len()), (18, 18));
}

/// Shards done apart and put into one folder are the sweep.
#[test]
fn shards_merge_by_being_put_together() {
    let (sandbox, expected) = reference();
    for part in ["1/3", "2/3", "3/3"] {
        let out = format!("part{}", &part[..1]);
        ok(&sandbox, &["sweep", "s.toml", "--out", &out, "--shard", part, "--quiet"]);
        let copied =
            Command::new("cp").args(["-r", &format!("{out}/s"), "merged"]).current_dir(sandbox.path()).status();
        if part == "1/3" {
            assert!(copied.unwrap().success());
        } else {
            let script = format!("cp -r {out}/s/. merged/ && rm -rf merged/s");
            assert!(Command::new("sh").args(["-c", &script]).current_dir(sandbox.path()).status().unwrap().success());
        }
    }
    same(&runs(&sandbox.path().join("merged")), &expected, "merged");
    let status = sandbox.run(&["status", "merged"]);
    let line = status.lines().find(|l| l.trim_start().starts_with("demo")).unwrap_or_else(|| panic!("{status}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1..6], ["18", "18", "0", "0", "0"], "{status}");
}

/// A run that fails is listed and stops no other; it is tried again when that is asked for.
#[test]
fn a_failed_run_stops_no_other() {
    let sandbox = Sandbox::new();
    let text = "name = 'f'\nbase = ['[REPO]/configs/demo.toml']\nmethods = ['linear', 'living']\n[set]\nreplay.timings = false\n\
        [[dataset]]\npath = '[REPO]/data/demo'\n[[list]]\n[[list]]\ngenerate.kind = 'recorded'\ngenerate.model = 'empty.jsonl'\n";
    sandbox.write("f.toml", text.replace("[REPO]", repository().to_str().unwrap())).write("empty.jsonl", "");
    let out = sandbox.run(&["sweep", "f.toml", "--out", "r"]);
    assert!(out.starts_with("exit code: 1\n----- stdout -----\nr/f\n"), "{out}");
    assert!(out.contains("4 runs: 2 finished, 2 failed") && out.contains("error: 2 of 4 runs failed"), "{out}");
    let resumed = sandbox.run(&["sweep", "f.toml", "--out", "r", "--resume"]);
    assert!(resumed.contains("4 runs: 0 finished, 2 finished before, 2 failed"), "{resumed}");
    let again = sandbox.run(&["sweep", "f.toml", "--out", "r", "--rerun", "failed"]);
    assert!(again.contains("4 runs: 0 finished, 2 finished before, 2 failed"), "{again}");
    let status = sandbox.run(&["status", "r/f"]);
    assert_eq!(status.matches("failed: demo-").count(), 2, "{status}");
    assert!(status.contains("empty.jsonl"), "{status}");
}

#[test]
fn status_looks_on_while_a_sweep_works() {
    let sandbox = with_sweep("");
    let mut child = sandbox
        .command(&["sweep", "s.toml", "--out", "r", "--quiet"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut seen = BTreeSet::new();
    while child.try_wait().unwrap().is_none() {
        let out = sandbox.run(&["status", "r/s"]);
        // Before the folder is there the request is wrong, afterwards never.
        if out.starts_with("exit code: 0\n") {
            seen.extend(out.lines().find(|l| l.trim_start().starts_with("demo")).map(str::to_owned));
        } else {
            assert!(seen.is_empty(), "{out}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    let end = sandbox.run(&["status", "r/s", "--runs"]);
    assert_eq!(end.matches("  finished  ").count(), 18, "{end}");
}

#[test]
fn presets_plan_what_they_promise() {
    let sandbox = Sandbox::new();
    let data =
        format!("{}={}", repository().join("data/demo").display(), repository().join("configs/demo.toml").display());
    let expected = [("ablation", 18, "demo"), ("orders", 18, "demo"), ("sensitivity", 42, "demo")];
    for (name, runs, dataset) in expected {
        let path = repository().join(format!("configs/sweeps/{name}.toml"));
        let out = sandbox.run(&["sweep", path.to_str().unwrap(), "--dataset", &data, "--dry-run"]);
        let line = out.lines().find(|l| l.trim_start().starts_with(dataset)).unwrap_or_else(|| panic!("{out}"));
        assert_eq!(line.split_whitespace().nth(1), Some(runs.to_string().as_str()), "{out}");
        assert!(!sandbox.path().join("results").join(name).exists(), "a dry run makes no sweep folder");
    }
}

#[test]
fn a_slurm_job_is_written() {
    let sandbox = with_sweep("");
    ok(&sandbox, &["sweep", "s.toml", "--out", "r", "--set", "seed=3", "--slurm", "4"]);
    let script = std::fs::read_to_string(sandbox.path().join("r/s.sbatch")).unwrap();
    assert!(script.contains("#SBATCH --array=1-4\n"), "{script}");
    assert!(script.contains("'sweep' 's.toml' '--out' 'r' '--set' 'seed=3'"), "{script}");
    assert!(Command::new("bash").args(["-n", "r/s.sbatch"]).current_dir(sandbox.path()).status().unwrap().success());
}
