//! Typed arrays in device memory, and the pool that keeps their buffers from batch to batch.
//!
//! In: lengths. Out: arrays that give their memory back when dropped. After the first batch of a size nothing is allocated any more.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;
use crate::backend::device::{Arg, Device};

/// Idle buffers with their sizes in bytes.
pub(crate) struct Pool<D: Device> {
    device: Arc<D>,
    idle: Mutex<Vec<(usize, D::Buffer)>>,
}

impl<D: Device> Pool<D> {
    pub(crate) fn new(device: Arc<D>) -> Self {
        Self { device, idle: Mutex::default() }
    }

    /// The smallest idle buffer that is large enough but not more than twice as large, else a new one.
    fn take(&self, bytes: usize) -> Result<(usize, D::Buffer)> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |&(_, &(size, _)): &(usize, &(usize, D::Buffer))| size >= bytes && size <= bytes.saturating_mul(2);
        if let Some((at, _)) = idle.iter().enumerate().filter(fits).min_by_key(|(_, (size, _))| *size) {
            return Ok(idle.swap_remove(at));
        }
        match self.device.alloc(bytes) {
            Ok(buffer) => Ok((bytes, buffer)),
            Err(_) if !idle.is_empty() => {
                // Buffers of other sizes may be what fills the device.
                idle.clear();
                self.device.alloc(bytes).map(|buffer| (bytes, buffer))
            }
            Err(error) => Err(error),
        }
    }

    fn give(&self, bytes: usize, buffer: D::Buffer) {
        if self.device.keeps_buffers() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((bytes, buffer));
        }
    }
}

/// `[len]` values of `T` in device memory.
pub struct Array<D: Device, T> {
    pool: Arc<Pool<D>>,
    /// `None` only while it is dropped.
    held: Option<(usize, D::Buffer)>,
    len: usize,
    values: PhantomData<T>,
}

impl<D: Device, T> Array<D, T> {
    pub(crate) fn new(pool: &Arc<Pool<D>>, len: usize) -> Result<Self> {
        let held = pool.take(len * size_of::<T>())?;
        Ok(Self { pool: Arc::clone(pool), held: Some(held), len, values: PhantomData })
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[allow(clippy::expect_used)]
    pub(crate) fn buffer(&self) -> &D::Buffer {
        &self.held.as_ref().expect("held until it is dropped").1
    }

    /// As an argument the kernel reads.
    pub(crate) fn read(&self) -> Arg<'_, D::Buffer> {
        Arg::In(self.buffer())
    }

    /// As an argument the kernel writes.
    pub(crate) fn write(&mut self) -> Arg<'_, D::Buffer> {
        Arg::Out(self.buffer())
    }
}

impl<D: Device, T> Drop for Array<D, T> {
    fn drop(&mut self) {
        if let Some((bytes, buffer)) = self.held.take() {
            self.pool.give(bytes, buffer);
        }
    }
}
