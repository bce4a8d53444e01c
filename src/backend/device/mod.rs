//! One backend for anything that launches the kernels of `kernels/`: which kernel, in what shape, over which buffers.
//!
//! In: the operations of [`crate::backend`]. Out: the same numbers as `math`. A [`Device`] holds memory and runs kernels; CUDA is one,
//! and a test runs the same kernels on the processor. Everything but those few calls is here, so it is tested without a GPU.
//! Batches are split so that they fit the device ([`plan`]); a query's result does not depend on how.

mod array;
mod backend;
mod checks;
mod corpus;
mod dense;
pub mod encoder;
pub mod kernel;
mod pagerank;
pub mod plan;
mod propagate;
mod scan;
mod stores;
mod weights;

pub use array::Array;
pub use backend::DeviceBackend;
pub use kernel::Kernel;

use array::Pool;
use std::sync::Arc;

use crate::backend::failed_in;
use crate::{Error, Result};

/// Memory and kernels of one device. Calls take effect in the order they are made.
pub trait Device: Send + Sync + 'static {
    /// Memory of the device; freed on drop.
    type Buffer: Send + Sync;
    /// `cuda`, or what else this is.
    fn kind(&self) -> &'static str;
    /// The device in words.
    fn name(&self) -> String;
    /// Bytes that can still be allocated.
    ///
    /// # Errors
    /// When the device does not answer.
    fn free_bytes(&self) -> Result<u64>;
    /// Memory with undefined content.
    ///
    /// # Errors
    /// When there is not enough.
    fn alloc(&self, bytes: usize) -> Result<Self::Buffer>;
    /// Copies into a buffer, from `offset` bytes on.
    ///
    /// # Errors
    /// When the device does not answer.
    fn write(&self, to: &Self::Buffer, offset: usize, bytes: &[u8]) -> Result<()>;
    /// Copies the first `bytes` bytes of one buffer to the start of another.
    ///
    /// # Errors
    /// When the device does not answer.
    fn copy(&self, from: &Self::Buffer, to: &Self::Buffer, bytes: usize) -> Result<()>;
    /// Copies from the start of a buffer, after everything asked for before is done.
    ///
    /// # Errors
    /// When the device does not answer, or an earlier launch failed.
    fn read(&self, from: &Self::Buffer, out: &mut [u8]) -> Result<()>;
    /// Sets the first `bytes` bytes to 0.
    ///
    /// # Errors
    /// When the device does not answer.
    fn zero(&self, buffer: &Self::Buffer, bytes: usize) -> Result<()>;
    /// Starts a kernel.
    ///
    /// # Errors
    /// When it cannot be started.
    fn launch(&self, kernel: Kernel, shape: Shape, args: &[Arg<'_, Self::Buffer>]) -> Result<()>;
    /// Threads of a block where a kernel takes any multiple of 32 up to 1024; results do not depend on it.
    fn block(&self, preferred: u32) -> u32 {
        preferred
    }
    /// Whether freed buffers are kept for the next batch, possibly longer than asked for.
    fn keeps_buffers(&self) -> bool {
        true
    }
}

/// Blocks of a launch and threads of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks along x and y; y is at most 65,535.
    pub grid: (u32, u32),
    /// Threads, a multiple of 32.
    pub block: u32,
}

