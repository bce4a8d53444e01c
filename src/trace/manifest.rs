//! `manifest.json`: what ran, on what, and that it is complete.
//!
//! In: a [`Manifest`] from the replay. Out: pretty JSON with its keys in the order of the struct, written atomically as the last file
//! of a run; a run folder without it is unfinished.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{SCHEMA_VERSION, atomic};
use crate::{Error, Result};

/// Name of the file in a run folder.
pub const MANIFEST_FILE: &str = "manifest.json";

/// What ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the meaning of every file in the folder.
    pub schema_version: u32,
    /// The run: a readable prefix and a hash of its resolved plan.
    pub run_id: String,
    /// Version of the program.
    pub livingrag_version: String,
    /// Whether the run is finished.
    pub status: Status,
    /// Rows of `traces.parquet`.
    pub rows: u64,
    /// The questions and passages.
    pub dataset: DatasetInfo,
    /// The graph and its vectors.
    pub index: IndexInfo,
    /// The system replayed.
    pub method: String,
    /// Arrival order; the permutation itself is in `order.json`.
    pub order: String,
    /// Seed of everything drawn at random.
    pub seed: u64,
    /// W.
    pub lag: u32,
    /// Hash of the resolved plan without method, order, seed and paths: equal for runs that differ in nothing else.
    pub settings: String,
    /// Form of entity propagation, `bfs` or `matrix`; null where no graph is walked.
    pub propagation: Option<String>,
    /// How templates were compared, `embedding` or `tokens`; null where no scaffold is chosen.
    pub template_similarity: Option<String>,
    /// The reader.
    pub generator: GeneratorInfo,
    /// Hash of the prompt's text; null where no prompt was made.
    pub prompt_hash: Option<String>,
    /// What computed GS; null where no gate ran.
    pub grounding: Option<ModelInfo>,
    /// What judged; null where nothing did.
    pub judge: Option<ModelInfo>,
    /// Where the arithmetic ran.
    pub backend: BackendInfo,
    /// Counts worth keeping, by name.
    pub counters: BTreeMap<String, u64>,
    /// What a reader of the results should know, a sentence each.
    pub notes: Vec<String>,
    /// Start, seconds since 1970 (UTC); null where times are switched off.
    pub started_unix: Option<u64>,
    /// End, seconds since 1970 (UTC); null where times are switched off.
    pub finished_unix: Option<u64>,
}

/// Whether a run is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Every query of the stream is in the trace.
    Complete,
    /// Started and not finished.
    Running,
}

/// The dataset of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetInfo {
    /// Its name.
    pub name: String,
    /// blake3 of its files, hex.
    pub fingerprint: String,
    /// Passages of the corpus.
    pub passages: u64,
    /// Questions of the stream, before any limit.
    pub questions: u64,
    /// Questions whose gold passages are known.
    pub gold_known: u64,
}

/// The index of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexInfo {
    /// Fingerprint over dataset, annotations, encoder and options, hex.
    pub fingerprint: String,
    /// What made the vectors.
    pub encoder: String,
    /// blake3 of its files, hex, where it computed vectors for this index; null where all lay beside the dataset.
    #[serde(default)]
    pub encoder_fingerprint: Option<String>,
    /// Vectors it computed.
    #[serde(default)]
    pub computed_vectors: u64,
    /// Unique entities.
    pub entities: u64,
    /// Unique sentences with an entity.
    pub sentences: u64,
    /// Edges of the graph.
    pub edges: u64,
    /// `file` or `none`.
    pub annotations: String,
    /// Which corpus neighbours are joined: `all`, `same_document` or `none`.
    pub adjacent_passages: String,
    /// Kinds of texts whose vectors are all equal; anything here is alarming.
    #[serde(default)]
    pub constant_vectors: Vec<String>,
}

/// The reader of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorInfo {
    /// Its name, for example `simulated`.
    pub name: String,
    /// Model name; empty where there is none.
    pub model: String,
    /// True when no model was asked and gold data was read instead.
    pub simulated: bool,
}

/// A scorer of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Its name, for example `lexical`.
    pub name: String,
    /// Model name; empty where there is none.
    pub model: String,
}

/// Where the arithmetic of a run ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendInfo {
    /// `cpu` or `cuda`.
    pub name: String,
    /// The device in words.
    pub device: String,
    /// Worker threads.
    pub threads: u32,
    /// What was asked for: `auto`, `cpu` or `cuda`.
    pub requested: String,
}

impl Manifest {
    /// The file's text.
    ///
    /// # Errors
    /// Only if the values cannot be written as JSON.
    pub fn to_json(&self) -> Result<String> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::work("cannot write the manifest as JSON").with_source(e))?;
        text.push('\n');
        Ok(text)
    }

    /// Writes `manifest.json` into a run folder, atomically.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        atomic::write(&folder.join(MANIFEST_FILE), self.to_json()?.as_bytes())
    }

    /// Reads `manifest.json` of a run folder.
    ///
    /// # Errors
    /// When it is missing, is no JSON, lacks a key, or is of another schema version; names the file and the key.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST_FILE);
        let text = fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e))?;
        let invalid = |e: serde_json::Error| {
            Error::request(format!("{} is not a valid manifest: {e}", path.display()))
                .with_hint("run the stream again, or restore the file from a backup")
        };
        // The version first: another version may lack any other key.
        let value: serde_json::Value = serde_json::from_str(&text).map_err(invalid)?;
        let found = value.get("schema_version").cloned().unwrap_or_default();
        if found != SCHEMA_VERSION {
            return Err(Error::request(format!(
                "{} has schema_version {found}, this program reads {SCHEMA_VERSION}",
                path.display()
            ))
            .with_hint("use the version of livingrag that wrote the run"));
        }
        // Parsed from the text again, so that a wrong type is named with its line.
        serde_json::from_str(&text).map_err(invalid)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::fixture;

    #[test]
    fn it_survives_the_round_trip_with_its_keys_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = fixture::manifest("living", 3);
        manifest.write(folder.path()).unwrap();
        assert_eq!(Manifest::read(folder.path()).unwrap(), manifest);
        let text = fs::read_to_string(folder.path().join(MANIFEST_FILE)).unwrap();
        let keys: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("  \"").and_then(|rest| rest.split('"').next())).collect();
        assert_eq!(keys[..6], ["schema_version", "run_id", "livingrag_version", "status", "rows", "dataset"]);
        assert!(text.contains("\"status\": \"complete\""));
        assert!(text.ends_with("}\n"));
    }

    #[test]
    fn another_version_and_a_missing_key_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MANIFEST_FILE);
        fs::write(&path, r#"{"schema_version": 7}"#).unwrap();
        let error = Manifest::read(folder.path()).unwrap_err();
        assert!(error.to_string().ends_with("has schema_version 7, this program reads 1"), "{error}");
        fs::write(&path, r#"{"schema_version": 1}"#).unwrap();
        let error = Manifest::read(folder.path()).unwrap_err();
        assert!(error.to_string().contains("missing field `run_id`"), "{error}");
    }
}
