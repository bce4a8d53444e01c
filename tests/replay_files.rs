//! What a run leaves on the disk, through the program: the same bytes whatever the threads, the process or the hash seed, and
//! nothing ever written twice.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use support::world::real;
use support::{Sandbox, repository};

/// Runs the program and expects this exit code; both streams come back as one text.
fn run(sandbox: &Sandbox, code: i32, args: &[&str]) -> String {
    let out = sandbox.run(args);
    assert!(out.starts_with(&format!("exit code: {code}\n")), "{args:?}\n{out}");
    out
}

fn demo() -> [String; 3] {
    let of = |path: &str| repository().join(path).display().to_string();
    [of("configs/demo.toml"), format!("dataset.path={}", of("data/demo")), of("configs/presets/musique.toml")]
}

/// Every file below a folder: its bytes and when it was last written.
fn state(sandbox: &Sandbox, folder: &str) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let files = sandbox.files();
    let below = files.iter().filter_map(|name| Some((name, name.strip_prefix(&format!("{folder}/"))?)));
    below
        .map(|(name, inside)| {
            let path = sandbox.path().join(name);
            (inside.to_owned(), (std::fs::read(&path).unwrap(), std::fs::metadata(&path).unwrap().modified().unwrap()))
        })
        .collect()
}

/// Files whose bytes depend on the plan alone. `plan.toml` also says how many threads were asked for and where the data lie.
fn outputs(sandbox: &Sandbox, folder: &str) -> BTreeMap<String, Vec<u8>> {
    let all = state(sandbox, folder).into_iter().filter(|(name, _)| !name.ends_with("plan.toml"));
    all.map(|(name, (bytes, _))| (name, bytes)).collect()
}

fn assert_equal_outputs(sandbox: &Sandbox, first: &str, other: &str) {
    let (a, b) = (outputs(sandbox, first), outputs(sandbox, other));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{first} and {other}");
    assert!(a.keys().any(|name| name.ends_with("traces.parquet")));
    for (name, bytes) in &a {
        assert!(bytes == &b[name], "{name} differs between {first} and {other}");
    }
}

/// pitfall 19: 1, 2 and 8 threads, and further processes, each with its own seed of hash maps, give the same bytes: tables, manifest
/// and the index, which every one of them builds anew.
#[test]
fn threads_and_hash_seeds_change_no_byte() {
    let sandbox = Sandbox::new();
    let [config, data, musique] = demo();
    for (out, threads) in [("one", "1"), ("two", "2"), ("eight", "8"), ("again", "8")] {
        for (method, lag) in [("living", "16"), ("no_gate", "4"), ("linear", "16")] {
            let (method, lag) = (format!("method={method}"), format!("replay.lag={lag}"));
            let sets = ["--set", &method, "--set", &lag, "--set", &data, "--set", "replay.timings=false"];
            // The second file's parameters make propagation and fusion reach far.
            let args = [["run", &config, &musique, "--threads", threads, "--out", out].as_slice(), &sets].concat();
            run(&sandbox, 0, &args);
        }
    }
    for other in ["two", "eight", "again"] {
        assert_equal_outputs(&sandbox, "one", other);
    }
}

/// pitfall 19 on real data, where sums are long enough for another order to show.
#[test]
fn threads_change_no_byte_on_real_data() {
    let Some(folder) = real("hotpotqa_train") else { return };
    let sandbox = Sandbox::new();
    let preset = repository().join("configs/presets/hotpotqa.toml").display().to_string();
    let data = format!("dataset.path={}", folder.display());
    run(&sandbox, 0, &["index", folder.to_str().unwrap(), "--out", "index"]);
    for (out, threads) in [("one", "1"), ("two", "2"), ("eight", "8")] {
        let sets = ["--set", &data, "--set", "index.path=index", "--set", "replay.timings=false"];
        run(&sandbox, 0, &[["run", &preset, "--threads", threads, "--out", out].as_slice(), &sets].concat());
    }
    assert_equal_outputs(&sandbox, "one", "two");
    assert_equal_outputs(&sandbox, "one", "eight");
}

/// pitfall 30: the same run again is refused, whatever is set that changes no row, and not one file is written; with `--resume` a
/// finished run is left as it is.
#[test]
fn a_run_is_never_overwritten() {
    let sandbox = Sandbox::new();
    let [config, data, _] = demo();
    let args = ["run", &config, "--set", &data, "--set", "replay.limit=12"];
    let first = run(&sandbox, 0, &args);
    let folder = first.lines().find(|line| line.starts_with("results/")).unwrap();
    let before = state(&sandbox, "results");
    assert!(before.keys().all(|name| !name.ends_with("journal.jsonl")));

    for more in [&[][..], &["--set", "replay.block=1"], &["--set", "replay.timings=false", "--threads", "1"]] {
        let out = run(&sandbox, 2, &[&args[..], more].concat());
        assert!(out.contains("is finished already\nhint: read it with `livingrag report`"), "{out}");
    }
    let out = run(&sandbox, 0, &[&args[..], &["--resume"]].concat());
    assert!(out.contains(&format!("\n{folder}\n")) && out.contains("finished already"), "{out}");
    assert!(state(&sandbox, "results") == before, "a file was touched");

    // Broken off: refused without --resume, and again nothing is written.
    std::fs::remove_file(sandbox.path().join(folder).join("manifest.json")).unwrap();
    let before = state(&sandbox, "results");
    let out = run(&sandbox, 2, &args);
    assert!(out.contains("holds an unfinished run\nhint: go on with it: add --resume"), "{out}");
    assert!(state(&sandbox, "results") == before, "a file was touched");
    assert!(Path::new(folder).is_relative());
}
