//! The device that encoders run on.
//!
//! In: which device is wanted. Out: candle's device, and what it is in words.

use candle_core::Device;

use crate::config::BackendKind;
use crate::{Error, Result};

/// Where encoders run.
#[derive(Debug, Clone)]
pub struct EncodeDevice {
    device: Device,
}

impl EncodeDevice {
    /// The processor.
    pub fn cpu() -> Self {
        Self { device: Device::Cpu }
    }

    /// The device wanted; `auto` is the processor in a build without CUDA for encoders.
    ///
    /// # Errors
    /// CUDA was asked for and is not there.
    pub fn open(kind: BackendKind) -> Result<Self> {
        match kind {
            BackendKind::Auto | BackendKind::Cpu => Ok(Self::cpu()),
            BackendKind::Cuda => {
                Err(Error::request("encoders run on the CPU only in this build, and CUDA was asked for")
                    .with_hint("ask for cpu or auto"))
            }
        }
    }

    /// candle's device.
    pub(super) fn candle(&self) -> &Device {
        &self.device
    }

    /// Whether looking at numbers costs nothing.
    pub fn is_host(&self) -> bool {
        self.device.is_cpu()
    }

    /// The most tokens of a batch. It bounds memory and decides no result.
    pub(super) fn batch_tokens(&self) -> usize {
        if self.is_host() { 2048 } else { 32_768 }
    }

    /// What it is, in words.
    pub fn description(&self) -> String {
        if self.is_host() { "cpu".to_owned() } else { format!("{:?}", self.device.location()) }
    }
}
