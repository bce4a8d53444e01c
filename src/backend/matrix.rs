//! A row-major matrix of `f32` that is cheap to clone, whether its numbers are owned or lie in a mapped file.

use std::fmt;
use std::sync::Arc;

/// Shape `[rows, dim]`.
#[derive(Clone)]
pub struct Matrix {
    dim: usize,
    data: Arc<dyn AsRef<[f32]> + Send + Sync>,
}

impl Matrix {
    /// From owned numbers; `data.len()` must be a multiple of `dim` (a `dim` of 0 means no rows).
    pub fn new(dim: usize, data: Vec<f32>) -> Self {
        debug_assert!(if dim == 0 { data.is_empty() } else { data.len().is_multiple_of(dim) });
        Self { dim, data: Arc::new(data) }
    }

    /// From numbers that live elsewhere, for example in a mapped file.
    pub fn shared(dim: usize, data: Arc<dyn AsRef<[f32]> + Send + Sync>) -> Self {
        debug_assert!(if dim == 0 { (*data).as_ref().is_empty() } else { (*data).as_ref().len().is_multiple_of(dim) });
        Self { dim, data }
    }

    /// Numbers a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.as_slice().len().checked_div(self.dim).unwrap_or(0)
    }

    /// One row.
    #[inline]
    pub fn row(&self, i: usize) -> &[f32] {
        &self.as_slice()[i * self.dim..(i + 1) * self.dim]
    }

    /// All numbers, row-major.
    #[inline]
    pub fn as_slice(&self) -> &[f32] {
        (*self.data).as_ref()
    }
}

impl Default for Matrix {
    fn default() -> Self {
        Self::new(0, Vec::new())
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix [{}, {}]", self.rows(), self.dim)
    }
}
