//! The cache's file: one table in SQLite.
//!
//! In: entries. Out: the same. Safe for threads (one connection behind a lock) and processes ([`crate::sqlite`], and an insert
//! that lets the first answer stand).

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{CacheStats, Entry, ModelStats, Pruned, Selection};
use crate::llm::{CacheKey, Usage, locked};
use crate::sqlite::{self, Layout, count};
use crate::{Error, Result};

const LAYOUT: Layout = Layout {
    what: "request cache",
    // "LRLM"
    application: 0x4c52_4c4d,
    // The first had no `settings`.
    version: 2,
    tables: TABLE,
    columns: &["SELECT key, base_url, model, attempt, question, body, prompt_tokens, completion_tokens, \
                reasoning_tokens, cached_tokens, elapsed_us, tries, created, settings FROM answers"],
    from_the_one_before: Some("ALTER TABLE answers ADD COLUMN settings TEXT NOT NULL DEFAULT ''"),
    other_version: "use the program that wrote it to export it, then import it here",
    ours: "name a new file, or one that a run has made",
    damaged: "remove the file; what it kept is asked again, at cost",
    elsewhere: "name a file in a folder that can be written: generate.cache in a run, --cache in `livingrag cache`",
};

const TABLE: &str = "
    CREATE TABLE answers (
        key BLOB PRIMARY KEY, base_url TEXT NOT NULL, model TEXT NOT NULL, attempt INTEGER NOT NULL,
        question TEXT NOT NULL, body TEXT NOT NULL, prompt_tokens INTEGER, completion_tokens INTEGER,
        reasoning_tokens INTEGER, cached_tokens INTEGER, elapsed_us INTEGER NOT NULL, tries INTEGER NOT NULL,
        created INTEGER NOT NULL, settings TEXT NOT NULL DEFAULT ''
    ) WITHOUT ROWID, STRICT;";

const COLUMNS: &str = "key, base_url, model, attempt, question, body, prompt_tokens, completion_tokens, reasoning_tokens, \
                       cached_tokens, elapsed_us, tries, created, settings";

/// An open cache.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Cache {
    /// Opens a cache, making it and its folder when they are not there.
    ///
    /// # Errors
    /// When the file is something else, of a newer layout, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), connection: Mutex::new(sqlite::open(path, &LAYOUT)?) })
    }

    /// Opens a cache that must be there.
    ///
    /// # Errors
    /// As [`Cache::open`], and when there is none.
    pub fn open_existing(path: &Path) -> Result<Self> {
        must_be_there(path)?;
        Ok(Self { path: path.to_owned(), connection: Mutex::new(sqlite::open_existing(path, &LAYOUT)?) })
    }

    /// Opens a cache that must be there and is only read, which goes where nothing can be written.
    ///
    /// # Errors
    /// As [`Cache::open_existing`].
    pub fn open_to_read(path: &Path) -> Result<Self> {
        must_be_there(path)?;
        Ok(Self { path: path.to_owned(), connection: Mutex::new(sqlite::open_to_read(path, &LAYOUT)?) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The answer kept for a call.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, key: &CacheKey) -> Result<Option<Entry>> {
        self.with("read", |db| {
            db.prepare_cached(&format!("SELECT {COLUMNS} FROM answers WHERE key = ?1"))?
                .query_row([key.0], entry)
                .optional()
        })
    }

    /// Keeps an answer and returns the one that stands: another process may have been first, and then its answer is everyone's,
    /// unless `replace`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put(&self, new: Entry, replace: bool) -> Result<Entry> {
        let added = self.with("write", |db| insert(db, &new, replace))?;
        if added {
            return Ok(new);
        }
        Ok(self.get(&new.key)?.unwrap_or(new))
    }

    /// Adds entries in one transaction; those already there stay. Returns how many were added.
    ///
    /// # Errors
    /// When the file cannot be written; then none was added.
    pub fn add_all(&self, entries: &[Entry]) -> Result<u64> {
        self.with("write", |db| {
            let transaction = db.unchecked_transaction()?;
            let mut added = 0;
            for entry in entries {
                added += u64::from(insert(&transaction, entry, false)?);
            }
            transaction.commit()?;
            Ok(added)
        })
    }

    /// Up to `most` entries in the order of their keys, after `after`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn page(&self, after: Option<CacheKey>, most: u32) -> Result<Vec<Entry>> {
        let after = after.map_or(Vec::new(), |key| key.0.to_vec());
        self.with("read", |db| {
            db.prepare_cached(&format!("SELECT {COLUMNS} FROM answers WHERE key > ?1 ORDER BY key LIMIT ?2"))?
                .query_map(params![after, most], entry)?
                .collect()
        })
    }

    /// What the cache holds.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stats(&self) -> Result<CacheStats> {
        let models = self.with("read", |db| {
            db.prepare(
                "SELECT model, base_url, count(*), count(completion_tokens), coalesce(sum(prompt_tokens), 0),
                        coalesce(sum(completion_tokens), 0), sum(elapsed_us), min(created), max(created)
                 FROM answers GROUP BY model, base_url ORDER BY model, base_url",
            )?
            .query_map([], |row| {
                Ok(ModelStats {
                    model: row.get(0)?,
                    base_url: row.get(1)?,
                    answers: count(row, 2)?,
                    with_usage: count(row, 3)?,
                    prompt_tokens: count(row, 4)?,
                    completion_tokens: count(row, 5)?,
                    elapsed_us: count(row, 6)?,
                    oldest: row.get(7)?,
                    newest: row.get(8)?,
                })
            })?
            .collect()
        })?;
        let bytes = std::fs::metadata(&self.path).map_err(|e| Error::io("read", &self.path, e))?.len();
        Ok(CacheStats { bytes, models })
    }

    /// Removes what `selection` names, or only counts it in a dry run.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn prune(&self, selection: &Selection, dry_run: bool) -> Result<Pruned> {
        const WHERE: &str = "FROM answers WHERE (?1 IS NULL OR created < ?1) AND (?2 IS NULL OR model = ?2)";
        let chosen = params![selection.created_before, selection.model];
        if dry_run {
            let answers =
                self.with("read", |db| db.query_row(&format!("SELECT count(*) {WHERE}"), chosen, |row| count(row, 0)))?;
            return Ok(Pruned { answers, shrunk: false });
        }
        self.with("prune", |db| {
            let answers = db.execute(&format!("DELETE {WHERE}"), chosen)? as u64;
            Ok(Pruned { answers, shrunk: sqlite::shrink(db)? })
        })
    }

    fn with<T>(&self, action: &str, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        work(&locked(&self.connection)).map_err(|e| sqlite::failure(action, &self.path, &LAYOUT, e))
    }
}