/// One argument of a launch.
#[derive(Debug)]
pub enum Arg<'a, B> {
    /// A buffer the kernel reads.
    In(&'a B),
    /// A buffer the kernel writes.
    Out(&'a B),
    /// `unsigned int`
    U32(u32),
    /// `float`
    F32(f32),
    /// `double`
    F64(f64),
}

/// A device with its kept buffers; clones share both.
pub(crate) struct Engine<D: Device> {
    device: Arc<D>,
    pool: Arc<Pool<D>>,
}

impl<D: Device> Clone for Engine<D> {
    fn clone(&self) -> Self {
        Self { device: Arc::clone(&self.device), pool: Arc::clone(&self.pool) }
    }
}

impl<D: Device> Engine<D> {
    pub(crate) fn new(device: Arc<D>) -> Self {
        Self { pool: Arc::new(Pool::new(Arc::clone(&device))), device }
    }

    pub(crate) fn device(&self) -> &D {
        &self.device
    }

    /// Says in which operation the device failed.
    pub(crate) fn during<T>(&self, operation: &str, result: Result<T>) -> Result<T> {
        result.map_err(|error| failed_in(operation, self.device.kind(), error))
    }

    /// Undefined content, shape `[len]`.
    pub(crate) fn array<T: bytemuck::Pod>(&self, len: usize) -> Result<Array<D, T>> {
        Array::new(&self.pool, len)
    }

    /// Zeros, shape `[len]`.
    pub(crate) fn zeros<T: bytemuck::Pod>(&self, len: usize) -> Result<Array<D, T>> {
        let array = self.array(len)?;
        if len > 0 {
            self.device.zero(array.buffer(), len * size_of::<T>())?;
        }
        Ok(array)
    }

    /// A copy of `values`.
    pub(crate) fn upload<T: bytemuck::Pod>(&self, values: &[T]) -> Result<Array<D, T>> {
        let array = self.array(values.len())?;
        self.write(&array, 0, values)?;
        Ok(array)
    }

    /// Overwrites an array from position `at` on.
    pub(crate) fn write<T: bytemuck::Pod>(&self, array: &Array<D, T>, at: usize, values: &[T]) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        self.device.write(array.buffer(), at * size_of::<T>(), bytemuck::cast_slice(values))
    }

    /// The first `len` values of an array.
    pub(crate) fn download<T: bytemuck::Pod>(&self, array: &Array<D, T>, len: usize) -> Result<Vec<T>> {
        let mut out = vec![T::zeroed(); len];
        if len > 0 {
            self.device.read(array.buffer(), bytemuck::cast_slice_mut(&mut out))?;
        }
        Ok(out)
    }

    /// Starts a kernel in blocks of the preferred size; an empty grid is nothing to do.
    pub(crate) fn launch(
        &self,
        kernel: Kernel,
        grid: (usize, usize),
        preferred: u32,
        args: &[Arg<'_, D::Buffer>],
    ) -> Result<()> {
        self.launch_exactly(kernel, grid, self.device.block(preferred), args)
    }

    /// Starts a kernel that needs blocks of just this size.
    pub(crate) fn launch_exactly(
        &self,
        kernel: Kernel,
        grid: (usize, usize),
        block: u32,
        args: &[Arg<'_, D::Buffer>],
    ) -> Result<()> {
        if grid.0 == 0 || grid.1 == 0 {
            return Ok(());
        }
        let grid = (index(grid.0)?, index(grid.1)?);
        self.device.launch(kernel, Shape { grid, block }, args)
    }

    /// Starts a kernel with one thread an item.
    pub(crate) fn launch_items(&self, kernel: Kernel, items: usize, args: &[Arg<'_, D::Buffer>]) -> Result<()> {
        let block = self.device.block(256);
        self.launch_exactly(kernel, (items.div_ceil(block as usize), 1), block, args)
    }
}

/// A count as the kernels take it.
///
/// # Errors
/// Above 2³² - 2, which the kernels' 32-bit positions do not reach.
pub(crate) fn index(n: usize) -> Result<u32> {
    u32::try_from(n).ok().filter(|&n| n < u32::MAX).ok_or_else(|| {
        Error::work(format!("{n} entries are more than the device kernels can number (2^32 - 2)"))
            .with_hint("use backend.kind = \"cpu\"")
    })
}

/// Running positions of lists of these lengths: `[lists + 1]`.
pub(crate) fn offsets(lengths: impl IntoIterator<Item = usize>) -> Result<Vec<u32>> {
    let mut out = vec![0u32];
    let mut at = 0usize;
    for length in lengths {
        at += length;
        out.push(index(at)?);
    }
    Ok(out)
}
