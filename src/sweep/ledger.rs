//! Which runs of a sweep folder are done, and who is doing which.
//!
//! In: run folders. Out: their state, and claims: `.locks/<run-id>` is locked by the process that does the run, so no run is done twice,
//! and the operating system frees the lock when the process ends, however it ends. `failed.json` in a run folder says why a run failed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::replay::JOURNAL_FILE;
use crate::trace::atomic;
use crate::trace::manifest::{MANIFEST_FILE, Manifest, Status};
use crate::{Error, Result};

/// Name of the note in the folder of a run that failed.
pub const FAILED_FILE: &str = "failed.json";
/// Folder of the locks; hidden, so that it is not taken for a run.
pub const LOCK_FOLDER: &str = ".locks";

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Which run.
    pub run_id: String,
    /// Queries that were committed before.
    pub after: usize,
    /// The error with its causes and hint.
    pub error: String,
}

/// State of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// There is nothing of it.
    New,
    /// Begun, by some process that may be at it still.
    Begun,
    /// Failed.
    Failed(Failed),
    /// Complete.
    Finished,
}

/// The state of the run in `folder`.
///
/// # Errors
/// A manifest or failure note that cannot be read.
pub fn state(folder: &Path) -> Result<State> {
    if folder.join(MANIFEST_FILE).is_file() && Manifest::read(folder)?.status == Status::Complete {
        return Ok(State::Finished);
    }
    let failed = folder.join(FAILED_FILE);
    match fs::read(&failed) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(State::Failed).map_err(|e| {
            Error::request(format!("{} cannot be read", failed.display()))
                .with_source(e)
                .with_hint("remove the file; the run is then tried again")
        }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Ok(if folder.is_dir() { State::Begun } else { State::New })
        }
        Err(e) => Err(Error::io("read", &failed, e)),
    }
}

/// Writes down that a run failed.
///
/// # Errors
/// When the disk refuses.
pub fn write_failed(folder: &Path, failed: &Failed) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    let json = serde_json::to_vec_pretty(failed)
        .map_err(|e| Error::work("cannot write the failure of a run as JSON").with_source(e))?;
    atomic::write(&folder.join(FAILED_FILE), &json)
}

/// Forgets a failure.
///
/// # Errors
/// When the disk refuses.
pub fn forget_failed(folder: &Path) -> Result<()> {
    remove(&folder.join(FAILED_FILE), |path| fs::remove_file(path))
}

/// Removes a run folder with everything in it; the manifest first, so that a half-removed run is never taken for a finished one.
///
/// # Errors
/// When the disk refuses.
pub fn remove_run(folder: &Path) -> Result<()> {
    remove(&folder.join(MANIFEST_FILE), |path| fs::remove_file(path))?;
    remove(folder, |path| fs::remove_dir_all(path))
}

/// Removes what a kill between the manifest and the journal's end leaves in the folder of a finished run.
///
/// # Errors
/// When the disk refuses.
pub fn tidy_finished(folder: &Path) -> Result<()> {
    remove(&folder.join(JOURNAL_FILE), |path| fs::remove_file(path))
}

fn remove(path: &Path, how: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<()> {
    match how(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// The right to do one run; ends when dropped.
#[derive(Debug)]
pub struct Claim {
    _file: File,
}

/// Takes the run for this process; `None` when another process has it.
///
/// # Errors
/// When the disk refuses, or the file system knows no locks.
pub fn claim(sweep: &Path, run_id: &str) -> Result<Option<Claim>> {
    let (file, path) = lock_file(sweep, run_id)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Claim { _file: file })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(Error::io("lock", &path, e)),
    }
}

/// Whether some other program, for example `livingrag run`, has the run's journal open.
///
/// # Errors
/// When the disk refuses.
pub fn journal_in_use(folder: &Path) -> Result<bool> {
    let path = folder.join(JOURNAL_FILE);
    match OpenOptions::new().append(true).open(&path) {
        Ok(file) => match file.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(e)) => Err(Error::io("lock", &path, e)),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("open", &path, e)),
    }
}

/// Waits for its turn to change `sweep.json`.
///
/// # Errors
/// As [`claim`].
pub fn claim_manifest(sweep: &Path) -> Result<Claim> {
    let (file, path) = lock_file(sweep, "sweep.json")?;
    file.lock().map_err(|e| Error::io("lock", &path, e))?;
    Ok(Claim { _file: file })
}

fn lock_file(sweep: &Path, name: &str) -> Result<(File, PathBuf)> {
    let folder = sweep.join(LOCK_FOLDER);
    fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, e))?;
    let path = folder.join(name);
    // Never removed: a lock on a file that is gone would exclude nobody.
    let file = OpenOptions::new().create(true).append(true).open(&path).map_err(|e| Error::io("open", &path, e))?;
    Ok((file, path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::fixture;

    #[test]
    fn a_run_is_claimed_once() {
        let folder = tempfile::tempdir().unwrap();
        let first = claim(folder.path(), "run-a").unwrap();
        assert!(first.is_some());
        assert!(claim(folder.path(), "run-a").unwrap().is_none());
        assert!(claim(folder.path(), "run-b").unwrap().is_some());
        drop(first);
        assert!(claim(folder.path(), "run-a").unwrap().is_some());
    }

    #[test]
    fn states_follow_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("r");
        assert_eq!(state(&run).unwrap(), State::New);
        fs::create_dir(&run).unwrap();
        assert_eq!(state(&run).unwrap(), State::Begun);
        let failed = Failed { run_id: "r".into(), after: 3, error: "error: no".into() };
        write_failed(&run, &failed).unwrap();
        assert_eq!(state(&run).unwrap(), State::Failed(failed));
        fixture::manifest("living", 1).write(&run).unwrap();
        assert_eq!(state(&run).unwrap(), State::Finished);
        forget_failed(&run).unwrap();
        forget_failed(&run).unwrap();
        remove_run(&run).unwrap();
        assert_eq!(state(&run).unwrap(), State::New);
        remove_run(&run).unwrap();
    }
}
