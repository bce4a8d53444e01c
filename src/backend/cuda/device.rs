//! [`CudaDevice`]: memory, copies and launches through cudarc, all on one stream.
//!
//! One stream orders everything, so cudarc's events between streams are turned off. The stream can come from elsewhere
//! ([`CudaDevice::on_stream`]), so that encoders and kernels share one context.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig, PushKernelArg,
    result, sys,
};
use cudarc::nvrtc::Ptx;

use crate::backend::device::encoder::{BLOCK, Launch};
use crate::backend::device::kernel::{self, Kernel};
use crate::backend::device::{Arg, Device, Shape};
use crate::{Error, Result};

/// PTX of each file of `kernels/`.
const MODULES: &[(&str, &str)] = &[
    ("dense", include_str!(concat!(env!("OUT_DIR"), "/dense.ptx"))),
    ("encoder_attention", include_str!(concat!(env!("OUT_DIR"), "/encoder_attention.ptx"))),
    ("encoder_elementwise", include_str!(concat!(env!("OUT_DIR"), "/encoder_elementwise.ptx"))),
    ("pagerank", include_str!(concat!(env!("OUT_DIR"), "/pagerank.ptx"))),
    ("passage_weight", include_str!(concat!(env!("OUT_DIR"), "/passage_weight.ptx"))),
    ("propagate", include_str!(concat!(env!("OUT_DIR"), "/propagate.ptx"))),
    ("scan", include_str!(concat!(env!("OUT_DIR"), "/scan.ptx"))),
    ("topk", include_str!(concat!(env!("OUT_DIR"), "/topk.ptx"))),
];

/// Device time of one kernel since it was last asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// The symbol.
    pub symbol: &'static str,
    /// Launches.
    pub launches: usize,
    /// Their time between device events, in milliseconds.
    pub milliseconds: f64,
}

/// One GPU.
pub struct CudaDevice {
    stream: Arc<CudaStream>,
    functions: BTreeMap<&'static str, CudaFunction>,
    name: String,
    /// Start and end of each launch while times are wanted.
    times: Mutex<Option<Vec<(Kernel, CudaEvent, CudaEvent)>>>,
}

/// Memory of a GPU.
pub struct CudaBuffer {
    slice: CudaSlice<u8>,
    address: sys::CUdeviceptr,
}

