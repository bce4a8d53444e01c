//! The CUDA backend: [`DeviceBackend`] over an NVIDIA GPU.
//!
//! In: a driver found at run time (nothing is linked). Out: a backend, or one sentence that says what is missing. The kernels are embedded as
//! PTX, which the driver compiles for the card when they are first loaded and keeps in its cache.

mod device;

pub use device::{CudaDevice, KernelTime};

use crate::Result;
use crate::backend::Backend;
use crate::backend::device::DeviceBackend;

/// Whether CUDA was built in.
pub const BUILT: bool = true;

/// The first device.
///
/// # Errors
/// Without a driver, without a device, or when the driver does not take the kernels.
pub fn open(threads: usize) -> Result<Box<dyn Backend>> {
    Ok(Box::new(DeviceBackend::new(CudaDevice::new(0)?, threads)))
}
