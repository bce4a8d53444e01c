//! Linear layer: y = act(x·Wᵀ + b).
//!
//! In: x `[T, in]`, weight `[out, in]` as in safetensors, bias `[out]`. Out: y `[T, out]`.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, DType, Layout, Shape, Tensor};

use super::device::{self, Kernels, Place};
use super::lanes::Unit;
use super::panels::{COLUMNS, Panels};
use super::product::linear;
use super::{Activation, Precision, failed, misfit, slice};
use crate::Result;

/// A linear layer with its weights where and how they are multiplied fastest.
#[derive(Debug, Clone)]
pub struct Linear {
    inputs: usize,
    outputs: usize,
    precision: Precision,
    weights: Weights,
}

#[derive(Debug, Clone)]
enum Weights {
    /// For the CPU.
    Host(Arc<HostWeights>),
    /// `[in, out]` in the type that is multiplied, and `[out]` in `f32`, on a device.
    Device { transposed: Tensor, bias: Tensor, kernels: Arc<dyn Kernels> },
}

/// Weight and bias as the products read them, the bias padded with zeros to whole panels.
#[derive(Debug)]
struct HostWeights {
    panels: Panels,
    bias: Vec<f32>,
}

impl Linear {
    /// From weight `[out, in]` and bias `[out]`, any floating type.
    ///
    /// # Errors
    /// When the shapes do not fit each other.
    pub fn new(weight: &Tensor, bias: &Tensor, precision: Precision) -> Result<Self> {
        Self::on(&Place::Host, &[(weight, bias)], precision)
    }

    /// Several layers over the same input as one: their outputs side by side, in this order.
    ///
    /// # Errors
    /// When the shapes do not fit each other.
    pub fn fused(parts: &[(&Tensor, &Tensor)], precision: Precision) -> Result<Self> {
        Self::on(&Place::Host, parts, precision)
    }

    /// [`fused`](Self::fused), at a place; the parts' tensors are there.
    ///
    /// # Errors
    /// As [`fused`](Self::fused), or a precision that the place does not have.
    pub fn on(place: &Place, parts: &[(&Tensor, &Tensor)], precision: Precision) -> Result<Self> {
        place.check(precision)?;
        let mut weights = Vec::with_capacity(parts.len());
        let mut biases = Vec::with_capacity(parts.len());
        let mut inputs = None;
        for (weight, bias) in parts {
            let (out, input) = weight
                .dims2()
                .map_err(|_| misfit("linear layer", format_args!("a weight has the shape {:?}", weight.dims())))?;
            if bias.dims() != [out] || inputs.is_some_and(|n| n != input) || input == 0 || out == 0 {
                let shapes = format!("weight {:?} does not fit bias {:?}", weight.dims(), bias.dims());
                return Err(misfit("linear layer", shapes));
            }
            inputs = Some(input);
            weights.push((*weight).clone());
            biases.push((*bias).clone());
        }
        let Some(inputs) = inputs else { return Err(misfit("linear layer", "there is no weight")) };
        let fail = || failed("linear layer");
        let weight = if weights.len() == 1 { weights.remove(0) } else { Tensor::cat(&weights, 0).map_err(fail())? };
        let bias = if biases.len() == 1 { biases.remove(0) } else { Tensor::cat(&biases, 0).map_err(fail())? };
        let outputs = weight.dims()[0];
        let weights = match place {
            Place::Host => {
                let rows =
                    weight.to_dtype(DType::F32).and_then(|w| w.flatten_all()?.to_vec1::<f32>()).map_err(fail())?;
                let mut bias = bias.to_dtype(DType::F32).and_then(|b| b.to_vec1::<f32>()).map_err(fail())?;
                bias.resize(outputs.next_multiple_of(COLUMNS), 0.0);
                Weights::Host(Arc::new(HostWeights { panels: Panels::new(&rows, inputs, precision), bias }))
            }
            Place::Device(_, kernels) => {
                let dtype = device::dtype(precision);
                let transposed = weight.to_dtype(dtype).and_then(|w| w.t()?.contiguous()).map_err(fail())?;
                let bias = bias.to_dtype(DType::F32).and_then(|b| b.contiguous()).map_err(fail())?;
                Weights::Device { transposed, bias, kernels: Arc::clone(kernels) }
            }
        };
        Ok(Self { inputs, outputs, precision, weights })
    }

    /// Numbers a row takes.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Numbers a row gives.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Precision of the products.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// act(x·Wᵀ + b) for rows x `[T, in]`: `[T, out]`.
    ///
    /// # Errors
    /// When rows have another length, or the device fails.
    pub fn forward(&self, x: &Tensor, act: Activation) -> Result<Tensor> {
        if x.rank() != 2 || x.dims()[1] != self.inputs {
            return Err(misfit("linear layer", format_args!("takes [T, {}], not {:?}", self.inputs, x.dims())));
        }
        match &self.weights {
            Weights::Host(weights) => {
                let op = LinearOp { weights, inputs: self.inputs, act };
                x.contiguous().and_then(|x| x.apply_op1_no_bwd(&op)).map_err(failed("linear layer"))
            }
            Weights::Device { transposed, bias, kernels } => device::linear(&**kernels, x, (transposed, bias), act),
        }
    }
}

struct LinearOp<'a> {
    weights: &'a HostWeights,
    inputs: usize,
    act: Activation,
}

impl CustomOp1 for LinearOp<'_> {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let x = slice(storage, layout)?;
        let HostWeights { panels, bias } = self.weights;
        let y = linear(Unit::detect(), x, self.inputs, panels, bias, self.act);
        Ok((CpuStorage::F32(y), Shape::from((layout.dims()[0], panels.n()))))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn by_hand() {
        let tensor = |v: &[f32], shape: (usize, usize)| Tensor::from_slice(v, shape, &Device::Cpu).unwrap();
        let bias = |v: &[f32]| Tensor::new(v, &Device::Cpu).unwrap();
        let first = (tensor(&[1.0, 2.0, 3.0, 4.0], (2, 2)), bias(&[0.5, -0.5]));
        let second = (tensor(&[-1.0, 1.0], (1, 2)), bias(&[0.0]));
        let parts = [(&first.0, &first.1), (&second.0, &second.1)];
        let layer = Linear::fused(&parts, Precision::F32).unwrap();
        assert_eq!((layer.inputs(), layer.outputs()), (2, 3));
        let x = tensor(&[1.0, -1.0, 0.0, 2.0], (2, 2));
        let y = layer.forward(&x, Activation::None).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(y, [[-0.5, -1.5, -2.0], [4.5, 7.5, 2.0]]);
        // x·Φ(x) of -0.5, -1.5, -2.0: Φ = 0.308538, 0.066807, 0.022750.
        let y = layer.forward(&x, Activation::Gelu).unwrap().to_vec2::<f32>().unwrap();
        for (found, expected) in y[0].iter().zip([-0.154_269, -0.100_211, -0.045_500]) {
            assert!((found - expected).abs() < 2e-6, "{found} is not {expected}");
        }
        assert!(layer.forward(&tensor(&[1.0], (1, 1)), Activation::None).is_err());
        assert!(Linear::new(&first.0, &second.1, Precision::F32).is_err());
    }
}
