//! Every completed answer, once: the request cache.
//!
//! In: a [`super::CacheKey`] and the body that came back. Out: the same body, for ever, to every run and process that asks the
//! same. One SQLite file in WAL mode; an answer is in the file before the client hands it out, so a killed run loses none.
//! Failures are not kept: they are asked again. Answers travel between machines as Parquet ([`export`], [`import`]).

mod parquet;
#[cfg(feature = "llm")]
mod sqlite;
#[cfg(not(feature = "llm"))]
#[path = "sqlite_disabled.rs"]
mod sqlite;

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{CacheKey, Usage};
use crate::{Error, Result};

pub use parquet::{Imported, check_import, export, import};
pub use sqlite::Cache;

/// What the cache is for in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheMode {
    /// What is there is used, the rest is asked and kept.
    #[default]
    Use,
    /// Everything is asked anew and replaces what was there.
    Refresh,
    /// Nothing is asked; what is not there is an error.
    Only,
}

/// One kept answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Identity of the call.
    pub key: CacheKey,
    /// Address that answered.
    pub base_url: String,
    /// Model that was asked.
    pub model: String,
    /// What of the request was neither model nor messages, as JSON; empty in answers of the first layout.
    pub settings: String,
    /// Which repetition, from 0.
    pub attempt: u32,
    /// The question that asked first; a label.
    pub question: String,
    /// The body of the reply as it came, but for an echoed key.
    pub body: String,
    /// Its token counts.
    pub usage: Usage,
    /// Time of the try that answered, microseconds.
    pub elapsed_us: u64,
    /// How often it was sent.
    pub tries: u32,
    /// When it came, seconds since 1970.
    pub created: i64,
}

/// What a cache holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CacheStats {
    /// Size of the database file, bytes.
    pub bytes: u64,
    /// By model and address, in this order.
    pub models: Vec<ModelStats>,
}

/// What a cache holds of one model at one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelStats {
    /// Model.
    pub model: String,
    /// Address.
    pub base_url: String,
    /// Kept answers.
    pub answers: u64,
    /// Answers that came with token counts; the sums below are over these.
    pub with_usage: u64,
    /// Sum of prompt tokens.
    pub prompt_tokens: u64,
    /// Sum of completion tokens.
    pub completion_tokens: u64,
    /// Sum of times over all answers, microseconds.
    pub elapsed_us: u64,
    /// When the oldest came, seconds since 1970.
    pub oldest: i64,
    /// When the newest came.
    pub newest: i64,
}

/// Which answers to prune; those that meet every condition given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Came before this moment, seconds since 1970.
    pub created_before: Option<i64>,
    /// From this model.
    pub model: Option<String>,
}

/// What pruning did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruned {
    /// Answers removed, or that would be.
    pub answers: u64,
    /// The file was made smaller; not while another process uses it, and not in a dry run.
    pub shrunk: bool,
}

/// A file that must not be there and appears whole or not at all; `write` gets the name it has until then.
pub(super) fn write_new<T>(path: &Path, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    if path.exists() {
        return Err(Error::request(format!("{} is there already", path.display())).with_hint("choose another file"));
    }
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let unfinished = path.with_file_name(format!(".{name}.{}.unfinished", std::process::id()));
    let written = write(&unfinished)
        .and_then(|out| std::fs::rename(&unfinished, path).map(|()| out).map_err(|e| Error::io("write", path, e)));
    if written.is_err() {
        // The error that matters is the one above.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}
