//! SQLite files that threads and processes share: opening one, telling ours from others, and its errors in our words.
//!
//! In: a path and what such a file is. Out: a connection in WAL mode that waits for others. `synchronous = normal`: a killed process
//! loses nothing, a power cut at most the last moments. WAL needs a local disk, not a network share.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

use crate::{Error, Result};

/// How long one process waits for another.
pub(crate) const BUSY: Duration = Duration::from_secs(60);

/// What a file of ours is.
#[derive(Debug)]
pub(crate) struct Layout {
    /// In words, for example `request cache`.
    pub what: &'static str,
    /// Mark of the file, SQLite's `application_id`.
    pub application: i64,
    /// Layout of its tables.
    pub version: i64,
    /// Statements that make them.
    pub tables: &'static str,
    /// One query a table, with every column: they tell a file with our mark and other tables.
    pub columns: &'static [&'static str],
    /// Statements that make the layout before into this one, where they can.
    pub from_the_one_before: Option<&'static str>,
    /// How to come from another layout to this one.
    pub other_version: &'static str,
    /// Which file to name in place of one that is not ours.
    pub ours: &'static str,
    /// What to do about a damaged file.
    pub damaged: &'static str,
    /// What to do about a place that cannot be written.
    pub elsewhere: &'static str,
}

/// What a file was found to be.
enum Found {
    /// Empty.
    New,
    /// Of the layout before; the statements make it into this one.
    Older(&'static str),
    Ours,
}

/// Opens a file, making it and its folder when they are not there.
///
/// # Errors
/// When the file is something else, of another layout, or cannot be opened.
pub(crate) fn open(path: &Path, layout: &Layout) -> Result<Connection> {
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e).with_hint(layout.elsewhere))?;
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

/// Opens a file that must be there and is only read. Where nothing can be written beside it, it is read as it lies.
///
/// # Errors
/// As [`open_existing`].
pub(crate) fn open_to_read(path: &Path, layout: &Layout) -> Result<Connection> {
    match open_existing(path, layout) {
        // What is still in the log of another process can only be read with that process's files.
        Err(e) if is_unwritable(&e) && !has_log(path) => open_as_it_lies(path, layout),
        opened => opened,
    }
}

/// The mark of a file, whoever made it; `None` when it is no SQLite file. A damaged file is known by its first bytes.
#[cfg_attr(
    not(feature = "encoders"),
    allow(dead_code, reason = "a build with one kind of file need not ask which it is")
)]
pub(crate) fn application_of(path: &Path) -> Option<i64> {
    mark_in_database(path).or_else(|| mark_in_header(path))
}

fn mark_in_database(path: &Path) -> Option<i64> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
    connection.busy_timeout(BUSY).ok()?;
    pragma(&connection, "application_id").ok()
}

/// Byte 68 of SQLite's header on, big-endian.
fn mark_in_header(path: &Path) -> Option<i64> {
    let mut head = [0_u8; 72];
    File::open(path).ok()?.read_exact(&mut head).ok()?;
    let mark = i32::from_be_bytes([head[68], head[69], head[70], head[71]]);
    head.starts_with(b"SQLite format 3\0").then(|| i64::from(mark))
}

/// Whether a log with something in it lies beside the file.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|file| file.is_file() && file.len() > 0)
}

/// SQLite reads a file of WAL mode without writing beside it only when told that nobody changes it, which takes a URI.
fn open_as_it_lies(path: &Path, layout: &Layout) -> Result<Connection> {
    let mut uri = String::from(if path.is_absolute() { "file://" } else { "file:" });
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(uri, flags).map_err(|e| failure("open", path, layout, e))?;
    match look(&db, path, layout)? {
        Found::New => Err(not_ours(path, layout)),
        Found::Older(_) => Err(other_version(layout.version - 1, path, layout)),
        Found::Ours => check_tables(&db, path, layout).map(|()| db),
    }
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
    match settle(db, path, layout) {
        Ok(()) => db.execute_batch("COMMIT").map_err(failed),
        Err(e) => {
            // The error that matters is the one found; a damaged file may have ended the transaction already.
            let _ = db.execute_batch("ROLLBACK");
            Err(e)
        }
    }
}

