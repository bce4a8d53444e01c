//! The kernels on the processor: builds `kernels/*.cu` with the shim as a program under AddressSanitizer and UBSan, and is a
//! [`Device`] over it.
//!
//! In: buffers and launches. Out: what the kernels computed, or what a sanitizer or the shim said when it ended the program. Every launch
//! draws a block size and an order of fibers from a seed; `HOST_CUDA_SEED` sets it, and a failure names it. The program is built
//! once for each state of the sources, into `target/tmp/host_cuda`.

#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use livingrag::backend::device::kernel::{self, Kernel};
use livingrag::backend::device::{Arg, Device, Shape};
use livingrag::{Error, Result};

/// Bugs on purpose, in `planted.cu`.
pub const PLANTED: [&str; 7] = [
    "planted_reverse_u32",
    "planted_no_barrier_u32",
    "planted_past_the_end_u32",
    "planted_past_shared_u32",
    "planted_divergent_barrier_u32",
    "planted_lost_lanes_u32",
    "planted_dynamic_u32",
];

/// Compiler flags. Contraction is off as on the GPU (-fmad=false), so both make the same bits.
const FLAGS: [&str; 13] = [
    "-std=c++20",
    "-O2",
    "-g",
    "-Wall",
    "-Wno-unused-variable",
    "-Wno-unknown-pragmas",
    "-ffp-contract=off",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fsanitize-sections=shared_memory",
    "-fno-sanitize-recover=all",
    "-DLIVINGRAG_HOST",
    "-x",
];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The compiler. clang++ would do but for one thing: it gives shared memory no red zones.
fn compiler() -> Option<&'static str> {
    let answers = Command::new("g++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    answers.is_ok_and(|status| status.success()).then_some("g++")
}

