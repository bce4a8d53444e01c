//! [`DeviceBackend`]: the operations that need no index, and the loading of one.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;
use crate::backend::device::corpus::DeviceCorpus;
use crate::backend::device::{Device, Engine, FuseQuery, dense, fuse, scan};
use crate::backend::{ActivationStore, Backend, Corpus, Description, Matrix, RetrievalData, ScanQuery, ScanResult};
use crate::math::sparse::SparseVector;

/// A backend over one device.
pub struct DeviceBackend<D: Device> {
    engine: Engine<D>,
    /// One batch at a time: there is one device and one stream.
    turn: Arc<Mutex<()>>,
    threads: usize,
}

impl<D: Device> DeviceBackend<D> {
    /// Over a device; `threads` host threads are told in the description only.
    pub fn new(device: D, threads: usize) -> Self {
        Self { engine: Engine::new(Arc::new(device)), turn: Arc::default(), threads }
    }

    /// What it runs on.
    pub fn device(&self) -> &D {
        self.engine.device()
    }

    /// Equations 8 to 10 for a batch: a0 and the weights w_k of each query.
    ///
    /// # Errors
    /// When the device fails.
    pub fn fuse(&self, batch: &[FuseQuery<'_>]) -> Result<Vec<(SparseVector, Vec<f64>)>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        fuse::fuse(&self.engine, batch)
    }
}

impl<D: Device> Backend for DeviceBackend<D> {
    fn description(&self) -> Description {
        Description {
            name: self.engine.device().kind().into(),
            device: self.engine.device().name(),
            threads: self.threads,
            note: None,
        }
    }

    fn load(&self, data: Arc<RetrievalData>) -> Result<Box<dyn Corpus>> {
        Ok(Box::new(DeviceCorpus::new(self.engine.clone(), Arc::clone(&self.turn), data)?))
    }

    fn similarities(&self, rows: &Matrix, queries: &Matrix) -> Result<Vec<f32>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.engine.during("similarities", dense::similarities(&self.engine, rows, queries))
    }

    fn store_scan(&self, store: &dyn ActivationStore, batch: &[ScanQuery<'_>]) -> Result<Vec<ScanResult>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.engine.during("a store scan", scan::scan(&self.engine, store, batch))
    }

    fn top_k(&self, batch: &[&[f32]], k: usize) -> Result<Vec<Vec<(u32, f64)>>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.engine.during("top-k", dense::top_k(&self.engine, batch, k))
    }
}
