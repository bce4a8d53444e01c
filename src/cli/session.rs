//! What every command that replays does first: dataset, index, backend, session, each opened once and told about.

use std::path::Path;
use std::sync::Arc;

use super::progress::Progress;
use super::{Global, output};
use crate::Result;
use crate::backend::{self, Backend};
use crate::config::{BackendConfig, RunConfig, TemplateSimilarity};
use crate::dataset::Dataset;
use crate::experience::template::mask_question;
use crate::index::encoder::ModelEncoders;
use crate::index::kept::Watch;
use crate::index::vectors::Supply;
use crate::index::{Index, IndexOptions, files};
use crate::replay::estimate::{Estimate, available_memory, estimate};
use crate::replay::memory::{Sizes, peak_so_far};
use crate::replay::{Parts, Session};

/// A dataset with its index, before anything is computed.
pub struct Opened {
    /// Questions and passages.
    pub dataset: Dataset,
    /// The index.
    pub index: Arc<Index>,
}

/// Whether a run compares templates by vectors and by nothing else.
pub fn needs_templates(config: &RunConfig) -> bool {
    config.method.has_store() && config.experience.template_similarity == TemplateSimilarity::Embedding
}

/// Calls `work` with what makes the vectors that a dataset lacks.
pub fn with_supply<T>(
    config: &RunConfig,
    templates: bool,
    global: &Global,
    work: impl FnOnce(&mut Supply<'_>) -> Result<T>,
) -> Result<T> {
    set_threads(&config.backend);
    let mut watch = Encoding { quiet: global.quiet, bar: None };
    work(&mut Supply {
        encoder: &config.index.encoder,
        kept: &config.index.vectors,
        templates,
        mask: mask_question,
        encoders: &ModelEncoders { device: config.backend.kind },
        watch: &mut watch,
    })
}

/// Tells how far the encoder is.
struct Encoding {
    quiet: bool,
    bar: Option<Progress>,
}

impl Watch for Encoding {
    fn begin(&mut self, encoder: &str, texts: usize, tokens: usize, kept: usize) {
        let kept = if kept > 0 { format!(", {kept} others were kept before") } else { String::new() };
        let text = format!("vectors: {encoder} will encode {texts} texts, about {tokens} tokens{kept}");
        output::note(self.quiet, &text);
        self.bar = Some(Progress::new("encode tokens", tokens as u64, self.quiet));
    }

    fn opened(&mut self, device: &str) {
        output::note(self.quiet, &format!("the encoder runs on {device}"));
    }

    fn at(&mut self, done: usize) {
        if let Some(bar) = &self.bar {
            bar.set(done as u64);
        }
    }

    fn note(&mut self, text: &str) {
        output::note(self.quiet, text);
    }

    fn end(&mut self) {
        self.bar = None;
    }
}

/// Opens dataset and index; an index that is not there yet is built under `out/indexes`. `templates`: some run needs template vectors.
pub fn open(config: &RunConfig, templates: bool, out: &Path, global: &Global) -> Result<Opened> {
    let dataset = Dataset::open(config.dataset_path()?)?;
    for note in &dataset.notes {
        output::note(global.quiet, &format!("note: {}", note.text));
    }
    let options = IndexOptions::from(&config.index);
    let index = with_supply(config, templates, global, |supply| {
        if !config.index.path.as_os_str().is_empty() {
            return files::open_for(&config.index.path, &dataset, &options, Some(supply));
        }
        let (index, built) = files::open_or_build(&dataset, &options, &out.join("indexes"), Some(supply))?;
        output::note(global.quiet, if built { "index built" } else { "index opened" });
        Ok(index)
    })?;
    output::note(global.quiet, &index.meta.summary());
    for note in &index.meta.notes {
        output::warning(note);
    }
    Ok(Opened { dataset, index: Arc::new(index) })
}

/// As many workers as are asked for, for all that runs beside a backend.
fn set_threads(config: &BackendConfig) {
    // Fails when an earlier dataset has made them already, with the same number unless a sweep mixes numbers; results do not depend on it.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(config.threads as usize).build_global();
}

/// The backend, and as many workers for what runs beside it.
pub fn open_backend(config: &BackendConfig) -> Result<Arc<dyn Backend>> {
    set_threads(config);
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
        let mut estimate = estimate(config, &Sizes::of(&self.dataset, &self.index), mean, asks, threads);
        // An index that was built just now may have taken more than the run will.
        estimate.memory_bytes = (estimate.memory_bytes + parts.grounding_bytes).max(peak_so_far().unwrap_or(0));
        estimate.check_memory(available_memory())?;
        Ok(estimate)
    }

    /// Prepares the dataset on the configuration's backend.
    pub fn session(self, config: &RunConfig) -> Result<Session> {
        Session::new(self.dataset, self.index, open_backend(&config.backend)?)
    }
}
