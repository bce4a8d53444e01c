//! The append-only journal of one run: what makes `kill -9` harmless.
//!
//! In: finished rows, in stream order. Out: the same rows when the run is resumed, and the files at its end. A line is
//! `<16 hex digits of blake3> <json>`; the first holds the header. A line torn by a crash can only be the last one: it is dropped
//! with a word and its query is computed again. Anything else that does not check out is an error.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::llm::Ledger;
use crate::trace::row::{ExperienceRow, TraceRow};
use crate::{Error, Result};

/// Version of the journal's lines.
const JOURNAL_VERSION: u32 = 2;

/// First line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the lines.
    pub version: u32,
    /// Which run; holds the plan's hash.
    pub run_id: String,
    /// Fingerprint of the index it runs on.
    pub index: String,
}

impl Header {
    /// For this version.
    pub fn new(run_id: &str, index: &str) -> Self {
        Self { version: JOURNAL_VERSION, run_id: run_id.into(), index: index.into() }
    }
}

/// One query: its row and, when it was accepted, its experience.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The row.
    pub row: TraceRow,
    /// The experience, if one was stored.
    pub experience: Option<ExperienceRow>,
    /// What was asked of an endpoint since the record before, where anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Ledger>,
}

/// A line of its own where a block was paid for in part and not finished, at a cap for example.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpentApart {
    spent: Ledger,
}

/// An open, locked journal.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    spent_apart: Ledger,
}

fn line<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let json = serde_json::to_string(value).map_err(|e| Error::work("cannot write a journal record").with_source(e))?;
    Ok(format!("{} {json}\n", checksum(json.as_bytes())).into_bytes())
}

fn checksum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().as_str()[..16].to_owned()
}

/// The JSON of a whole line; `None` when it is torn or altered.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let body = line.strip_suffix(b"\n")?;
    let (sum, json) = (body.get(..16)?, body.get(17..)?);
    (body[16] == b' ' && sum == checksum(json).as_bytes()).then_some(json)
}

/// Tries for a tenth of a second: a process that was just killed, or a child that has not started yet, may still hold the file.
fn lock(file: &File, path: &Path) -> Result<()> {
    for _ in 0..10 {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(std::time::Duration::from_millis(10)),
            Err(TryLockError::Error(e)) => return Err(Error::io("lock", path, e)),
        }
    }
    Err(Error::request(format!("{} is in use: another process is doing this run", path.display()))
        .with_hint("wait for it, or give this run another --out folder"))
}

impl Journal {
    /// Starts a new journal.
    ///
    /// # Errors
    /// When one is there already, or the disk refuses.
    pub fn create(path: &Path, header: &Header) -> Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .open(path)
            .map_err(|e| Error::io("create", path, e))?;
        lock(&file, path)?;
        file.write_all(&line(header)?).map_err(|e| Error::io("write", path, e))?;
        Ok(Self { file, path: path.into(), spent_apart: Ledger::default() })
    }

    /// Opens a journal to go on with it. `each` gets every whole record in order; the result's text says what was dropped, if
    /// anything was.
    ///
    /// # Errors
    /// When it belongs to another run or index, is locked, or is damaged before its last line.
    pub fn resume(
        path: &Path,
        header: &Header,
        mut each: impl FnMut(Record) -> Result<()>,
    ) -> Result<(Self, Option<String>)> {
        let mut file = OpenOptions::new().read(true).append(true).open(path).map_err(|e| Error::io("open", path, e))?;
        lock(&file, path)?;
        let length = file.metadata().map_err(|e| Error::io("read", path, e))?.len();
        let (good, spent_apart) = read_records(&file, path, Some(header), &mut each)?;
        let mut dropped = None;
        if good < length {
            dropped = Some(format!(
                "{}: the last record was torn ({} bytes) and is dropped; its query is computed again",
                path.display(),
                length - good
            ));
            file.set_len(good).map_err(|e| Error::io("truncate", path, e))?;
        }
        file.seek(SeekFrom::End(0)).map_err(|e| Error::io("read", path, e))?;
        if good == 0 {
            // Killed before the header was whole.
            file.write_all(&line(header)?).map_err(|e| Error::io("write", path, e))?;
        }
        Ok((Self { file, path: path.into(), spent_apart }, dropped))
    }

    /// What was paid for blocks that were not finished, up to when the journal was opened.
    pub fn spent_apart(&self) -> &Ledger {
        &self.spent_apart
    }

    /// Notes what was paid for a block that is not finished.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn append_spent(&mut self, spent: Ledger) -> Result<()> {
        let bytes = line(&SpentApart { spent })?;
        self.file.write_all(&bytes).and_then(|()| self.file.sync_data()).map_err(|e| Error::io("write", &self.path, e))
    }

    /// Appends the records of one block and waits until they are on the disk.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn append(&mut self, records: &[Record]) -> Result<()> {
        let mut bytes = Vec::new();
        for record in records {
            bytes.extend(line(record)?);
        }
        self.file.write_all(&bytes).and_then(|()| self.file.sync_data()).map_err(|e| Error::io("write", &self.path, e))
    }

    /// Reads every record again, in order.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub fn replay(&self, mut each: impl FnMut(Record) -> Result<()>) -> Result<()> {
        read_records(&self.file, &self.path, None, &mut each).map(|_| ())
    }
}

