//! What every command that replays does first: dataset, index, backend, session, each opened once and told about.

use std::path::Path;
use std::sync::Arc;

use super::{Global, output};
use crate::Result;
use crate::backend::{self, Backend};
use crate::config::{BackendConfig, RunConfig};
use crate::dataset::Dataset;
use crate::index::{Index, IndexOptions, files};
use crate::replay::estimate::{Estimate, available_memory, estimate};
use crate::replay::{Parts, Session};

/// A dataset with its index, before anything is computed.
pub struct Opened {
    /// Questions and passages.
    pub dataset: Dataset,
    /// The index.
    pub index: Arc<Index>,
}

/// Opens dataset and index; an index that is not there yet is built under `out/indexes`.
pub fn open(config: &RunConfig, out: &Path, global: &Global) -> Result<Opened> {
    let dataset = Dataset::open(config.dataset_path()?)?;
    for note in &dataset.notes {
        output::note(global.quiet, &format!("note: {}", note.text));
    }
    let options = IndexOptions::from(&config.index);
    let index = if config.index.path.as_os_str().is_empty() {
        let (index, built) = files::open_or_build(&dataset, &options, &out.join("indexes"))?;
        output::note(global.quiet, if built { "index built" } else { "index opened" });
        index
    } else {
        files::open_for(&config.index.path, &dataset, &options)?
    };
    output::note(global.quiet, &index.meta.summary());
    for note in &index.meta.notes {
        output::warning(note);
    }
    Ok(Opened { dataset, index: Arc::new(index) })
}

/// The backend, and as many workers for what runs beside it.
pub fn open_backend(config: &BackendConfig) -> Result<Arc<dyn Backend>> {
    // Fails when an earlier dataset has made them already, with the same number unless a sweep mixes numbers; results do not depend on it.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(config.threads as usize).build_global();
    Ok(Arc::from(backend::open(config)?))
}

impl Opened {
    /// What a run will take; refuses what will not fit into memory.
    pub fn estimate(&self, config: &RunConfig, parts: &Parts) -> Result<Estimate> {
        let passages = &self.dataset.passages;
        let characters: usize = passages.iter().map(|p| p.text.len()).sum();
        let mean = characters as f64 / passages.len().max(1) as f64;
        let threads = match config.backend.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n as usize,
        };
        // What an endpoint is asked is quoted, call by call; see `cli::endpoint`.
        let asks = parts.asks() && parts.endpoint.is_none();
        let estimate = estimate(config, &self.index.meta, mean, asks, threads);
        estimate.check_memory(available_memory())?;
        Ok(estimate)
    }

    /// Prepares the dataset on the configuration's backend.
    pub fn session(self, config: &RunConfig) -> Result<Session> {
        Session::new(self.dataset, self.index, open_backend(&config.backend)?)
    }
}
