//! `sweep.json`: what a sweep consists of, and what work was done for it.
//!
//! In: the resolved runs and, for each dataset that a process went through, its counters. Out: a file in the sweep's folder
//! (`sweep-2of4.json` for a shard, so that the folders of shards can be put together). Each process adds its part under a lock.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ledger::claim_manifest;
use super::shard::Shard;
use crate::replay::shared::Work;
use crate::trace::atomic;
use crate::{Error, Result};

/// Version of the meaning of the file.
const VERSION: u32 = 1;

/// One run of the sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEntry {
    /// Its id and folder.
    pub run_id: String,
    /// The dataset's name.
    pub dataset: String,
    /// Method.
    pub method: String,
    /// Order.
    pub order: String,
    /// Seed.
    pub seed: u64,
    /// Queries of its stream.
    pub queries: usize,
    /// What its point of grid, list or one_at_a_time sets.
    pub changed: BTreeMap<String, String>,
}

/// What one process did for the runs of one dataset that it advanced together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupWork {
    /// The dataset's name.
    pub dataset: String,
    /// Fingerprint of its index.
    pub index: String,
    /// The runs.
    pub runs: Vec<String>,
    /// Queries of theirs that were committed before, by a process that was broken off.
    pub resumed_queries: usize,
    /// Bytes of the stores of all of them at the end.
    pub store_bytes: usize,
    /// Wall time from the first block to the last file, seconds.
    pub seconds: f64,
    /// What the runs asked for and what was done.
    pub work: Work,
}

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepManifest {
    /// Version of this file.
    pub schema_version: u32,
    /// Name of the sweep.
    pub name: String,
    /// Version of the program.
    pub livingrag_version: String,
    /// blake3 over the run ids, sorted: equal for equal sweeps.
    pub plan: String,
    /// The share of the runs that was asked for, `2/4`; null for all.
    pub shard: Option<String>,
    /// Every run of the sweep, those of other shards too.
    pub runs: Vec<RunEntry>,
    /// What was done, a part a dataset and process.
    pub work: Vec<GroupWork>,
}

/// Name of the file.
pub fn file_name(shard: Option<Shard>) -> String {
    shard.map_or("sweep.json".into(), |s| format!("sweep-{}of{}.json", s.part, s.of))
}

/// The manifests in a folder, sorted by name.
///
/// # Errors
/// When one cannot be read.
pub fn read_all(folder: &Path) -> Result<Vec<SweepManifest>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io("read", folder, e))? {
        let path = entry.map_err(|e| Error::io("read", folder, e))?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if name == "sweep.json" || name.starts_with("sweep-") && name.ends_with(".json") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<SweepManifest> {
    let text = fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let invalid = |e: serde_json::Error| {
        Error::request(format!("{} is not a valid sweep manifest: {e}", path.display()))
            .with_hint("remove the file; the finished runs beside it stay")
    };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(invalid)?;
    let found = value.get("schema_version").cloned().unwrap_or_default();
    if found != VERSION {
        return Err(Error::request(format!(
            "{} has schema_version {found}, this program reads {VERSION}",
            path.display()
        ))
        .with_hint("use the version of livingrag that wrote the sweep"));
    }
    serde_json::from_str(&text).map_err(invalid)
}

impl SweepManifest {
    /// Of these runs, no work done.
    pub fn new(name: &str, shard: Option<Shard>, runs: Vec<RunEntry>) -> Self {
        let mut ids: Vec<&str> = runs.iter().map(|r| r.run_id.as_str()).collect();
        ids.sort_unstable();
        Self {
            schema_version: VERSION,
            name: name.into(),
            livingrag_version: env!("CARGO_PKG_VERSION").into(),
            plan: blake3::hash(ids.join("\n").as_bytes()).to_hex().to_string(),
            shard: shard.map(|s| format!("{}/{}", s.part, s.of)),
            runs,
            work: Vec::new(),
        }
    }

    /// Writes the file into a sweep's folder, with the work that is in it already and `more`. Returns whether the sweep's runs were
    /// others before.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn merge_into(&self, folder: &Path, shard: Option<Shard>, more: Option<GroupWork>) -> Result<bool> {
        fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
        let _turn = claim_manifest(folder)?;
        let path = folder.join(file_name(shard));
        let before = if path.is_file() { Some(read(&path)?) } else { None };
        let changed = before.as_ref().is_some_and(|b| b.plan != self.plan);
        let mut now = Self { work: before.map(|b| b.work).unwrap_or_default(), ..self.clone() };
        now.work.extend(more);
        let mut text = serde_json::to_string_pretty(&now)
            .map_err(|e| Error::work("cannot write the sweep's manifest as JSON").with_source(e))?;
        text.push('\n');
        atomic::write(&path, text.as_bytes())?;
        Ok(changed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn entry(id: &str) -> RunEntry {
        RunEntry {
            run_id: id.into(),
            dataset: "d".into(),
            method: "living".into(),
            order: "file".into(),
            seed: 0,
            queries: 5,
            changed: BTreeMap::new(),
        }
    }

    #[test]
    fn each_process_adds_its_part() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = SweepManifest::new("s", None, vec![entry("b"), entry("a")]);
        let part = |runs: &[&str]| GroupWork {
            dataset: "d".into(),
            index: "i".into(),
            runs: runs.iter().map(|r| (*r).to_owned()).collect(),
            resumed_queries: 0,
            store_bytes: 0,
            seconds: 1.5,
            work: Work::default(),
        };
        assert!(!manifest.merge_into(folder.path(), None, Some(part(&["a"]))).unwrap());
        assert!(!manifest.merge_into(folder.path(), None, Some(part(&["b"]))).unwrap());
        let shard = Some(Shard { part: 1, of: 2 });
        manifest.merge_into(folder.path(), shard, None).unwrap();
        let all = read_all(folder.path()).unwrap();
        assert_eq!(all.iter().map(|m| m.work.len()).collect::<Vec<_>>(), [0, 2]);
        // The order of the runs does not matter, the set does.
        assert_eq!(SweepManifest::new("s", None, vec![entry("a"), entry("b")]).plan, manifest.plan);
        let other = SweepManifest::new("s", None, vec![entry("a")]);
        assert!(other.merge_into(folder.path(), None, None).unwrap());
    }
}
