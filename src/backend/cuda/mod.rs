//! The CUDA backend: [`DeviceBackend`] over an NVIDIA GPU.
//!
//! In: a driver, found at run time. Out: a backend, or one sentence that says what is missing. The kernels are embedded as PTX, which the
//! driver compiles for the card when they are first loaded and keeps in its cache. There is one device and one stream a process.

mod device;

use std::sync::{Arc, Mutex, PoisonError};

pub use device::{CudaDevice, KernelTime, Pointer};

use crate::Result;
use crate::backend::Backend;
use crate::backend::device::DeviceBackend;

/// Whether CUDA was built in.
pub const BUILT: bool = true;

/// What is open.
#[derive(Clone)]
struct Opened {
    device: Arc<CudaDevice>,
}

static OPENED: Mutex<Option<Opened>> = Mutex::new(None);

fn opened() -> Result<Opened> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*opened {
        return Ok(known.clone());
    }
    let new = Opened { device: Arc::new(CudaDevice::new(0)?) };
    Ok(opened.insert(new).clone())
}

/// The first device, opened once a process.
///
/// # Errors
/// Without a driver, without a device, or when the driver does not take the kernels.
pub fn shared() -> Result<Arc<CudaDevice>> {
    Ok(opened()?.device)
}

/// A backend on the first device.
///
/// # Errors
/// As [`shared`].
pub fn open(threads: usize) -> Result<Box<dyn Backend>> {
    Ok(Box::new(DeviceBackend::shared(shared()?, threads)))
}
