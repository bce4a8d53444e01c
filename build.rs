//! With the feature `cuda`: compiles `kernels/*.cu` to PTX, which the CUDA backend embeds. Without it: nothing.
//!
//! In: the tree and an nvcc (`$CUDA_HOME`, `.cuda/` as scripts/cuda-home.sh lays it, or the PATH). Out: `$OUT_DIR/<module>.ptx`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// PTX of this level runs on every later card.
const LEVEL: &str = "compute_80";
/// Nothing is contracted: a fused multiply-add stands only where the source says fmaf.
const FLAGS: [&str; 3] = ["-ptx", "-O3", "-fmad=false"];

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return ExitCode::SUCCESS;
    }
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-env-changed=CUDA_HOME");
    match compile_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            for line in message.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn compile_all() -> Result<(), String> {
    let nvcc = nvcc().ok_or(
        "the feature `cuda` needs the CUDA compiler nvcc, and it was found neither under $CUDA_HOME nor in .cuda/ nor on the PATH\n\
         set CUDA_HOME, or run scripts/cuda-home.sh, which lays one into .cuda/ from Python packages",
    )?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo set no OUT_DIR")?);
    let mut sources: Vec<PathBuf> = fs::read_dir("kernels")
        .map_err(|e| format!("cannot read kernels: {e}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "cu"))
        .collect();
    sources.sort();
    for source in sources {
        let ptx = out.join(source.with_extension("ptx").file_name().ok_or("a kernel file without a name")?);
        let run =
            Command::new(&nvcc).args(FLAGS).arg(format!("-arch={LEVEL}")).arg("-o").arg(&ptx).arg(&source).output();
        let run = run.map_err(|e| format!("cannot start {}: {e}", nvcc.display()))?;
        if !run.status.success() {
            let said = String::from_utf8_lossy(&run.stderr);
            return Err(format!("nvcc failed on {}\n{said}", source.display()));
        }
    }
    Ok(())
}

fn nvcc() -> Option<PathBuf> {
    let laid = fs::read_dir(".cuda/venv/lib").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let homes = env::var_os("CUDA_HOME").map(PathBuf::from).into_iter();
    let homes = homes.chain(laid.map(|python| python.join("site-packages/nvidia/cu13")));
    homes.map(|home| home.join("bin/nvcc")).find(|path| path.is_file()).or_else(|| on_path(Path::new("nvcc")))
}

fn on_path(program: &Path) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}
