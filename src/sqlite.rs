//! SQLite files that threads and processes share: opening one, telling ours from others, and its errors in our words.
//!
//! In: a path and what such a file is. Out: a connection in WAL mode that waits for others. `synchronous = normal`: a killed process
//! loses nothing, a power cut at most the last moments. WAL needs a local disk, not a network share.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

use crate::{Error, Result};

/// How long one process waits for another.
pub(crate) const BUSY: Duration = Duration::from_secs(60);

/// What a file of ours is.
pub(crate) struct Layout {
    /// In words, for example `request cache`.
    pub what: &'static str,
    /// Mark of the file, SQLite's `application_id`.
    pub application: i64,
    /// Layout of its tables.
    pub version: i64,
    /// Statements that make them.
    pub tables: &'static str,
    /// Statements that make the layout before into this one, where they can.
    pub from_the_one_before: Option<&'static str>,
    /// How to come from another layout to this one.
    pub other_version: &'static str,
}

/// Opens a file, making it and its folder when they are not there.
///
/// # Errors
/// When the file is something else, of another layout, or cannot be opened.
pub(crate) fn open(path: &Path, layout: &Layout) -> Result<Connection> {
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    }
    connect(path, OpenFlags::default(), layout)
}

/// Opens a file that must be there.
///
/// # Errors
/// As [`open`], and when there is none.
pub(crate) fn open_existing(path: &Path, layout: &Layout) -> Result<Connection> {
    connect(path, OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE, layout)
}

/// The mark of a file, whoever made it; `None` when it is no SQLite file.
#[cfg_attr(
    not(feature = "encoders"),
    allow(dead_code, reason = "a build with one kind of file need not ask which it is")
)]
pub(crate) fn application_of(path: &Path) -> Option<i64> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
    connection.busy_timeout(BUSY).ok()?;
    pragma(&connection, "application_id").ok()
}

fn connect(path: &Path, flags: OpenFlags, layout: &Layout) -> Result<Connection> {
    let failed = |e| failure("open", path, layout, e);
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    prepare(&connection, path, layout)?;
    Ok(connection)
}

fn pragma(db: &Connection, name: &str) -> rusqlite::Result<i64> {
    db.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
}

/// Switches to WAL and makes the tables in a new file; checks an old one.
fn prepare(db: &Connection, path: &Path, layout: &Layout) -> Result<()> {
    let failed = |e| failure("open", path, layout, e);
    switch_to_wal(db).map_err(failed)?;
    db.execute_batch("PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE;").map_err(failed)?;
    // In the transaction, so that of two processes that find an empty file only one makes the table.
    let checked = (|| {
        let (application, version) =
            (pragma(db, "application_id").map_err(failed)?, pragma(db, "user_version").map_err(failed)?);
        let objects: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
        if application == 0 && objects == 0 {
            let (application, version, tables) = (layout.application, layout.version, layout.tables);
            let make = format!("PRAGMA application_id = {application}; PRAGMA user_version = {version}; {tables}");
            return db.execute_batch(&make).map_err(failed);
        }
        if application != layout.application {
            return Err(not_ours(path, layout));
        }
        if let Some(statements) = layout.from_the_one_before.filter(|_| version + 1 == layout.version) {
            let make = format!("{statements}; PRAGMA user_version = {};", layout.version);
            return db.execute_batch(&make).map_err(failed);
        }
        if version != layout.version {
            return Err(Error::request(format!(
                "the cache {} has layout {version}, this program reads {}",
                path.display(),
                layout.version
            ))
            .with_hint(layout.other_version));
        }
        Ok(())
    })();
    db.execute_batch(if checked.is_ok() { "COMMIT" } else { "ROLLBACK" }).map_err(failed)?;
    checked
}

/// SQLite does not wait for the lock this switch needs, so it is tried again for a while.
fn switch_to_wal(db: &Connection) -> rusqlite::Result<()> {
    let mut tries = 0;
    loop {
        match db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Err(e) if is_busy(&e) && tries < 500 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            switched => return switched.map(drop),
        }
    }
}

/// Gives the room of removed rows back to the disk; false while others use the file, and then the room is kept for new rows instead.
pub(crate) fn shrink(db: &Connection) -> rusqlite::Result<bool> {
    db.busy_timeout(Duration::from_secs(1))?;
    let shrunk = db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);");
    db.busy_timeout(BUSY)?;
    match shrunk {
        Err(e) if !is_busy(&e) => Err(e),
        shrunk => Ok(shrunk.is_ok()),
    }
}

/// SQLite's integers are signed; ours here never are.
pub(crate) fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|n| u64::try_from(n).unwrap_or(0))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// An error of SQLite while doing `action`.
pub(crate) fn failure(action: &str, path: &Path, layout: &Layout, error: rusqlite::Error) -> Error {
    if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        return not_ours(path, layout);
    }
    Error::work(format!("cannot {action} the cache {}", path.display())).with_source(error)
}

fn not_ours(path: &Path, layout: &Layout) -> Error {
    Error::request(format!("{} is no {} of livingrag", path.display(), layout.what))
        .with_hint("name a new file, or one that a run has made")
}
