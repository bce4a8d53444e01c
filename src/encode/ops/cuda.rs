//! [`Kernels`] on a GPU: candle's tensors as arguments of our kernels, on candle's own stream.
//!
//! In: launches over contiguous tensors of the shared device. Out: their effect, in the order of the calls. A tensor freed meanwhile
//! gives its memory back in stream order, so after the kernel.

use std::sync::Arc;

use candle_core::cuda_backend::CudaStorageSlice;
use candle_core::cuda_backend::cudarc::driver::DevicePtr;
use candle_core::{DType, Storage, Tensor};

use super::{Kernels, misfit};
use crate::Result;
use crate::backend::cuda::CudaDevice;
use crate::backend::device::encoder::Launch;

/// The kernels of a GPU.
pub struct CudaKernels {
    device: Arc<CudaDevice>,
}

impl CudaKernels {
    /// On a device whose stream is candle's.
    pub fn new(device: Arc<CudaDevice>) -> Self {
        Self { device }
    }

    /// Where a tensor's first number lies.
    fn address(&self, tensor: &Tensor) -> Result<u64> {
        let (storage, layout) = tensor.storage_and_layout();
        let Storage::Cuda(storage) = &*storage else {
            return Err(misfit("kernels of the encoders", "a tensor is not on the GPU"));
        };
        if !layout.is_contiguous() {
            return Err(misfit(
                "kernels of the encoders",
                format_args!("a tensor {:?} is not contiguous", layout.shape()),
            ));
        }
        let stream = self.device.stream();
        let (start, dtype) = match &storage.slice {
            CudaStorageSlice::F32(numbers) => (numbers.device_ptr(stream).0, DType::F32),
            CudaStorageSlice::F16(numbers) => (numbers.device_ptr(stream).0, DType::F16),
            CudaStorageSlice::U32(numbers) => (numbers.device_ptr(stream).0, DType::U32),
            _ => return Err(misfit("kernels of the encoders", format_args!("no kernel takes {:?}", tensor.dtype()))),
        };
        Ok(start + (layout.start_offset() * dtype.size_in_bytes()) as u64)
    }
}

impl std::fmt::Debug for CudaKernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CudaKernels")
    }
}

impl Kernels for CudaKernels {
    fn start(&self, launch: &Launch<'_, Tensor>) -> Result<()> {
        self.device.start(launch, |tensor| self.address(tensor))
    }
}
