//! Stands where the CUDA backend is in builds with the feature `cuda`, with its signatures: the constructor says in one sentence why
//! there is none.

use crate::backend::Backend;
use crate::{Error, Result};

/// Whether CUDA was built in.
pub const BUILT: bool = false;

/// Always an error in this build.
///
/// # Errors
/// Always.
pub fn open(_threads: usize) -> Result<Box<dyn Backend>> {
    Err(Error::request("CUDA cannot be used: this livingrag was built without it")
        .with_hint("build with `cargo build --release --features cuda`, or use backend.kind = \"auto\" or \"cpu\""))
}
