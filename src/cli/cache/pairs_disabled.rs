//! Stands for the caches of pairs in a build without SQLite: no file is one.

use std::path::{Path, PathBuf};

use crate::cli::Global;
use crate::{Error, Result};

fn none() -> Result<()> {
    Err(Error::request("this build has no caches").with_hint("build with the default features"))
}

/// Never.
pub fn is_one(_: &Path) -> bool {
    false
}

/// As in the real one.
pub fn stats(_: &Path) -> Result<()> {
    none()
}

/// As in the real one.
pub fn export(_: &Path, _: &Path, _: &Global) -> Result<()> {
    none()
}

/// As in the real one.
pub fn import(_: &Path, _: &[PathBuf], _: &Global) -> Result<()> {
    none()
}

/// As in the real one.
pub fn prune(_: &Path, _: Option<i64>, _: Option<&str>, _: bool, _: &Global) -> Result<()> {
    none()
}