impl CudaDevice {
    /// A GPU by number.
    ///
    /// # Errors
    /// Without a driver, without such a device, or when the driver does not take the kernels.
    pub fn new(ordinal: usize) -> Result<Self> {
        // With candle the driver is linked, and the program would not have started without it.
        #[cfg(not(feature = "cuda-encoders"))]
        // SAFETY: looks for the driver's library and loads it; nothing of it is called.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::request(
                "CUDA cannot be used: this machine has no NVIDIA driver (libcuda.so was not found)",
            )
            .with_hint("use backend.kind = \"auto\" or \"cpu\""));
        }
        let context = CudaContext::new(ordinal).map_err(|e| no_device(ordinal, e))?;
        // SAFETY: everything of this context runs on the one stream made below.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(|e| failed("cannot make a stream", e))?;
        Self::on_stream(stream)
    }

    /// On a stream that others use too, for example that of the encoders. Its context must not track events.
    ///
    /// # Errors
    /// When the driver does not take the kernels.
    pub fn on_stream(stream: Arc<CudaStream>) -> Result<Self> {
        let context = Arc::clone(stream.context());
        let mut functions = BTreeMap::new();
        for (module, ptx) in MODULES {
            let loaded = context.load_module(Ptx::from_src(*ptx)).map_err(|e| {
                Error::request(format!("CUDA cannot be used: the driver does not take the kernels of {module}.cu"))
                    .with_hint("the driver must be at least as new as the CUDA compiler livingrag was built with")
                    .with_source(e)
            })?;
            for kernel in kernel::ALL.iter().filter(|k| k.module == *module) {
                let function = loaded.load_function(kernel.symbol).map_err(|e| failed("a kernel is missing", e))?;
                functions.insert(kernel.symbol, function);
            }
        }
        let name = context.name().map_err(|e| failed("the device does not say its name", e))?;
        let (major, minor) =
            context.compute_capability().map_err(|e| failed("the device does not say its capability", e))?;
        Ok(Self { stream, functions, name: format!("{name} (sm_{major}{minor})"), times: Mutex::new(None) })
    }

    /// The stream everything runs on.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// From now on measures every launch.
    pub fn measure(&self) {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    }

    /// Device time of each kernel since the last call or [`measure`](Self::measure), by symbol.
    ///
    /// # Errors
    /// When the device does not answer.
    pub fn times(&self) -> Result<Vec<KernelTime>> {
        self.stream.synchronize().map_err(|e| failed("the device failed", e))?;
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = match times.as_mut() {
            Some(launches) => std::mem::take(launches),
            None => Vec::new(),
        };
        let mut by_symbol: BTreeMap<&'static str, (usize, f64)> = BTreeMap::new();
        for (kernel, start, end) in &measured {
            let took = start.elapsed_ms(end).map_err(|e| failed("a launch has no time", e))?;
            let sum = by_symbol.entry(kernel.symbol).or_default();
            *sum = (sum.0 + 1, sum.1 + f64::from(took));
        }
        let of = |(symbol, (launches, milliseconds))| KernelTime { symbol, launches, milliseconds };
        Ok(by_symbol.into_iter().map(of).collect())
    }

    /// Starts a kernel on [`stream`](Self::stream) over memory that somebody else owns; `address` says where a buffer lies.
    ///
    /// # Errors
    /// When a buffer has no address, or the kernel cannot be started.
    pub fn start<B>(&self, launch: &Launch<'_, B>, address: impl Fn(&B) -> Result<sys::CUdeviceptr>) -> Result<()> {
        match launch.shape(BLOCK)? {
            Some(shape) => self.run(launch.kernel, shape, &launch.args, address),
            None => Ok(()),
        }
    }

    /// Starts a kernel.
    fn run<B>(
        &self,
        kernel: Kernel,
        shape: Shape,
        args: &[Arg<'_, B>],
        address: impl Fn(&B) -> Result<sys::CUdeviceptr>,
    ) -> Result<()> {
        let of = |arg: &Arg<'_, B>| match arg {
            Arg::In(buffer) | Arg::Out(buffer) => address(buffer),
            Arg::U32(_) | Arg::F32(_) | Arg::F64(_) => Ok(0),
        };
        let addresses = args.iter().map(of).collect::<Result<Vec<_>>>()?;
        let function = self
            .functions
            .get(kernel.symbol)
            .ok_or_else(|| Error::work(format!("CUDA: there is no kernel {}", kernel.symbol)))?;
        let measured = self.times.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let start = if measured { Some(self.event()?) } else { None };
        let mut launch = self.stream.launch_builder(function);
        for (arg, address) in args.iter().zip(&addresses) {
            match arg {
                Arg::In(_) | Arg::Out(_) => launch.arg(address),
                Arg::U32(v) => launch.arg(v),
                Arg::F32(v) => launch.arg(v),
                Arg::F64(v) => launch.arg(v),
            };
        }
        let config = LaunchConfig {
            grid_dim: (shape.grid.0, shape.grid.1, 1),
            block_dim: (shape.block, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: number, order and kind of the arguments are those the same call has under the sanitizers of tests/host_cuda, and
        // buffers live until the stream has passed what was launched (they are freed in stream order).
        unsafe { launch.launch(config) }.map_err(|e| failed(&format!("cannot launch {}", kernel.symbol), e))?;
        if let Some(start) = start {
            let end = self.event()?;
            if let Some(launches) = self.times.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                launches.push((kernel, start, end));
            }
        }
        Ok(())
    }

    fn event(&self) -> Result<CudaEvent> {
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
        self.stream.record_event(Some(flags)).map_err(|e| failed("cannot record an event", e))
    }
}

