//! The CPU backend: rayon over queries, SIMD within, nothing needed beyond the processor.

mod dense;
pub mod pagerank;
mod passage_weight;
pub mod plan;
mod propagate;
mod scan;
mod sieve;
pub mod simd;

use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use crate::backend::{
    ActivationStore, Backend, Corpus, Description, Form, Matrix, PassageWeightQuery, PropagationQuery, Reset,
    RetrievalData, ScanQuery, ScanResult,
};
use crate::math::propagation::{Propagated, PropagationParams};
use crate::{Error, Result};

/// ⟨a, b⟩ in the backend's fixed order of sums.
pub use dense::dot;

/// The CPU with its own pool of workers.
pub struct Cpu {
    pool: Arc<rayon::ThreadPool>,
    note: Option<String>,
}

impl Cpu {
    /// `threads` workers; 0 is one a core.
    ///
    /// # Errors
    /// When the operating system gives no threads.
    pub fn new(threads: usize) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("livingrag-{i}"))
            .build()
            .map_err(|e| Error::work("cannot start the worker threads").with_source(e))?;
        Ok(Self { pool: Arc::new(pool), note: None })
    }

    /// Says something more in the description.
    #[must_use]
    pub fn with_note(mut self, note: String) -> Self {
        self.note = Some(note);
        self
    }
}

/// Maps a batch in order; a batch of one stays on the calling thread's worker.
fn each<Q: Sync, T: Send>(pool: &rayon::ThreadPool, batch: &[Q], f: impl Fn(&Q) -> T + Sync + Send) -> Vec<T> {
    match batch {
        [] => Vec::new(),
        [one] => vec![f(one)],
        many => pool.install(|| many.par_iter().map(f).collect()),
    }
}

impl Backend for Cpu {
    fn description(&self) -> Description {
        Description {
            name: "cpu".into(),
            device: format!("{} ({})", std::env::consts::ARCH, simd::Level::detect().as_str()),
            threads: self.pool.current_num_threads(),
            note: self.note.clone(),
        }
    }

    fn load(&self, data: Arc<RetrievalData>) -> Result<Box<dyn Corpus>> {
        data.check_shapes()?;
        let graph = &data.graph;
        let pagerank = pagerank::PageRank::new(&graph.adjacency, graph.n_entities());
        let entities = sieve::Sieve::new(&data.entities);
        Ok(Box::new(CpuCorpus { pool: Arc::clone(&self.pool), pagerank, entities, data, workspaces: Mutex::default() }))
    }

    fn similarities(&self, rows: &Matrix, queries: &Matrix) -> Result<Vec<f32>> {
        let views: Vec<&[f32]> = (0..queries.rows()).map(|q| queries.row(q)).collect();
        Ok(self.pool.install(|| dense::products(rows, &views)).concat())
    }

    fn store_scan(&self, store: &dyn ActivationStore, batch: &[ScanQuery<'_>]) -> Result<Vec<ScanResult>> {
        Ok(each(&self.pool, batch, |query| scan::scan(store, query)))
    }

    fn top_k(&self, batch: &[&[f32]], k: usize) -> Result<Vec<Vec<(u32, f64)>>> {
        Ok(each(&self.pool, batch, |scores| crate::math::rank::top_k(scores.iter().map(|&s| f64::from(s)), k)))
    }
}

/// One index on the CPU.
struct CpuCorpus {
    pool: Arc<rayon::ThreadPool>,
    pagerank: pagerank::PageRank,
    entities: sieve::Sieve,
    data: Arc<RetrievalData>,
    /// Idle workspaces: as many as there were workers at once, never cleared.
    workspaces: Mutex<Vec<propagate::Workspace>>,
}

impl CpuCorpus {
    fn take_workspace(&self) -> propagate::Workspace {
        let idle = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| propagate::Workspace::new(&self.data.graph))
    }

    fn give_workspace(&self, workspace: propagate::Workspace) {
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner).push(workspace);
    }
}

impl Corpus for CpuCorpus {
    fn link(&self, queries: &Matrix) -> Result<Vec<Option<(u32, f32)>>> {
        let views: Vec<&[f32]> = (0..queries.rows()).map(|q| queries.row(q)).collect();
        Ok(self.pool.install(|| self.entities.nearest(&views)))
    }

    fn passage_similarities(&self, queries: &[&[f32]]) -> Result<Vec<Vec<f32>>> {
        Ok(self.pool.install(|| dense::products(&self.data.passages, queries)))
    }

    fn propagate(
        &self,
        form: Form,
        params: PropagationParams,
        batch: &[PropagationQuery<'_>],
    ) -> Result<Vec<Propagated>> {
        let data = &self.data;
        Ok(each(&self.pool, batch, |query| {
            let mut workspace = self.take_workspace();
            let out = workspace.run(form, &data.graph, &data.sentences, params, query);
            self.give_workspace(workspace);
            out
        }))
    }

    fn passage_weights(
        &self,
        passage_ratio: f64,
        passage_node_weight: f64,
        batch: &[PassageWeightQuery<'_>],
    ) -> Result<Vec<Vec<f32>>> {
        Ok(each(&self.pool, batch, |query| {
            passage_weight::passage_weights(&self.data, passage_ratio, passage_node_weight, query)
        }))
    }

    fn pagerank(&self, damping: f64, batch: &[Reset<'_>]) -> Result<Vec<Option<Vec<f32>>>> {
        Ok(self.pool.install(|| self.pagerank.solve(damping, batch)))
    }
}
