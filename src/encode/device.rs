//! The device that encoders run on.
//!
//! In: which device is wanted. Out: where operations run, and what that is in words.

use std::sync::Arc;

use candle_core::Device;

use super::ops::{Kernels, Place, Precision};
use crate::Result;
use crate::config::BackendKind;

/// Where encoders run.
#[derive(Debug, Clone)]
pub struct EncodeDevice {
    place: Place,
    name: String,
}

impl EncodeDevice {
    /// The processor.
    pub fn cpu() -> Self {
        Self { place: Place::Host, name: "cpu".to_owned() }
    }

    /// A device of candle's, and what starts kernels over its tensors. Tests start them on the processor.
    pub fn with_kernels(device: Device, kernels: Arc<dyn Kernels>, name: &str) -> Self {
        Self { place: Place::Device(device, kernels), name: name.to_owned() }
    }

    /// The device wanted; `auto` is the GPU where this build and this machine have one, else the processor.
    ///
    /// # Errors
    /// CUDA was asked for and is not there.
    pub fn open(kind: BackendKind) -> Result<Self> {
        match kind {
            BackendKind::Cpu => Ok(Self::cpu()),
            BackendKind::Cuda => gpu(),
            BackendKind::Auto => Ok(gpu().unwrap_or_else(|why| {
                let mut cpu = Self::cpu();
                // A build that has no encoders for GPUs needs no reason.
                if cfg!(feature = "cuda-encoders") {
                    cpu.name = format!("cpu ({})", why.sentence());
                }
                cpu
            })),
        }
    }

    /// Where operations run.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Whether looking at numbers costs nothing.
    pub fn is_host(&self) -> bool {
        matches!(self.place, Place::Host)
    }

    /// Refuses a precision that this device does not have.
    ///
    /// # Errors
    /// `f16` on a processor, `bf16` on a GPU.
    pub fn check(&self, precision: Precision) -> Result<()> {
        self.place.check(precision)
    }

    /// The precision of `auto`, for scores that are rounded anyway: a GPU's half precision, a processor's single.
    pub fn usual_precision(&self) -> Precision {
        if self.is_host() { Precision::F32 } else { Precision::F16 }
    }

    /// The most tokens of a batch. It bounds memory and decides no result.
    pub(super) fn batch_tokens(&self) -> usize {
        if self.is_host() { 2048 } else { 32_768 }
    }

    /// What it is, in words.
    pub fn description(&self) -> String {
        self.name.clone()
    }
}

#[cfg(feature = "cuda-encoders")]
fn gpu() -> Result<EncodeDevice> {
    use crate::backend::cuda;
    use crate::backend::device::Device as _;

    let (device, kernels) = (cuda::candle()?, cuda::shared()?);
    let name = format!("cuda: {}", kernels.name());
    Ok(EncodeDevice::with_kernels(device, Arc::new(super::ops::CudaKernels::new(kernels)), &name))
}

#[cfg(not(feature = "cuda-encoders"))]
fn gpu() -> Result<EncodeDevice> {
    Err(crate::Error::request("encoders run on the CPU only in this build, and CUDA was asked for")
        .with_hint("ask for cpu or auto, or build with `--features cuda-encoders`"))
}
