//! Files that appear whole or not at all.
//!
//! In: a path and a function that writes. Out: the finished file under that path. The bytes go to a temporary name in the same
//! folder, are flushed to the disk and renamed, so that a reader (or a kill at any moment) never meets half a file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Writes `path` through `fill`, atomically. On failure nothing is left behind and an older file stays as it was.
///
/// # Errors
/// When the folder cannot be written, or with `fill`'s own error.
pub fn write_with<T>(path: &Path, fill: impl FnOnce(&File) -> Result<T>) -> Result<T> {
    let temporary = temporary_name(path)?;
    let written = create_and_fill(&temporary, path, fill)
        .and_then(|out| fs::rename(&temporary, path).map_err(|e| Error::io("rename to", path, e)).map(|()| out));
    if written.is_err() {
        // The first error is the one to report; a leftover temporary file does no harm.
        let _ = fs::remove_file(&temporary);
    }
    let out = written?;
    sync_folder(path)?;
    Ok(out)
}

/// Writes `bytes` to `path`, atomically.
///
/// # Errors
/// When the folder cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_with(path, |mut file| file.write_all(bytes).map_err(|e| Error::io("write", path, e)))
}

/// Errors name the file that was asked for, not its temporary name.
fn create_and_fill<T>(temporary: &Path, path: &Path, fill: impl FnOnce(&File) -> Result<T>) -> Result<T> {
    let file = File::create(temporary).map_err(|e| Error::io("write", path, e))?;
    let out = fill(&file)?;
    file.sync_all().map_err(|e| Error::io("write", path, e))?;
    Ok(out)
}

/// `.<name>.<pid>-<n>.tmp` beside the file: the rename must not cross a file system, and two writers of one file must not share it.
fn temporary_name(path: &Path) -> Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| Error::request(format!("{} is not the name of a file", path.display())))?
        .to_string_lossy();
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let n = WRITTEN.fetch_add(1, Ordering::Relaxed);
    Ok(path.with_file_name(format!(".{name}.{}-{n}.tmp", std::process::id())))
}

/// Removes what writers that were killed left in `folder`. Nobody else may be writing there.
pub fn remove_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') && name.ends_with(".tmp") {
            // A leftover does no harm, so neither does failing to remove it.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Makes the rename itself durable.
#[cfg(unix)]
fn sync_folder(path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| Error::io("flush", folder, e))
}

/// Folders cannot be opened for flushing here; the rename is atomic all the same.
#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.json");
        write(&path, b"old").unwrap();
        let failed = write_with(&path, |mut file| {
            file.write_all(b"half of the n").unwrap();
            Err::<(), _>(Error::work("stopped"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "stopped");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = write(Path::new("/nowhere/at/all.json"), b"x").unwrap_err();
        assert_eq!(error.to_string(), "cannot write /nowhere/at/all.json");
        assert_eq!(error.exit_code(), 2);
    }
}