pub(super) fn no_device(ordinal: usize, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::request(format!("CUDA cannot be used: the driver gives no device {ordinal}"))
        .with_hint("use backend.kind = \"auto\" or \"cpu\"; `nvidia-smi` lists the devices")
        .with_source(error)
}

fn failed(what: &str, error: DriverError) -> Error {
    Error::work(format!("CUDA: {what}")).with_source(error)
}

impl Device for CudaDevice {
    type Buffer = CudaBuffer;

    fn kind(&self) -> &'static str {
        "cuda"
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn free_bytes(&self) -> Result<u64> {
        let (free, _) = self.stream.context().mem_get_info().map_err(|e| failed("cannot ask for free memory", e))?;
        Ok(free as u64)
    }

    fn alloc(&self, bytes: usize) -> Result<CudaBuffer> {
        // SAFETY: the content is undefined, which the contract of `Device::alloc` says.
        let slice = unsafe { self.stream.alloc::<u8>(bytes.max(1)) }
            .map_err(|e| failed(&format!("cannot allocate {bytes} bytes"), e))?;
        let (address, _) = slice.device_ptr(&self.stream);
        Ok(CudaBuffer { address, slice })
    }

    fn write(&self, to: &CudaBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        check_length(to, offset.saturating_add(bytes.len()))?;
        self.stream.context().bind_to_thread().map_err(|e| failed("no context", e))?;
        // SAFETY: the length was checked; a copy from pageable memory has left it when the call returns.
        unsafe { result::memcpy_htod_async(to.address + offset as u64, bytes, self.stream.cu_stream()) }
            .map_err(|e| failed("cannot copy to the device", e))
    }

    fn copy(&self, from: &CudaBuffer, to: &CudaBuffer, bytes: usize) -> Result<()> {
        check_length(from, bytes)?;
        check_length(to, bytes)?;
        self.stream.context().bind_to_thread().map_err(|e| failed("no context", e))?;
        // SAFETY: the lengths were checked; both buffers outlive what the stream was asked for, since they are freed in stream order.
        unsafe { result::memcpy_dtod_async(to.address, from.address, bytes, self.stream.cu_stream()) }
            .map_err(|e| failed("cannot copy within the device", e))
    }

    fn read(&self, from: &CudaBuffer, out: &mut [u8]) -> Result<()> {
        check_length(from, out.len())?;
        self.stream.context().bind_to_thread().map_err(|e| failed("no context", e))?;
        // SAFETY: the length was checked, and the copy is waited for while `out` is borrowed.
        unsafe { result::memcpy_dtoh_async(out, from.address, self.stream.cu_stream()) }
            .map_err(|e| failed("cannot copy from the device", e))?;
        self.stream.synchronize().map_err(|e| failed("the device failed", e))
    }

    fn zero(&self, buffer: &CudaBuffer, bytes: usize) -> Result<()> {
        check_length(buffer, bytes)?;
        self.stream.context().bind_to_thread().map_err(|e| failed("no context", e))?;
        // SAFETY: the length was checked.
        unsafe { result::memset_d8_async(buffer.address, 0, bytes, self.stream.cu_stream()) }
            .map_err(|e| failed("cannot clear memory", e))
    }

    fn launch(&self, kernel: Kernel, shape: Shape, args: &[Arg<'_, CudaBuffer>]) -> Result<()> {
        self.run(kernel, shape, args, |buffer| Ok(buffer.address))
    }
}

/// Refuses a copy that is longer than its buffer.
fn check_length(buffer: &CudaBuffer, bytes: usize) -> Result<()> {
    if bytes <= buffer.slice.len() {
        return Ok(());
    }
    Err(Error::work(format!("CUDA: {bytes} bytes do not fit a buffer of {}", buffer.slice.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_kernels_is_embedded() {
        assert_eq!(MODULES.iter().map(|(name, _)| *name).collect::<Vec<_>>(), kernel::modules());
        for kernel in kernel::ALL {
            let (_, ptx) = MODULES.iter().find(|(name, _)| *name == kernel.module).expect("embedded");
            assert!(ptx.contains(&format!(".entry {}(", kernel.symbol)), "{}", kernel.symbol);
        }
    }
}