/// Position after the last whole line, and what was paid apart from records.
fn read_records(
    file: &File,
    path: &Path,
    expected: Option<&Header>,
    each: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<(u64, Ledger)> {
    let damaged = |number: usize| {
        Error::work(format!("{}: line {number} is damaged", path.display()))
            .with_hint("the file was changed from outside; start the run again in another --out folder")
    };
    let mut reader = BufReader::with_capacity(1 << 20, file);
    reader.seek(SeekFrom::Start(0)).map_err(|e| Error::io("read", path, e))?;
    let (mut good, mut number, mut torn, mut next) = (0u64, 0usize, None, 1u32);
    let (mut bytes, mut apart) = (Vec::new(), Ledger::default());
    loop {
        bytes.clear();
        let read = reader.read_until(b'\n', &mut bytes).map_err(|e| Error::io("read", path, e))?;
        if read == 0 {
            return Ok((good, apart));
        }
        if let Some(at) = torn {
            return Err(damaged(at));
        }
        number += 1;
        let Some(json) = checked(&bytes) else {
            torn = Some(number);
            continue;
        };
        if number == 1 {
            let header: Header = serde_json::from_slice(json).map_err(|e| damaged(1).with_source(e))?;
            if expected.is_some_and(|e| *e != header) {
                return Err(Error::request(format!(
                    "{} belongs to run {} on index {} (journal version {})",
                    path.display(),
                    header.run_id,
                    header.index.get(..12).unwrap_or(&header.index),
                    header.version
                ))
                .with_hint(
                    "the dataset, its vectors or this program changed since; give the run another --out folder",
                ));
            }
        } else if let Ok(SpentApart { spent }) = serde_json::from_slice(json) {
            apart.add(&spent);
        } else {
            let record: Record = serde_json::from_slice(json).map_err(|e| damaged(number).with_source(e))?;
            // A line that was lost, doubled or moved is whole, and wrong all the same.
            if record.row.stream_index != next {
                return Err(damaged(number).with_source(Error::work(format!(
                    "it holds query {} of the stream where query {next} belongs",
                    record.row.stream_index
                ))));
            }
            next += 1;
            each(record)?;
        }
        good += read as u64;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::fixture::row;

    fn records(n: u32) -> Vec<Record> {
        (1..=n).map(|t| Record { row: row(t), experience: None, spent: None }).collect()
    }

    fn read(path: &Path, header: &Header) -> Result<(Vec<Record>, Option<String>)> {
        let mut out = Vec::new();
        let (_, dropped) = Journal::resume(path, header, |r| {
            out.push(r);
            Ok(())
        })?;
        Ok((out, dropped))
    }

    /// pitfall 29: every cut of the file keeps the whole part and drops the torn record with a word.
    #[test]
    fn a_torn_tail_is_dropped_wherever_it_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let header = Header::new("run", "index");
        let whole = folder.path().join("whole");
        let mut journal = Journal::create(&whole, &header).unwrap();
        journal.append(&records(3)).unwrap();
        drop(journal);
        let bytes = std::fs::read(&whole).unwrap();
        let ends: Vec<usize> = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
        for cut in (0..=bytes.len()).step_by(3).chain([bytes.len() - 7]) {
            let path = folder.path().join(format!("cut-{cut}"));
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let (found, dropped) = read(&path, &header).unwrap();
            let lines = ends.iter().filter(|&&e| e <= cut).count();
            assert_eq!(found, records(3)[..lines.saturating_sub(1)], "cut at {cut}");
            assert_eq!(dropped.is_some(), !ends.contains(&cut) && cut > 0, "cut at {cut}");
            // Going on from there and reading again gives everything.
            let (mut journal, _) = Journal::resume(&path, &header, |_| Ok(())).unwrap();
            journal.append(&records(3)[lines.saturating_sub(1)..]).unwrap();
            drop(journal);
            assert_eq!(read(&path, &header).unwrap(), (records(3), None));
        }
    }

    #[test]
    fn what_was_paid_for_nothing_yet_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let header = Header::new("run", "index");
        let mut journal = Journal::create(&path, &header).unwrap();
        journal.append(&records(1)).unwrap();
        journal.append_spent(Ledger { sent: 2, usd: 0.5, ..Ledger::default() }).unwrap();
        journal.append_spent(Ledger { sent: 1, usd: 0.25, ..Ledger::default() }).unwrap();
        drop(journal);
        assert_eq!(read(&path, &header).unwrap(), (records(1), None));
        let (journal, _) = Journal::resume(&path, &header, |_| Ok(())).unwrap();
        assert_eq!((journal.spent_apart().sent, journal.spent_apart().usd), (3, 0.75));
    }

    #[test]
    fn damage_in_the_middle_and_another_run_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let header = Header::new("run", "index");
        let mut journal = Journal::create(&path, &header).unwrap();
        journal.append(&records(2)).unwrap();
        assert!(read(&path, &header).unwrap_err().to_string().contains("in use"));
        drop(journal);
        assert!(read(&path, &Header::new("other", "index")).unwrap_err().to_string().contains("belongs to run run"));
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.iter().position(|&b| b == b'\n').unwrap() + 40;
        bytes[middle] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(read(&path, &header).unwrap_err().to_string().contains("line 2 is damaged"));
    }
}
