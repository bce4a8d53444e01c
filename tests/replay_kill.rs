//! `kill -9` of the program at twenty moments of one run, each followed by `--resume`: what is there in the end are the bytes of a
//! run that was never broken off (pitfalls 26 and 28).

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use support::{Sandbox, world};

/// Of the moments; another seed is another test.
const SEED: u8 = 28;
/// Enough for the replay to be most of the run.
const QUERIES: u32 = 400;
const JOURNAL: &str = "journal.jsonl";
/// What a finished run consists of.
const FILES: [&str; 5] = ["experiences.parquet", "manifest.json", "order.json", "plan.toml", "traces.parquet"];

/// When the program is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// So long after its start: dataset, index, session, or reading the journal.
    After(Duration),
    /// When the journal is so many bytes longer than before, and a little later.
    Grown(u64, Duration),
    /// When this file appears in the run's folder.
    Appears(&'static str),
}

struct Random(ChaCha8Rng);

impl Random {
    /// Evenly in `0..n`.
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n.max(1)
    }

    fn below_duration(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.below(most.as_nanos() as u64))
    }
}

fn length(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|m| m.len())
}

fn start(sandbox: &Sandbox, out: &str) -> Child {
    // Lag 1: every query is a block, and every block waits for the disk.
    let args = ["run", "world.toml", "--out", out, "--resume", "--quiet"];
    sandbox.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Starts the run and kills it; `false` when it ended before.
fn kill_at(sandbox: &Sandbox, folder: &Path, moment: Moment) -> bool {
    let journal = folder.join(JOURNAL);
    let before = length(&journal).unwrap_or(0);
    let mut child = start(sandbox, "killed");
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        let now = match moment {
            Moment::After(delay) => started.elapsed() >= delay,
            Moment::Grown(bytes, _) => length(&journal).unwrap_or(0) >= before + bytes,
            Moment::Appears(name) => folder.join(name).exists(),
        };
        if now {
            if let Moment::Grown(_, more) = moment {
                std::thread::sleep(more);
            }
            break;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    child.kill().unwrap();
    child.wait().unwrap().signal() == Some(9)
}

/// The unbroken run: its folder, when its journal appeared, and how long the journal became.
fn unbroken(sandbox: &Sandbox) -> (PathBuf, Duration, u64) {
    let mut child = start(sandbox, "unbroken");
    let started = Instant::now();
    let (mut folder, mut appeared, mut longest) = (None, Duration::ZERO, 0);
    loop {
        let ended = child.try_wait().unwrap();
        folder = folder.or_else(|| {
            let inside = std::fs::read_dir(sandbox.path().join("unbroken")).ok()?;
            inside.flatten().map(|e| e.path()).find(|p| p.join("plan.toml").exists())
        });
        if let Some(found) = folder.as_ref().and_then(|f| length(&f.join(JOURNAL))) {
            if longest == 0 {
                appeared = started.elapsed();
            }
            longest = longest.max(found);
        }
        if let Some(status) = ended {
            assert!(status.success());
            return (folder.unwrap(), appeared, longest);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn twenty_kills_leave_the_rows_of_an_unbroken_run() {
    let sandbox = Sandbox::new();
    world::write(&sandbox.path().join("data"), &world::many(QUERIES), false);
    let mut config = world::config(livingrag::config::Method::Living, 1);
    config.dataset.path = "data".into();
    config.gates.tau_novel = 0.3;
    let plan = config.plan("world", "").unwrap();
    sandbox.write("world.toml", plan.to_toml().unwrap());

    let (reference, until_journal, size) = unbroken(&sandbox);
    let folder = sandbox.path().join("killed").join(reference.file_name().unwrap());

    let mut random = Random(ChaCha8Rng::from_seed([SEED; 32]));
    let mut moments: Vec<Moment> = (0..3).map(|_| Moment::After(random.below_duration(until_journal))).collect();
    for i in 0..12 {
        // Ten of twelve growths of at most a twelfth; two restarts that are killed while they read the journal.
        moments.push(match i {
            4 | 8 => Moment::After(random.below_duration(until_journal)),
            _ => Moment::Grown(1 + random.below(size / 12), random.below_duration(Duration::from_millis(2))),
        });
    }
    moments.extend([".traces.parquet.tmp", "traces.parquet", ".experiences.parquet.tmp"].map(Moment::Appears));
    moments.extend([Moment::Appears("experiences.parquet"), Moment::Appears("manifest.json")]);
    assert_eq!(moments.len(), 20);

    let (mut killed, mut lengths) = (0, Vec::new());
    for (i, &moment) in moments.iter().enumerate() {
        killed += usize::from(kill_at(&sandbox, &folder, moment));
        let journal = folder.join(JOURNAL);
        lengths.extend(length(&journal));
        // Twice the last write of the journal is lost in part as well (pitfall 29).
        if let (7 | 12, Some(length)) = (i, length(&journal)) {
            std::fs::File::options().write(true).open(&journal).unwrap().set_len(length - 7).unwrap();
        }
    }
    let mut in_the_middle: Vec<u64> = lengths.iter().copied().filter(|&l| l > size / 100 && l < size).collect();
    in_the_middle.sort_unstable();
    in_the_middle.dedup();
    assert!(in_the_middle.len() >= 8, "kills in the middle: {lengths:?} of {size}");
    assert!(killed >= 17, "{killed} of 20 ended by the kill, at journal lengths {lengths:?}");

    assert!(start(&sandbox, "killed").wait().unwrap().success());
    for name in FILES {
        let (a, b) = (std::fs::read(reference.join(name)).unwrap(), std::fs::read(folder.join(name)).unwrap());
        assert!(a == b, "{name} differs from the unbroken run's");
    }
    let mut left: Vec<String> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, FILES, "only finished files are left");

    // The store took part: without it, its loss would not have shown.
    let experiences: Vec<livingrag::trace::row::ExperienceRow> =
        livingrag::trace::reader::read_rows(&folder.join("experiences.parquet")).unwrap();
    assert!(experiences.len() >= 10, "{} experiences", experiences.len());
    // pitfall 26: what is reported is the whole run.
    let run = livingrag::trace::reader::read_run(&folder, false).unwrap();
    assert_eq!(run.rows.len(), QUERIES as usize);
}
