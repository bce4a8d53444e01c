//! A backend that fails in mid-work: the run ends with one sentence, and a resume with a backend that works makes the same files.
//!
//! The CPU backend made to fail at its n-th operation, for every n of a run; and a device made to fail at some of its launches, whose
//! error names the operation and the cure.

#![allow(clippy::unwrap_used)]

mod host_cuda;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use host_cuda::{HostBuffer, HostCuda};
use livingrag::backend::cpu::Cpu;
use livingrag::backend::device::{Arg, Device, DeviceBackend, Kernel, Shape};
use livingrag::backend::{
    ActivationStore, Backend, Corpus, Description, Form, Matrix, PassageWeightQuery, PropagationQuery, Reset,
    RetrievalData, ScanQuery, ScanResult,
};
use livingrag::config::{Method, RunConfig};
use livingrag::dataset::Dataset;
use livingrag::index::{IndexOptions, build};
use livingrag::math::propagation::{Propagated, PropagationParams};
use livingrag::replay::{Opened, Parts, Run, Session, replay};
use livingrag::{Error, Result};
use support::world::{config, many, scratch, write};

/// Counts operations and fails one of them.
#[derive(Clone)]
struct Fuse(Arc<AtomicUsize>, usize);

impl Fuse {
    fn at(n: usize) -> Self {
        Self(Arc::default(), n)
    }

    fn step(&self) -> Result<()> {
        match self.0.fetch_add(1, Ordering::SeqCst) + 1 == self.1 {
            true => Err(Error::work("the device was taken away")),
            false => Ok(()),
        }
    }
}

struct Failing<T: ?Sized>(Fuse, Box<T>);

