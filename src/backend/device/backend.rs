//! [`DeviceBackend`]: the operations that need no index, and the loading of one.

use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::device::corpus::DeviceCorpus;
use crate::backend::device::{Device, Engine, FuseQuery, dense, fuse, scan};
use crate::backend::{ActivationStore, Backend, Corpus, Description, Matrix, RetrievalData, ScanQuery, ScanResult};
use crate::math::sparse::SparseVector;
use crate::{Error, Result};

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

/// Ends the work when the device failed: the operations of a backend return numbers and have no way to return an error. Memory is
/// planned and lists are checked when an index is loaded, so what is left is a device that is broken or was taken away.
#[allow(clippy::panic)]
pub(crate) fn or_stop<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error: Error| panic!("the device failed in the middle of the work\n{}", error.report()))
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

    fn similarities(&self, rows: &Matrix, queries: &Matrix) -> Vec<f32> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        or_stop(dense::similarities(&self.engine, rows, queries))
    }

    fn store_scan(&self, store: &dyn ActivationStore, batch: &[ScanQuery<'_>]) -> Vec<ScanResult> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        or_stop(scan::scan(&self.engine, store, batch))
    }

    fn top_k(&self, batch: &[&[f32]], k: usize) -> Vec<Vec<(u32, f64)>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        or_stop(dense::top_k(&self.engine, batch, k))
    }
}