/// Every source that goes into the program, with its text.
fn sources() -> Vec<(String, String)> {
    let mut out = Vec::new();
    for folder in ["kernels", "tests/host_cuda"] {
        for entry in fs::read_dir(repository().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| ["cu", "cuh", "cpp", "hpp"].iter().any(|x| e == *x)) {
                out.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    out.sort();
    out
}

/// The one source that names every kernel.
fn registry() -> String {
    let mut text = String::from("// Written by tests/host_cuda/mod.rs.\n");
    for module in kernel::modules() {
        text.push_str(&format!("#include \"{module}.cu\"\n"));
    }
    text.push_str("#include \"planted.cu\"\nnamespace shim {\nconst Entry entries[] = {\n");
    for symbol in kernel::ALL.iter().map(|k| k.symbol).chain(PLANTED) {
        text.push_str(&format!("    HOST_ENTRY({symbol}),\n"));
    }
    text.push_str("};\nconst unsigned n_entries = sizeof entries / sizeof entries[0];\n}  // namespace shim\n");
    text
}

/// The program, built if it is not there; `None` without a C++ compiler, which is said.
pub fn program() -> Option<PathBuf> {
    if !repository().join("kernels").is_dir() {
        eprintln!("skipped: the sources of the kernels are not on this machine");
        return None;
    }
    let Some(compiler) = compiler() else {
        eprintln!("skipped: g++ is not there, so the kernels cannot be run on the processor");
        return None;
    };
    let registry = registry();
    let mut hash = blake3::Hasher::new();
    hash.update(compiler.as_bytes()).update(registry.as_bytes()).update(FLAGS.join(" ").as_bytes());
    for (name, text) in sources() {
        hash.update(name.as_bytes()).update(text.as_bytes());
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host_cuda").join(&hash.finalize().to_hex()[..16]);
    let program = folder.join("worker");
    fs::create_dir_all(&folder).unwrap();
    // Tests are processes of their own: the first one builds, the others wait.
    let lock = fs::File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    if program.exists() {
        return Some(program);
    }
    fs::write(folder.join("registry.cpp"), registry).unwrap();
    let native: &[&str] = if cfg!(target_arch = "x86_64") { &["-mfma"] } else { &[] };
    let output = Command::new(compiler)
        .args(FLAGS)
        .arg("c++")
        .args(native.iter().filter(|_| has_fma()))
        .arg(format!("-I{}", repository().join("tests/host_cuda").display()))
        .arg(format!("-I{}", repository().join("kernels").display()))
        .arg(folder.join("registry.cpp"))
        .args(["fibers.cpp", "worker.cpp"].map(|f| repository().join("tests/host_cuda").join(f)))
        .arg("-o")
        .arg(folder.join("worker.new"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{compiler} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(folder.join("worker.new"), &program).unwrap();
    Some(program)
}

/// Without the instruction, `fmaf` is a library call with the same result.
fn has_fma() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("fma")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

struct Pipes {
    child: Child,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    /// What it wrote to standard error; the file has no name any more.
    errors: fs::File,
    /// The launch sent last, in words.
    last: String,
    buffers: u64,
    /// Bytes of all buffers, now and at their most.
    bytes: u64,
    most_bytes: u64,
    /// Bytes copied to the device.
    written: u64,
    /// Drawn on at every launch.
    random: u64,
}

impl Drop for Pipes {
    fn drop(&mut self) {
        // The program ends when its input does; nothing is waited for that could hang.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kernels on the processor as a device.
pub struct HostCuda {
    pipes: Arc<Mutex<Pipes>>,
    seed: u64,
    free: u64,
    keeps: bool,
}

/// One buffer of the program.
pub struct HostBuffer {
    id: u64,
    bytes: u64,
    pipes: Arc<Mutex<Pipes>>,
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        pipes.bytes -= self.bytes;
        let _ = pipes.tell(&[b"f", &self.id.to_le_bytes()]);
    }
}

impl Pipes {
    /// Sends a request that has no answer.
    fn tell(&mut self, parts: &[&[u8]]) -> Result<()> {
        let sent = parts.iter().try_for_each(|part| self.to.write_all(part));
        sent.map_err(|_| self.ended())
    }

    /// Sends a request and waits for its answer, and so for everything before it.
    fn ask(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.tell(parts)?;
        let mut answer = [0u8];
        if self.to.flush().and_then(|()| self.from.read_exact(&mut answer)).is_ok() && answer == [1] {
            return Ok(());
        }
        Err(self.ended())
    }

    /// Why the program ended.
    fn ended(&mut self) -> Error {
        let _ = self.child.wait();
        let mut said = String::new();
        let _ = self.errors.seek(SeekFrom::Start(0)).and_then(|_| self.errors.read_to_string(&mut said));
        Error::work(format!("the kernels on the processor ended after {}:\n{said}", self.last))
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random ^ (self.random >> 29)
    }
}

impl HostCuda {
    /// Starts the program; `None` without a C++ compiler.
    pub fn start() -> Option<Self> {
        let seed = std::env::var("HOST_CUDA_SEED").ok().map_or(1, |s| s.parse().unwrap());
        Self::with_seed(seed)
    }

    /// With a given seed of block sizes and orders.
    pub fn with_seed(seed: u64) -> Option<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let program = program()?;
        let name = format!("worker-{}-{}.err", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let name = program.with_file_name(name);
        let errors = fs::File::options().read(true).write(true).create_new(true).open(&name).unwrap();
        fs::remove_file(&name).unwrap();
        let mut child = Command::new(&program)
            .env("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=0:exitcode=87")
            .env("UBSAN_OPTIONS", "print_stacktrace=1:exitcode=88")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone().unwrap())
            .spawn()
            .unwrap();
        let (to, from) = (BufWriter::new(child.stdin.take().unwrap()), BufReader::new(child.stdout.take().unwrap()));
        let pipes = Arc::new(Mutex::new(Pipes {
            child,
            to,
            from,
            errors,
            last: String::new(),
            buffers: 0,
            bytes: 0,
            most_bytes: 0,
            written: 0,
            random: seed,
        }));
        Some(Self { pipes, seed, free: 1 << 30, keeps: false })
    }

    /// Says it has only this much memory, so that batches are split.
    pub fn with_free_bytes(mut self, bytes: u64) -> Self {
        self.free = bytes;
        self
    }

    /// Keeps buffers from batch to batch, as a GPU does.
    pub fn keeping_buffers(mut self) -> Self {
        self.keeps = true;
        self
    }

    /// The most bytes that were allocated at once since this was last asked.
    pub fn take_most_bytes(&self) -> u64 {
        let mut pipes = self.pipes();
        let most = pipes.most_bytes;
        pipes.most_bytes = pipes.bytes;
        most
    }

    /// Bytes that were copied to the device so far.
    pub fn written_bytes(&self) -> u64 {
        self.pipes().written
    }

    fn pipes(&self) -> std::sync::MutexGuard<'_, Pipes> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a kernel with dynamic shared memory.
    pub fn launch_dynamic(&self, symbol: &str, shape: Shape, bytes: u32, args: &[Arg<'_, HostBuffer>]) -> Result<()> {
        let mut pipes = self.pipes();
        let order = pipes.draw();
        let mut request = vec![b'l'];
        request.extend((symbol.len() as u32).to_le_bytes());
        request.extend(symbol.as_bytes());
        for number in [shape.grid.0, shape.grid.1, shape.block, bytes] {
            request.extend(number.to_le_bytes());
        }
        request.extend(order.to_le_bytes());
        request.extend((args.len() as u32).to_le_bytes());
        for arg in args {
            let (kind, bits) = match arg {
                Arg::In(buffer) => (b'p', buffer.id),
                Arg::Out(buffer) => (b'm', buffer.id),
                Arg::U32(v) => (b'u', u64::from(*v)),
                Arg::F32(v) => (b'f', u64::from(v.to_bits())),
                Arg::F64(v) => (b'd', v.to_bits()),
            };
            request.push(kind);
            request.extend(bits.to_le_bytes());
        }
        let (seed, Shape { grid, block }) = (self.seed, shape);
        pipes.last = format!("{symbol}, grid {grid:?}, block {block}, HOST_CUDA_SEED={seed}");
        pipes.tell(&[&request])
    }

    /// Waits until everything is done.
    pub fn synchronize(&self) -> Result<()> {
        self.pipes().ask(&[b"s"])
    }
}

impl Device for HostCuda {
    type Buffer = HostBuffer;

    fn kind(&self) -> &'static str {
        "host_cuda"
    }

    fn name(&self) -> String {
        "CUDA kernels on the processor".into()
    }

    fn free_bytes(&self) -> Result<u64> {
        Ok(self.free)
    }

    fn alloc(&self, bytes: usize) -> Result<HostBuffer> {
        let mut pipes = self.pipes();
        pipes.buffers += 1;
        let id = pipes.buffers;
        pipes.tell(&[b"a", &id.to_le_bytes(), &(bytes as u64).to_le_bytes()])?;
        pipes.bytes += bytes as u64;
        pipes.most_bytes = pipes.most_bytes.max(pipes.bytes);
        Ok(HostBuffer { id, bytes: bytes as u64, pipes: Arc::clone(&self.pipes) })
    }

    fn write(&self, to: &HostBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let (offset, length) = ((offset as u64).to_le_bytes(), (bytes.len() as u64).to_le_bytes());
        let mut pipes = self.pipes();
        pipes.written += bytes.len() as u64;
        pipes.tell(&[b"w", &to.id.to_le_bytes(), &offset, &length, bytes])
    }

    fn copy(&self, from: &HostBuffer, to: &HostBuffer, bytes: usize) -> Result<()> {
        self.pipes().tell(&[b"c", &from.id.to_le_bytes(), &to.id.to_le_bytes(), &(bytes as u64).to_le_bytes()])
    }

    fn read(&self, from: &HostBuffer, out: &mut [u8]) -> Result<()> {
        let mut pipes = self.pipes();
        pipes.ask(&[b"r", &from.id.to_le_bytes(), &(out.len() as u64).to_le_bytes()])?;
        pipes.from.read_exact(out).map_err(|e| Error::work("no answer").with_source(e))
    }

    fn zero(&self, buffer: &HostBuffer, bytes: usize) -> Result<()> {
        self.pipes().tell(&[b"z", &buffer.id.to_le_bytes(), &(bytes as u64).to_le_bytes()])
    }

    fn launch(&self, kernel: Kernel, shape: Shape, args: &[Arg<'_, HostBuffer>]) -> Result<()> {
        self.launch_dynamic(kernel.symbol, shape, 0, args)
    }

    /// Any size gives the same result, so every launch draws one.
    fn block(&self, _preferred: u32) -> u32 {
        [32, 64, 96][(self.pipes().draw() % 3) as usize]
    }

    /// Else each array is an allocation of exactly its size, so that one step past its end is seen.
    fn keeps_buffers(&self) -> bool {
        self.keeps
    }
}
