//! The CUDA backend: [`DeviceBackend`] over an NVIDIA GPU.
//!
//! In: a driver, found at run time. Out: a backend, or one sentence that says what is missing. The kernels are embedded as PTX, which the
//! driver compiles for the card when they are first loaded and keeps in its cache. There is one device and one stream a process.

mod device;

use std::sync::{Arc, Mutex, PoisonError};

pub use device::{CudaDevice, KernelTime};

use crate::Result;
use crate::backend::Backend;
use crate::backend::device::DeviceBackend;

/// Whether CUDA was built in.
pub const BUILT: bool = true;

/// What is open.
#[derive(Clone)]
struct Opened {
    device: Arc<CudaDevice>,
    #[cfg(feature = "cuda-encoders")]
    candle: candle_core::Device,
}

static OPENED: Mutex<Option<Opened>> = Mutex::new(None);

fn opened() -> Result<Opened> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*opened {
        return Ok(known.clone());
    }
    Ok(opened.insert(Opened::first()?).clone())
}

impl Opened {
    #[cfg(not(feature = "cuda-encoders"))]
    fn first() -> Result<Self> {
        Ok(Self { device: Arc::new(CudaDevice::new(0)?) })
    }

    /// candle makes context and stream, because it takes neither from others.
    #[cfg(feature = "cuda-encoders")]
    fn first() -> Result<Self> {
        let candle = candle_core::cuda_backend::CudaDevice::new_with_stream(0).map_err(|e| device::no_device(0, e))?;
        // SAFETY: everything of this context runs on candle's one stream.
        unsafe { candle.disable_event_tracking() };
        let device = Arc::new(CudaDevice::on_stream(candle.cuda_stream())?);
        Ok(Self { device, candle: candle_core::Device::Cuda(candle) })
    }
}

/// candle's device, on the context and stream of [`shared`].
///
/// # Errors
/// As [`shared`].
#[cfg(feature = "cuda-encoders")]
pub fn candle() -> Result<candle_core::Device> {
    Ok(opened()?.candle)
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
