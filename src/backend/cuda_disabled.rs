//! Stands where the CUDA backend will, with its signature: the constructor says in one sentence why there is none.

use crate::backend::Backend;
use crate::{Error, Result};

/// Always an error in this build.
pub fn open() -> Result<Box<dyn Backend>> {
    Err(Error::request("backend.kind = \"cuda\" was asked for, and this livingrag was built without a CUDA backend")
        .with_hint("use backend.kind = \"auto\" or \"cpu\""))
}
