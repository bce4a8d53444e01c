//! What the process of a run or sweep takes at its fullest, before it starts.
//!
//! In: an opened dataset and index, settings, how many runs advance together. Out: bytes of resident memory, everything counted: the
//! program's own pages, mapped index files (all of their pages are read once, to check them; the system may take them back when memory is
//! short), texts, matrices, what runs keep. Arrays are counted as they are allocated; what texts and allocator take
//! beside them are factors measured on hotpotqa_train, musique_train and 2wiki. `tests/memory.rs` holds the sum against the process.

use crate::backend::cpu::plan::Sizes as Matrices;
use crate::config::RunConfig;
use crate::dataset::Dataset;
use crate::index::Index;
use crate::math::graph::Csr;
use crate::replay::cosines;
use crate::retrieve::prepared::SIMILARITY_CACHE_BYTES;

/// Pages of the program that get touched, runtime and stacks included.
const PROGRAM: u64 = 20 << 20;
/// Heap bytes of a byte of the dataset's text: the text itself and what reading its JSON leaves in the heap.
const OF_TEXT: f64 = 2.5;
/// A text of the index beside its bytes: a string and its block.
const STRING: u64 = 40;
/// A query in the finished tables while they are written, its base ranking, and what describes it in the stream.
const QUERY: u64 = 12_000;
/// Writers of the finished tables, with their pages.
const WRITERS: u64 = 3 << 20;
/// A query of a further run: experience, postings, reply.
const FURTHER: u64 = 1_500;
/// What waits for the slowest run when runs go through the stream in several orders: buffers and arenas, once; for each question;
/// for each question and run in a graph of entities, and for each entity that its retrieval touched.
const ORDERS: u64 = 12 << 20;
const ORDERS_QUESTION: u64 = 16_000;
const ORDERS_GRAPH: u64 = 13_000;
const ORDERS_TOUCHED: f64 = 134.0;
/// Entities that propagation touches at most, as a rule: thresholds end it.
const TOUCHED: f64 = 100.0;

/// Sizes of an opened dataset that memory depends on.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sizes {
    /// Matrices of the index.
    pub matrices: Matrices,
    /// Questions of the dataset.
    pub questions: u64,
    /// Entities that a question names, on average.
    pub seeds: f64,
    /// Entities of a sentence, on average.
    pub mentions: f64,
    /// Bytes of the dataset's texts.
    pub text: u64,
    /// Bytes of texts and graph of the index on the heap.
    pub index: u64,
    /// Bytes of vectors, mapped.
    pub vectors: u64,
}

impl Sizes {
    /// Of a dataset with its index.
    pub fn of(dataset: &Dataset, index: &Index) -> Self {
        let of = |texts: &mut dyn Iterator<Item = &String>| texts.map(|t| t.len() as u64 + STRING).sum::<u64>();
        let passages = dataset.passages.iter().map(|p| (p.text.len() + p.title.as_ref().map_or(0, String::len)) as u64);
        let questions = dataset.questions.iter().map(|q| q.text.len() as u64 + 200);
        let (graph, c) = (&index.data.graph, &index.meta.counts);
        let csr = |c: &Csr| (8 * c.offsets.len() + 4 * c.indices.len()) as u64;
        let lists = [&graph.entity_sentences, &graph.sentence_entities, &graph.passage_entities];
        let weighted = [&graph.adjacency, &index.data.occurrences];
        let rows = c.passages + c.sentences + c.entities + c.questions + c.question_entities + c.templates;
        let mean = |sum: usize, n: usize| sum as f64 / n.max(1) as f64;
        Self {
            matrices: Matrices::of(&index.data),
            questions: c.questions as u64,
            seeds: mean(index.questions.iter().map(|q| q.entities.len()).sum(), c.questions),
            mentions: mean(graph.sentence_entities.indices.len(), c.sentences),
            text: passages.chain(questions).sum(),
            index: of(&mut index.entities.iter().chain(&index.sentences).chain(&index.question_entities))
                + lists.into_iter().map(csr).sum::<u64>()
                + weighted.into_iter().map(|w| csr(&w.shape) + 8 * w.values.len() as u64).sum::<u64>(),
            vectors: (rows * index.meta.dim * 4) as u64,
        }
    }

    /// Bytes while dataset and index are open and nothing else is.
    pub fn opened(&self) -> u64 {
        (self.text as f64 * OF_TEXT) as u64 + self.index + self.vectors
    }

    /// Entities that a retrieval touches, as a rule.
    fn touched(&self, config: &RunConfig) -> f64 {
        let spread = f64::from(config.retrieve.top_k_sentence) * self.mentions;
        let hops = config.retrieve.max_iterations.saturating_sub(1);
        let reached: f64 = (1..=hops.min(16)).map(|hop| spread.powi(hop as i32)).sum();
        (self.seeds * (1.0 + reached)).min(TOUCHED)
    }
}

/// Runs that advance together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Together {
    /// How many.
    pub runs: u64,
    /// In how many orders they go through the stream.
    pub orders: u64,
    /// Queries of each.
    pub queries: u64,
}

/// Bytes of the whole process: everything of this dataset and its runs.
pub fn process_bytes(config: &RunConfig, sizes: &Sizes, threads: u64, together: Together) -> u64 {
    PROGRAM + sizes.opened() + runs_bytes(config, sizes, threads, together)
}

/// Bytes that the runs take beside the opened dataset.
pub fn runs_bytes(config: &RunConfig, sizes: &Sizes, threads: u64, together: Together) -> u64 {
    let Together { runs, orders, queries } = together;
    let m = &sizes.matrices;
    // A block is never longer than the stream.
    let lag = u64::from(config.replay.lag).min(queries);
    let block = if config.replay.block == 0 { lag } else { u64::from(config.replay.block).min(lag) };
    // The first batch is `linear` of the whole stream, which describes it.
    let batch = (runs * block).max(queries);
    let kept = (4 * sizes.questions * m.passages).min(SIMILARITY_CACHE_BYTES as u64);
    let pairs = if config.method.has_store() { 2 * cosines::bytes(sizes.questions as usize) as u64 } else { 0 };
    let waiting = match (orders > 1, m.entities > 0) {
        (false, _) => 0,
        (true, false) => ORDERS + queries * ORDERS_QUESTION,
        (true, true) => {
            let graph = ORDERS_GRAPH + (ORDERS_TOUCHED * sizes.touched(config)) as u64;
            ORDERS + queries * (ORDERS_QUESTION + runs * graph)
        }
    };
    m.loaded()
        + m.workspaces(threads)
        + m.retrieval(threads, batch)
        + kept
        + pairs
        + queries * QUERY
        + WRITERS
        + runs.saturating_sub(1) * queries * FURTHER
        + waiting
}

/// Bytes in words.
pub fn words(bytes: u64) -> String {
    match bytes {
        n if n >= 1 << 30 => format!("{:.2} GiB", n as f64 / f64::from(1 << 30)),
        n => format!("{:.0} MiB", n as f64 / f64::from(1 << 20)),
    }
}

/// The most memory this process has held so far, where the system says.
pub fn peak_so_far() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}