impl Backend for Failing<dyn Backend> {
    fn description(&self) -> Description {
        self.1.description()
    }
    fn load(&self, data: Arc<RetrievalData>) -> Result<Box<dyn Corpus>> {
        self.0.step()?;
        Ok(Box::new(Failing(self.0.clone(), self.1.load(data)?)))
    }
    fn similarities(&self, rows: &Matrix, queries: &Matrix) -> Result<Vec<f32>> {
        self.0.step()?;
        self.1.similarities(rows, queries)
    }
    fn store_scan(&self, store: &dyn ActivationStore, batch: &[ScanQuery<'_>]) -> Result<Vec<ScanResult>> {
        self.0.step()?;
        self.1.store_scan(store, batch)
    }
    fn top_k(&self, batch: &[&[f32]], k: usize) -> Result<Vec<Vec<(u32, f64)>>> {
        self.0.step()?;
        self.1.top_k(batch, k)
    }
}

impl Corpus for Failing<dyn Corpus> {
    fn link(&self, queries: &Matrix) -> Result<Vec<Option<(u32, f32)>>> {
        self.0.step()?;
        self.1.link(queries)
    }
    fn passage_similarities(&self, queries: &[&[f32]]) -> Result<Vec<Vec<f32>>> {
        self.0.step()?;
        self.1.passage_similarities(queries)
    }
    fn propagate(
        &self,
        form: Form,
        params: PropagationParams,
        batch: &[PropagationQuery<'_>],
    ) -> Result<Vec<Propagated>> {
        self.0.step()?;
        self.1.propagate(form, params, batch)
    }
    fn passage_weights(&self, ratio: f64, weight: f64, batch: &[PassageWeightQuery<'_>]) -> Result<Vec<Vec<f32>>> {
        self.0.step()?;
        self.1.passage_weights(ratio, weight, batch)
    }
    fn pagerank(&self, damping: f64, batch: &[Reset<'_>]) -> Result<Vec<Option<Vec<f32>>>> {
        self.0.step()?;
        self.1.pagerank(damping, batch)
    }
}

/// The kernels on the processor, of which one launch fails.
struct FailingDevice(Fuse, HostCuda);

impl Device for FailingDevice {
    type Buffer = HostBuffer;
    fn kind(&self) -> &'static str {
        self.1.kind()
    }
    fn name(&self) -> String {
        self.1.name()
    }
    fn free_bytes(&self) -> Result<u64> {
        self.1.free_bytes()
    }
    fn alloc(&self, bytes: usize) -> Result<HostBuffer> {
        self.1.alloc(bytes)
    }
    fn write(&self, to: &HostBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        self.1.write(to, offset, bytes)
    }
    fn copy(&self, from: &HostBuffer, to: &HostBuffer, bytes: usize) -> Result<()> {
        self.1.copy(from, to, bytes)
    }
    fn read(&self, from: &HostBuffer, out: &mut [u8]) -> Result<()> {
        self.1.read(from, out)
    }
    fn zero(&self, buffer: &HostBuffer, bytes: usize) -> Result<()> {
        self.1.zero(buffer, bytes)
    }
    fn launch(&self, kernel: Kernel, shape: Shape, args: &[Arg<'_, HostBuffer>]) -> Result<()> {
        self.0.step()?;
        self.1.launch(kernel, shape, args)
    }
    fn block(&self, preferred: u32) -> u32 {
        self.1.block(preferred)
    }
    fn keeps_buffers(&self) -> bool {
        self.1.keeps_buffers()
    }
}

/// Opens or goes on with the run and replays it; what was committed before stays on the disk when the backend fails.
fn attempt(dataset: &Path, config: &RunConfig, out: &Path, backend: Arc<dyn Backend>) -> Result<std::path::PathBuf> {
    let opened = Dataset::open(dataset)?;
    let index = Arc::new(build::build(&opened, &IndexOptions::from(&config.index))?);
    let session = Session::new(opened, index, backend)?;
    let run = match Run::open(&session, config, Parts::new(config)?, out, true)? {
        Opened::Ready(run) => *run,
        Opened::Finished(folder) => return Ok(folder),
    };
    let mut runs = vec![run];
    replay(&session, &mut runs, |_| ())?;
    runs.remove(0).finish(&session)
}

fn bytes(folder: &Path) -> Vec<Vec<u8>> {
    ["traces.parquet", "experiences.parquet"].map(|file| std::fs::read(folder.join(file)).unwrap()).into()
}

fn healthy() -> Arc<dyn Backend> {
    Arc::new(Cpu::new(1).unwrap())
}

/// A world, its dataset folder, and what an unbroken run of it leaves.
fn world(queries: u32) -> (tempfile::TempDir, RunConfig) {
    let folder = scratch();
    write(folder.path(), &many(queries), true);
    (folder, config(Method::Living, 8))
}

#[test]
fn a_run_ends_at_the_failing_operation_and_resumes_to_the_same_rows() {
    let (dataset, config) = world(40);
    let out = scratch();
    let expected = bytes(&attempt(dataset.path(), &config, &out.path().join("unbroken"), healthy()).unwrap());
    let mut failures = 0;
    let mut committed = 0;
    for n in 1.. {
        let folder = out.path().join(n.to_string());
        let cpu: Box<dyn Backend> = Box::new(Cpu::new(1).unwrap());
        let error = match attempt(dataset.path(), &config, &folder, Arc::new(Failing(Fuse::at(n), cpu))) {
            Ok(finished) => {
                assert_eq!(bytes(&finished), expected);
                break;
            }
            Err(error) => error,
        };
        failures += 1;
        assert_eq!((error.exit_code(), error.to_string().as_str()), (1, "the device was taken away"));
        let journals = std::fs::read_dir(&folder).into_iter().flatten().map(|run| run.unwrap().path());
        committed += journals.filter(|run| run.join("journal.jsonl").is_file()).count();
        let resumed = attempt(dataset.path(), &config, &folder, healthy()).unwrap();
        assert_eq!(bytes(&resumed), expected, "after a failure at operation {n}");
    }
    assert!(failures > 20 && committed > 10, "{failures} failures, {committed} of them in mid-run");
}

#[test]
fn a_failing_device_names_the_operation_and_the_cure() {
    let (dataset, config) = world(20);
    let out = scratch();
    let counted = Fuse::at(0);
    let device = |fuse: &Fuse| {
        let device = FailingDevice(fuse.clone(), HostCuda::start()?);
        Some(Arc::new(DeviceBackend::new(device, 1)) as Arc<dyn Backend>)
    };
    let Some(whole) = device(&counted) else { return };
    let expected = bytes(&attempt(dataset.path(), &config, &out.path().join("unbroken"), whole).unwrap());
    let launches = counted.0.load(Ordering::SeqCst);
    let mut operations = Vec::new();
    for n in [1, 2, launches / 3, launches / 2, launches] {
        let folder = out.path().join(n.to_string());
        let error = attempt(dataset.path(), &config, &folder, device(&Fuse::at(n)).unwrap()).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        let text = error.to_string();
        let operation = text.strip_prefix("the host_cuda backend failed in ").unwrap_or_else(|| panic!("{text}"));
        assert!(
            !operation.contains(['\n', '.']) && error.sentence().ends_with("(the device was taken away)"),
            "{text}"
        );
        let hint = error.hint().unwrap();
        assert!(hint.contains("--resume") && hint.contains("backend.kind = \"cpu\""), "{hint}");
        operations.push(operation.to_owned());
        let resumed = attempt(dataset.path(), &config, &folder, device(&Fuse::at(0)).unwrap()).unwrap();
        assert_eq!(bytes(&resumed), expected, "after a failure in {operation}");
    }
    operations.dedup();
    assert!(operations.len() >= 2 && operations[0] == "linking", "{operations:?}");
}
