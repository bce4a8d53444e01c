//! `livingrag doctor`: what was built and what this machine has.
//!
//! In: the build and the machine. Out: one line a fact on standard output; what cannot be found out is said to be unknown.

use std::fs;
use std::num::NonZero;
use std::thread::available_parallelism;

use clap::Args;

use super::{Global, models, output};
use crate::Result;
use crate::backend::cuda;
use crate::gates::models::DEFAULT_NLI_MODEL;
use crate::index::encoder::DEFAULT_ENCODER;

/// Says what was built, and what this machine has
///
/// Models are looked for in folders and in the hub's cache; the network is not asked.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  livingrag doctor\n  livingrag doctor --model models/my-nli-model")]
pub struct DoctorArgs {
    /// One more model to look for: a folder or a hub id; may be repeated
    #[arg(long = "model", value_name = "NAME")]
    pub models: Vec<String>,
}

/// Prints the facts.
pub fn doctor(args: &DoctorArgs, global: &Global) -> Result<()> {
    let cores = available_parallelism().map_or(1, NonZero::get);
    let threads = match global.threads {
        None | Some(0) => format!("{cores} (one a core)"),
        Some(n) => n.to_string(),
    };
    let profile = if cfg!(debug_assertions) { "debug (slow; build with --release to measure)" } else { "release" };
    let facts = [
        ("livingrag", env!("CARGO_PKG_VERSION").to_owned()),
        ("build", profile.to_owned()),
        ("features", features()),
        ("target", format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)),
        ("cpu", cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()).unwrap_or_else(unknown)),
        ("cores", cores.to_string()),
        ("memory", memory_available(&fs::read_to_string("/proc/meminfo").unwrap_or_default()).unwrap_or_else(unknown)),
        ("backend cpu", "available".to_owned()),
        ("backend cuda", cuda_device()),
        ("readers", readers()),
        (
            "grounding",
            if cfg!(feature = "encoders") { "nli, lexical, bernoulli" } else { "lexical, bernoulli" }.to_owned(),
        ),
        ("encoder", models::whereabouts(DEFAULT_ENCODER)),
        ("nli model", models::whereabouts(DEFAULT_NLI_MODEL)),
        ("threads", threads),
        ("results", "results/ in the working directory, unless --out says otherwise".to_owned()),
    ];
    let mut out = output::Data::stdout();
    for (name, fact) in facts.into_iter().chain(args.models.iter().map(|name| ("model", models::whereabouts(name)))) {
        out.line(&format!("{name:<13} {fact}"))?;
    }
    out.finish()
}

/// Features of this build.
fn features() -> String {
    let all = [
        ("encoders", cfg!(feature = "encoders")),
        ("llm", cfg!(feature = "llm")),
        ("gguf", cfg!(feature = "gguf")),
        ("cuda", cuda::BUILT),
    ];
    let built: Vec<&str> = all.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    if built.is_empty() { "none".to_owned() } else { built.join(", ") }
}

/// What may answer.
fn readers() -> String {
    let all =
        [("api", cfg!(feature = "llm")), ("gguf", cfg!(feature = "gguf")), ("simulated", true), ("recorded", true)];
    all.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The device CUDA would run on, or why there is none.
fn cuda_device() -> String {
    if !cuda::BUILT {
        return "not built in".to_owned();
    }
    match cuda::open(1) {
        Ok(backend) => backend.description().device,
        Err(error) => error.sentence(),
    }
}

fn unknown() -> String {
    "unknown".into()
}

/// The model name in the text of /proc/cpuinfo; some architectures give none.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

/// `12.3 of 16.0 GiB available`, from the text of /proc/meminfo.
fn memory_available(meminfo: &str) -> Option<String> {
    let gib = |name: &str| {
        let line = meminfo.lines().find(|line| line.starts_with(name))?;
        let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib / f64::from(1 << 20))
    };
    Some(format!("{:.1} of {:.1} GiB available", gib("MemAvailable:")?, gib("MemTotal:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_proc() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Example CPU @ 2.00GHz\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("Example CPU @ 2.00GHz"));
        assert_eq!(cpu_model("processor : 0\n"), None);
        let meminfo = "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:   12897485 kB\n";
        assert_eq!(memory_available(meminfo).as_deref(), Some("12.3 of 16.0 GiB available"));
        assert_eq!(memory_available("MemTotal: many kB\n"), None);
    }
}
