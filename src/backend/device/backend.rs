//! [`DeviceBackend`]: the operations that need no index, and the loading of one.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;
use crate::backend::device::corpus::DeviceCorpus;
use crate::backend::device::stores::Stores;
use crate::backend::device::{Device, Engine, dense, scan};
use crate::backend::{ActivationStore, Backend, Corpus, Description, Matrix, RetrievalData, ScanQuery, ScanResult};

/// A backend over one device.
pub struct DeviceBackend<D: Device> {
    engine: Engine<D>,
    /// One batch at a time: there is one device and one stream.
    turn: Arc<Mutex<()>>,
    /// Stores that were scanned; locked within a turn.
    stores: Mutex<Stores<D>>,
    threads: usize,
}

impl<D: Device> DeviceBackend<D> {
    /// Over a device; `threads` host threads are told in the description only.
    pub fn new(device: D, threads: usize) -> Self {
        Self::shared(Arc::new(device), threads)
    }

    /// Over a device that others use too.
    pub fn shared(device: Arc<D>, threads: usize) -> Self {
        Self { engine: Engine::new(device), turn: Arc::default(), stores: Mutex::default(), threads }
    }

    /// What it runs on.
    pub fn device(&self) -> &D {
        self.engine.device()
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
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        self.engine.during("a store scan", scan::scan(&self.engine, &mut stores, store, batch))
    }

    fn top_k(&self, batch: &[&[f32]], k: usize) -> Result<Vec<Vec<(u32, f64)>>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.engine.during("top-k", dense::top_k(&self.engine, batch, k))
    }
}
