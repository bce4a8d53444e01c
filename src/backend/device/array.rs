//! Typed arrays in device memory, and the pool that keeps their buffers from batch to batch.
//!
//! In: lengths. Out: arrays that give their memory back when dropped. After the first batch of a size nothing is allocated any more.
//! Kept buffers never take the device's memory much past what work itself needed at its most: before that the oldest are given back.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Result;
use crate::backend::device::{Arg, Device};

/// Buffers in use and idle together take at most this share of the most that was in use at once.
const KEPT: f64 = 1.1;

/// Buffers of one device.
pub(crate) struct Pool<D: Device> {
    device: Arc<D>,
    state: Mutex<State<D::Buffer>>,
}

struct State<B> {
    /// Idle buffers with their sizes in bytes, the one given back first at the front.
    idle: Vec<(usize, B)>,
    idle_bytes: usize,
    used_bytes: usize,
    /// Of `used_bytes`, ever.
    most_used: usize,
}

impl<D: Device> Pool<D> {
    pub(crate) fn new(device: Arc<D>) -> Self {
        let state = State { idle: Vec::new(), idle_bytes: 0, used_bytes: 0, most_used: 0 };
        Self { device, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State<D::Buffer>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The smallest idle buffer that is large enough but hardly larger, else a new one.
    fn take(&self, bytes: usize) -> Result<(usize, D::Buffer)> {
        let mut state = self.state();
        let fits = |&(_, &(size, _)): &(usize, &(usize, D::Buffer))| size >= bytes && size <= bytes + bytes / 8;
        let found = state.idle.iter().enumerate().filter(fits).min_by_key(|(_, (size, _))| *size).map(|(at, _)| at);
        let held = match found {
            Some(at) => {
                let held = state.idle.remove(at);
                state.idle_bytes -= held.0;
                held
            }
            None => {
                let most = state.most_used.max(state.used_bytes + bytes);
                while !state.idle.is_empty()
                    && (state.used_bytes + bytes + state.idle_bytes) as f64 > KEPT * most as f64
                {
                    state.idle_bytes -= state.idle.remove(0).0;
                }
                let buffer = match self.device.alloc(bytes) {
                    Err(_) if !state.idle.is_empty() => {
                        // Idle buffers may be what fills the device.
                        state.idle.clear();
                        state.idle_bytes = 0;
                        self.device.alloc(bytes)
                    }
                    result => result,
                };
                (bytes, buffer?)
            }
        };
        state.used_bytes += held.0;
        state.most_used = state.most_used.max(state.used_bytes);
        Ok(held)
    }

    fn give(&self, bytes: usize, buffer: D::Buffer) {
        let mut state = self.state();
        state.used_bytes -= bytes;
        if self.device.keeps_buffers() {
            state.idle.push((bytes, buffer));
            state.idle_bytes += bytes;
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