fn must_be_there(path: &Path) -> Result<()> {
    match path.is_file() {
        true => Ok(()),
        false => Err(Error::request(format!("there is no cache at {}", path.display()))
            .with_hint("a run with a chat endpoint makes it; name another with --cache")),
    }
}

/// True when the row is new or was replaced.
fn insert(db: &Connection, new: &Entry, replace: bool) -> rusqlite::Result<bool> {
    let verb = if replace { "INSERT OR REPLACE" } else { "INSERT OR IGNORE" };
    let usage = &new.usage;
    let changed = db
        .prepare_cached(&format!(
            "{verb} INTO answers ({COLUMNS}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)"
        ))?
        .execute(params![
            new.key.0,
            new.base_url,
            new.model,
            new.attempt,
            new.question,
            new.body,
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.reasoning_tokens,
            usage.cached_tokens,
            i64::try_from(new.elapsed_us).unwrap_or(i64::MAX),
            new.tries,
            new.created,
            new.settings
        ])?;
    Ok(changed > 0)
}

/// A row of [`COLUMNS`].
fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        key: CacheKey(row.get(0)?),
        base_url: row.get(1)?,
        model: row.get(2)?,
        attempt: row.get(3)?,
        question: row.get(4)?,
        body: row.get(5)?,
        usage: Usage {
            prompt_tokens: row.get(6)?,
            completion_tokens: row.get(7)?,
            reasoning_tokens: row.get(8)?,
            cached_tokens: row.get(9)?,
        },
        elapsed_us: count(row, 10)?,
        tries: row.get(11)?,
        created: row.get(12)?,
        settings: row.get(13)?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn sample(n: u8) -> Entry {
        Entry {
            key: CacheKey([n; 32]),
            base_url: "http://h/v1".into(),
            model: if n.is_multiple_of(2) { "even" } else { "odd" }.into(),
            settings: "{}".into(),
            attempt: 0,
            question: format!("q{n}"),
            body: format!("{{\"n\":{n}}}"),
            usage: Usage { prompt_tokens: Some(10), completion_tokens: (n > 1).then_some(2), ..Usage::default() },
            elapsed_us: 5,
            tries: 1,
            created: i64::from(n) * 100,
        }
    }

    fn filled() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(&folder.path().join("deep/cache.sqlite")).unwrap();
        assert_eq!(cache.add_all(&[sample(1), sample(2), sample(3), sample(2)]).unwrap(), 3);
        (folder, cache)
    }

    #[test]
    fn what_is_kept_comes_back() {
        let (_folder, cache) = filled();
        assert_eq!(cache.get(&CacheKey([2; 32])).unwrap(), Some(sample(2)));
        assert_eq!(cache.get(&CacheKey([9; 32])).unwrap(), None);
        let again = Cache::open_existing(cache.path()).unwrap();
        assert_eq!(again.page(None, 2).unwrap(), [sample(1), sample(2)]);
        assert_eq!(again.page(Some(CacheKey([2; 32])), 2).unwrap(), [sample(3)]);
    }

    #[test]
    fn the_first_answer_stands_unless_replaced() {
        let (_folder, cache) = filled();
        let other = Entry { body: "{}".into(), ..sample(1) };
        assert_eq!(cache.put(other.clone(), false).unwrap(), sample(1));
        assert_eq!(cache.put(other.clone(), true).unwrap(), other);
        assert_eq!(cache.get(&other.key).unwrap(), Some(other));
    }

    #[test]
    fn stats_and_pruning() {
        let (_folder, cache) = filled();
        let stats = cache.stats().unwrap();
        let odd = &stats.models[1];
        assert_eq!((stats.models.len(), odd.model.as_str(), odd.answers, odd.with_usage), (2, "odd", 2, 1));
        assert_eq!((odd.prompt_tokens, odd.completion_tokens, odd.oldest, odd.newest), (20, 2, 100, 300));
        let old = Selection { created_before: Some(201), model: None };
        assert_eq!(cache.prune(&old, true).unwrap(), Pruned { answers: 2, shrunk: false });
        let old_even = Selection { created_before: Some(201), model: Some("even".into()) };
        assert_eq!(cache.prune(&old_even, false).unwrap(), Pruned { answers: 1, shrunk: true });
        assert_eq!(cache.page(None, 9).unwrap(), [sample(1), sample(3)]);
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        assert_eq!(Cache::open_existing(&path).unwrap_err().exit_code(), 2);
        std::fs::write(&path, "this is a text that is no database at all".repeat(99)).unwrap();
        let error = Cache::open(&path).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("no request cache"), "{}", error.report());
        let foreign = folder.path().join("y");
        Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(Cache::open(&foreign).unwrap_err().to_string().contains("no request cache"));
        let newer = folder.path().join("z");
        drop(Cache::open(&newer).unwrap());
        Connection::open(&newer).unwrap().execute_batch("PRAGMA user_version = 3").unwrap();
        assert!(Cache::open(&newer).unwrap_err().to_string().contains("layout 3"));
    }

    #[test]
    fn a_cache_of_the_first_layout_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache.sqlite");
        let first = TABLE.replace(", settings TEXT NOT NULL DEFAULT ''", "");
        assert_ne!(first, TABLE);
        let row = "INSERT INTO answers VALUES (x'0101010101010101010101010101010101010101010101010101010101010101', \
                   'http://h/v1', 'odd', 0, 'q1', '{\"n\":1}', 10, NULL, NULL, NULL, 5, 1, 100)";
        let text = format!("PRAGMA application_id = {}; PRAGMA user_version = 1; {first} {row}", LAYOUT.application);
        Connection::open(&path).unwrap().execute_batch(&text).unwrap();
        let cache = Cache::open_existing(&path).unwrap();
        assert_eq!(cache.page(None, 9).unwrap(), [Entry { settings: String::new(), ..sample(1) }]);
        assert_eq!(cache.add_all(&[sample(2)]).unwrap(), 1);
        drop(cache);
        assert_eq!(Cache::open(&path).unwrap().page(None, 9).unwrap().len(), 2);
    }

    #[test]
    fn many_threads_and_connections_write_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache.sqlite");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let cache = Cache::open(&path).unwrap();
                    for n in 0..50 {
                        assert_eq!(cache.put(sample(n), false).unwrap(), sample(n));
                    }
                });
            }
        });
        assert_eq!(Cache::open(&path).unwrap().page(None, 99).unwrap().len(), 50);
    }
}
