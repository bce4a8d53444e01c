//! Layer normalisation: y = γ·(x - mean)/sqrt(var + ε) + β over each row, with the residual added first.
//!
//! In: rows `[T, H]`, γ and β `[H]`. Out: rows `[T, H]`.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, CustomOp2, DType, Layout, Shape, Tensor};
use rayon::prelude::*;

use super::device::{self, Kernels, Place};
use super::lanes::{Body, LANES, Lanes, Unit, run};
use super::product::{Shared, filled};
use super::{failed, misfit, slice};
use crate::Result;
use crate::backend::device::encoder::Norm;

/// Rows one task normalises.
const ROWS_PER_TASK: usize = 64;

/// Layer normalisation over the last dimension.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    width: usize,
    parameters: Parameters,
    eps: f32,
}

/// γ and β.
#[derive(Debug, Clone)]
enum Parameters {
    Host(Vec<f32>, Vec<f32>),
    Device { gamma: Tensor, beta: Tensor, kernels: Arc<dyn Kernels> },
}

impl LayerNorm {
    /// From γ and β `[H]`, any floating type.
    ///
    /// # Errors
    /// When their shapes differ.
    pub fn new(gamma: &Tensor, beta: &Tensor, eps: f32) -> Result<Self> {
        Self::on(&Place::Host, gamma, beta, eps)
    }

    /// [`new`](Self::new), at a place; γ and β are there.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on(place: &Place, gamma: &Tensor, beta: &Tensor, eps: f32) -> Result<Self> {
        if gamma.rank() != 1 || gamma.dims() != beta.dims() || gamma.elem_count() == 0 {
            let shapes = format!("weight {:?} does not fit bias {:?}", gamma.dims(), beta.dims());
            return Err(misfit("layer normalisation", shapes));
        }
        let plain = |t: &Tensor| t.to_dtype(DType::F32)?.contiguous();
        let gamma = plain(gamma).map_err(failed("layer normalisation"))?;
        let beta = plain(beta).map_err(failed("layer normalisation"))?;
        let width = gamma.elem_count();
        let parameters = match place {
            Place::Host => {
                let numbers = |t: &Tensor| t.to_vec1::<f32>().map_err(failed("layer normalisation"));
                Parameters::Host(numbers(&gamma)?, numbers(&beta)?)
            }
            Place::Device(_, kernels) => Parameters::Device { gamma, beta, kernels: Arc::clone(kernels) },
        };
        Ok(Self { width, parameters, eps })
    }

    /// The normalised rows of x `[T, H]`.
    ///
    /// # Errors
    /// When rows have another length, or the device fails.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        match &self.parameters {
            Parameters::Host(..) => {
                x.contiguous().and_then(|x| x.apply_op1_no_bwd(self)).map_err(failed("layer normalisation"))
            }
            Parameters::Device { gamma, beta, kernels } => {
                device::norm(&**kernels, x, None, &Norm { gamma, beta, eps: self.eps })
            }
        }
    }

    /// The normalised rows of x + residual, both `[T, H]`.
    ///
    /// # Errors
    /// When rows have another length, the shapes differ, or the device fails.
    pub fn forward_residual(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        if x.dims() != residual.dims() {
            let shapes = format!("{:?} does not fit the residual {:?}", x.dims(), residual.dims());
            return Err(misfit("layer normalisation", shapes));
        }
        match &self.parameters {
            Parameters::Host(..) => {
                let y = || x.contiguous()?.apply_op2_no_bwd(&residual.contiguous()?, self);
                y().map_err(failed("layer normalisation"))
            }
            Parameters::Device { gamma, beta, kernels } => {
                device::norm(&**kernels, x, Some(residual), &Norm { gamma, beta, eps: self.eps })
            }
        }
    }

    fn check(&self, x: &Tensor) -> Result<()> {
        if x.rank() == 2 && x.dims()[1] == self.width {
            return Ok(());
        }
        let shapes = format!("takes [T, {}], not {:?}", self.width, x.dims());
        Err(misfit("layer normalisation", shapes))
    }

    pub(super) fn host_rows(&self, unit: Unit, x: &[f32], residual: Option<&[f32]>) -> candle_core::Result<Vec<f32>> {
        let Parameters::Host(gamma, beta) = &self.parameters else {
            candle_core::bail!("the weights are on another device")
        };
        let width = self.width;
        let fill = |y: Shared| {
            x.par_chunks(ROWS_PER_TASK * width).enumerate().for_each(|(task, x)| {
                let first = task * ROWS_PER_TASK * width;
                // SAFETY: tasks write the rows that they read, which tasks do not share; lengths were checked.
                unsafe {
                    let rows = Rows {
                        x,
                        residual: residual.map(|r| &r[first..first + x.len()]),
                        gamma,
                        beta,
                        eps: self.eps,
                        y: y.at(first),
                    };
                    run(unit, rows);
                }
            });
        };
        // SAFETY: every row is written.
        Ok(unsafe { filled(x.len(), fill) })
    }
}