/// Makes the tables, or checks that they are those of the layout.
fn settle(db: &Connection, path: &Path, layout: &Layout) -> Result<()> {
    let make = |text: &str| db.execute_batch(text).map_err(|e| misfit(path, layout, e));
    match look(db, path, layout)? {
        Found::New => {
            let (application, version, tables) = (layout.application, layout.version, layout.tables);
            make(&format!("PRAGMA application_id = {application}; PRAGMA user_version = {version}; {tables}"))?;
        }
        Found::Older(statements) => make(&format!("{statements}; PRAGMA user_version = {};", layout.version))?,
        Found::Ours => {}
    }
    check_tables(db, path, layout)
}

fn look(db: &Connection, path: &Path, layout: &Layout) -> Result<Found> {
    let failed = |e| failure("open", path, layout, e);
    let application = pragma(db, "application_id").map_err(failed)?;
    let version = pragma(db, "user_version").map_err(failed)?;
    let objects: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if application == 0 && objects == 0 {
        return Ok(Found::New);
    }
    if application != layout.application {
        return Err(not_ours(path, layout));
    }
    if let Some(statements) = layout.from_the_one_before.filter(|_| version + 1 == layout.version) {
        return Ok(Found::Older(statements));
    }
    if version != layout.version {
        return Err(other_version(version, path, layout));
    }
    Ok(Found::Ours)
}

/// Only asks whether the queries could run.
fn check_tables(db: &Connection, path: &Path, layout: &Layout) -> Result<()> {
    layout.columns.iter().try_for_each(|query| db.prepare(query).map(drop).map_err(|e| misfit(path, layout, e)))
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

/// An error of SQLite while doing `action`, with its cure where one is known.
pub(crate) fn failure(action: &str, path: &Path, layout: &Layout, error: rusqlite::Error) -> Error {
    use rusqlite::Error as Sql;
    if matches!(error, Sql::SqlInputError { .. }) {
        // Its own words are a whole statement.
        return other_tables(path, layout);
    }
    // Values that no statement of ours has written.
    let is_strange = matches!(
        error,
        Sql::InvalidColumnType(..) | Sql::FromSqlConversionFailure(..) | Sql::IntegralValueOutOfRange(..)
    );
    let text = format!("cannot {action} the cache {}", path.display());
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => not_ours(path, layout).with_hint(or_damaged(layout)),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            Error::request(text).with_source(error).with_hint(layout.elsewhere)
        }
        code if is_strange || code == Some(ErrorCode::DatabaseCorrupt) => {
            Error::request(text).with_source(error).with_hint(layout.damaged)
        }
        _ => Error::work(text).with_source(error),
    }
}

/// Whether the place is why a file could not be opened.
fn is_unwritable(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<rusqlite::Error>());
    matches!(
        cause.and_then(rusqlite::Error::sqlite_error_code),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
    )
}

fn not_ours(path: &Path, layout: &Layout) -> Error {
    Error::request(format!("{} is no {} of livingrag", path.display(), layout.what)).with_hint(layout.ours)
}

fn other_version(version: i64, path: &Path, layout: &Layout) -> Error {
    let (path, reads) = (path.display(), layout.version);
    Error::request(format!("the cache {path} has layout {version}, this program reads {reads}"))
        .with_hint(layout.other_version)
}

/// An error of a statement that runs on every file of the layout.
fn misfit(path: &Path, layout: &Layout, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        // "no such table", "no such column".
        Some(ErrorCode::Unknown) => other_tables(path, layout),
        _ => failure("open", path, layout, error),
    }
}

fn other_tables(path: &Path, layout: &Layout) -> Error {
    Error::request(format!("{} has the mark of a {} of livingrag, but other tables", path.display(), layout.what))
        .with_hint(or_damaged(layout))
}

fn or_damaged(layout: &Layout) -> String {
    format!("{}; if this was one, it is damaged: {}", layout.ours, layout.damaged)
}