/// Some rows.
struct Rows<'a> {
    x: &'a [f32],
    residual: Option<&'a [f32]>,
    gamma: &'a [f32],
    beta: &'a [f32],
    eps: f32,
    y: *mut f32,
}

impl Body for Rows<'_> {
    type Output = ();

    /// # Safety
    /// As of [`Body::run`]; `y` takes as many numbers as `x` has.
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let width = self.gamma.len();
        for t in 0..self.x.len() / width {
            let residual = self.residual.map(|r| r[t * width..].as_ptr());
            // SAFETY: the caller's; row t is in all three.
            unsafe { self.row::<V>(self.x[t * width..].as_ptr(), residual, self.y.add(t * width)) };
        }
    }
}

impl Rows<'_> {
    /// # Safety
    /// As of [`Lanes`]; a row is there to read, and to write.
    #[inline(always)]
    unsafe fn row<V: Lanes>(&self, x: *const f32, residual: Option<*const f32>, y: *mut f32) {
        let width = self.gamma.len();
        let (whole, rest) = (width / LANES * LANES, width % LANES);
        let n = width as f32;
        // SAFETY: the caller's; numbers past the row are neither read nor written.
        unsafe {
            let mut sum = V::splat(0.0);
            let mut c = 0;
            while c < width {
                let m = if c < whole { LANES } else { rest };
                let mut s = V::load_part(x.add(c), m);
                if let Some(residual) = residual {
                    s = s.add(V::load_part(residual.add(c), m));
                }
                s.store_part(y.add(c), m);
                sum = sum.add(s);
                c += LANES;
            }
            let mean = V::splat(sum.sum() / n);
            let mut squares = V::splat(0.0);
            c = 0;
            while c < width {
                let m = if c < whole { LANES } else { rest };
                V::load_part(y.add(c), m).sub(mean).store_part(y.add(c), m);
                let d = V::load_part(y.add(c), m);
                squares = squares.add_product(d, d);
                c += LANES;
            }
            let scale = V::splat((squares.sum() / n + self.eps).sqrt().recip());
            c = 0;
            while c < width {
                let m = if c < whole { LANES } else { rest };
                let (gamma, beta) = (self.gamma.as_ptr().add(c), self.beta.as_ptr().add(c));
                let d = V::load_part(y.add(c), m).mul(scale);
                V::load_part(beta, m).add_product(d, V::load_part(gamma, m)).store_part(y.add(c), m);
                c += LANES;
            }
        }
    }
}

impl CustomOp1 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer-norm"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let y = self.host_rows(Unit::detect(), slice(storage, layout)?, None)?;
        Ok((CpuStorage::F32(y), layout.shape().clone()))
    }
}

impl CustomOp2 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer-norm-residual"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let y = self.host_rows(Unit::detect(), slice(s1, l1)?, Some(slice(s2, l2)?))?;
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn by_hand() {
        let tensor = |v: &[f32]| Tensor::new(v, &Device::Cpu).unwrap();
        let norm = LayerNorm::new(&tensor(&[1.0, 2.0]), &tensor(&[0.5, -1.0]), 0.0).unwrap();
        let x = tensor(&[1.0, 3.0, -4.0, 0.0]).reshape((2, 2)).unwrap();
        let y = norm.forward(&x).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(y, [-0.5, 1.0, -0.5, 1.0]);
        let y = norm.forward_residual(&x, &x).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(y, [-0.5, 1.0, -0.5, 1.0]);
        assert!(norm.forward(&tensor(&[1.0])).is_err());
    }
}
