//! Every scored (premise, claim) pair, once: the cache of grounding models.
//!
//! In: a model, its precision and pairs' keys. Out: the scores kept for them, for every run and process that asks the same. One SQLite
//! file; the bits that went in come out. Texts are not kept, only the hash of each pair.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::grounding::PairScore;
use crate::sqlite::{self, Layout, count};
use crate::{Error, Result};

const LAYOUT: Layout = Layout {
    what: "cache of grounding pairs",
    // "LRNL"
    application: 0x4c52_4e4c,
    version: 1,
    tables: TABLES,
    columns: &[
        "SELECT id, name, fingerprint, precision FROM models",
        "SELECT model, key, entailment, contradiction, cut, created FROM pairs",
    ],
    from_the_one_before: None,
    other_version: "remove the file; what is missing is scored again",
    ours: "name a new file, or one that a run has made",
    damaged: "remove the file; what it kept is scored again",
    elsewhere: "name a file in a folder that can be written: gates.grounding.cache in a run (\"\" keeps no pairs), \
                --cache in `livingrag cache`",
};

/// The same file where pairs are copied from.
const SOURCE: Layout = Layout {
    other_version: "import an export of this version",
    ours: "import files that `livingrag cache export` wrote",
    damaged: "nothing was added; export it again where it came from",
    elsewhere: "copy it to a folder that can be written",
    ..LAYOUT
};

/// Pairs read at a time when they are copied.
const PAGE: u32 = 10_000;

const TABLES: &str = "
    CREATE TABLE models (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, fingerprint TEXT NOT NULL, precision TEXT NOT NULL,
        UNIQUE (fingerprint, precision)
    ) STRICT;
    CREATE TABLE pairs (
        model INTEGER NOT NULL REFERENCES models (id), key BLOB NOT NULL, entailment REAL NOT NULL, contradiction REAL,
        cut INTEGER NOT NULL, created INTEGER NOT NULL, PRIMARY KEY (model, key)
    ) WITHOUT ROWID, STRICT;";

/// A kept score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeptPair {
    /// What the model said.
    pub score: PairScore,
    /// Whether the premise was longer than the model takes.
    pub cut: bool,
}

impl KeptPair {
    /// Whether its numbers are probabilities: a file may have been changed by other hands.
    fn is_possible(&self) -> bool {
        let both = [Some(self.score.entailment), self.score.contradiction];
        both.into_iter().flatten().all(|p| (0.0..=1.0).contains(&p))
    }

    fn numbers(&self) -> String {
        let contradiction = self.score.contradiction.map_or("none".to_owned(), |p| p.to_string());
        format!("entailment {}, contradiction {contradiction}", self.score.entailment)
    }
}

/// A pair as it lies in the file: key, score, and when it was scored.
type Stored = ([u8; 16], KeptPair, i64);

/// What a cache holds of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairStats {
    /// The model's name when it was first asked.
    pub name: String,
    /// blake3 of its files, hex.
    pub fingerprint: String,
    /// Precision of its products.
    pub precision: String,
    /// Kept pairs.
    pub pairs: u64,
    /// Pairs whose premise was cut.
    pub cut: u64,
    /// When the oldest was scored, seconds since 1970.
    pub oldest: i64,
    /// When the newest was.
    pub newest: i64,
}

/// An open cache.
#[derive(Debug)]
pub struct PairCache {
    path: PathBuf,
    layout: &'static Layout,
    connection: Mutex<Connection>,
}

impl PairCache {
    /// Opens a cache, making it and its folder when they are not there.
    ///
    /// # Errors
    /// When the file is something else, of another layout, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self::over(path, &LAYOUT, sqlite::open(path, &LAYOUT)?))
    }

    /// Opens a cache that must be there.
    ///
    /// # Errors
    /// As [`PairCache::open`], and when there is none.
    pub fn open_existing(path: &Path) -> Result<Self> {
        must_be_there(path)?;
        Ok(Self::over(path, &LAYOUT, sqlite::open_existing(path, &LAYOUT)?))
    }

    /// Opens a cache that must be there and is only read, which goes where nothing can be written.
    ///
    /// # Errors
    /// As [`PairCache::open_existing`].
    pub fn open_to_read(path: &Path) -> Result<Self> {
        must_be_there(path)?;
        Ok(Self::over(path, &LAYOUT, sqlite::open_to_read(path, &LAYOUT)?))
    }

    /// Opens a file to import, and reads all of it once: what is wrong with it is found before a cache is made or changed.
    ///
    /// # Errors
    /// When the file is no such cache or is damaged, or a score in it is no probability.
    pub fn open_source(path: &Path) -> Result<Self> {
        must_be_there(path)?;
        let source = Self::over(path, &SOURCE, sqlite::open_to_read(path, &SOURCE)?);
        source.check()?;
        Ok(source)
    }

    fn over(path: &Path, layout: &'static Layout, connection: Connection) -> Self {
        Self { path: path.to_owned(), layout, connection: Mutex::new(connection) }
    }

    /// Whether the file at `path` is such a cache.
    pub fn is_one(path: &Path) -> bool {
        path.is_file() && sqlite::application_of(path) == Some(LAYOUT.application)
    }

    /// Number of a model in this file; it is entered when it is new.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn model(&self, name: &str, fingerprint: &str, precision: &str) -> Result<i64> {
        self.with("write", |db| enter(db, name, fingerprint, precision))
    }

    /// What is kept for each key, in their order.
    ///
    /// # Errors
    /// When the file cannot be read, or a score in it is no probability.
    pub fn get(&self, model: i64, keys: &[[u8; 16]]) -> Result<Vec<Option<KeptPair>>> {
        let found: Vec<Option<KeptPair>> = self.with("read", |db| {
            let transaction = db.unchecked_transaction()?;
            keys.iter().map(|key| kept(&transaction, model, key)).collect()
        })?;
        self.refuse_impossible(model, found.iter().flatten())?;
        Ok(found)
    }

    /// Keeps scores in one transaction and returns those that stand: another process may have been first, and then its scores are
    /// everyone's, so that a later run reads what an earlier one used.
    ///
    /// # Errors
    /// When the file cannot be written; then none was kept.
    pub fn put(&self, model: i64, new: &[([u8; 16], KeptPair)], created: i64) -> Result<Vec<KeptPair>> {
        let standing = self.with("write", |db| {
            let transaction = db.unchecked_transaction()?;
            let mut standing = Vec::with_capacity(new.len());
            for (key, pair) in new {
                let added = keep(&transaction, model, key, pair, created)?;
                standing.push(if added > 0 { *pair } else { kept(&transaction, model, key)?.unwrap_or(*pair) });
            }
            transaction.commit()?;
            Ok(standing)
        })?;
        self.refuse_impossible(model, standing.iter())?;
        Ok(standing)
    }

    /// The run must not go on with such a score, and the model did not give it.
    fn refuse_impossible<'a>(&self, model: i64, pairs: impl IntoIterator<Item = &'a KeptPair>) -> Result<()> {
        let Some(pair) = pairs.into_iter().find(|pair| !pair.is_possible()) else { return Ok(()) };
        let find = "SELECT name FROM models WHERE id = ?1";
        let name: String = self.with("read", |db| db.query_row(find, [model], |row| row.get(0)))?;
        let path = self.path.display();
        Err(Error::request(format!("the cache {path} keeps a score that is no probability: {}", pair.numbers()))
            .with_hint(format!(
                "remove the file, or this model's pairs with `livingrag cache prune --model {name} --cache {path}`; \
                 they are scored again"
            )))
    }

    /// What the cache holds, by model's name and precision.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stats(&self) -> Result<Vec<PairStats>> {
        self.with("read", |db| {
            db.prepare(
                "SELECT name, fingerprint, precision, count(*), sum(cut), min(created), max(created)
                 FROM pairs JOIN models ON models.id = pairs.model GROUP BY models.id ORDER BY name, precision, fingerprint",
            )?
            .query_map([], |row| {
                Ok(PairStats {
                    name: row.get(0)?,
                    fingerprint: row.get(1)?,
                    precision: row.get(2)?,
                    pairs: count(row, 3)?,
                    cut: count(row, 4)?,
                    oldest: row.get(5)?,
                    newest: row.get(6)?,
                })
            })?
            .collect()
        })
    }

    /// Removes pairs scored before a moment and those of a model's name, where both are given pairs that meet both; counts them only in
    /// a dry run. Returns their number and whether the file was made smaller.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn prune(&self, created_before: Option<i64>, name: Option<&str>, dry_run: bool) -> Result<(u64, bool)> {
        const WHERE: &str = "FROM pairs WHERE (?1 IS NULL OR created < ?1)
                             AND (?2 IS NULL OR model IN (SELECT id FROM models WHERE name = ?2))";
        let chosen = params![created_before, name];
        if dry_run {
            let find = format!("SELECT count(*) {WHERE}");
            return Ok((self.with("read", |db| db.query_row(&find, chosen, |row| count(row, 0)))?, false));
        }
        self.with("prune", |db| {
            let removed = db.execute(&format!("DELETE {WHERE}"), chosen)? as u64;
            Ok((removed, sqlite::shrink(db)?))
        })
    }

    /// Copies everything into a new file, which another machine can [`PairCache::import`].
    ///
    /// # Errors
    /// When the file is there already or cannot be written, or this one is damaged; then no file is left.
    pub fn export(&self, path: &Path) -> Result<u64> {
        if path.exists() {
            return Err(Error::request(format!("{} exists already", path.display()))
                .with_hint("remove it or choose another file"));
        }
        self.check()?;
        let copied = Self::open(path).and_then(|copy| copy.import(&self.path));
        if copied.is_err() {
            // The error that matters is the one above.
            let _ = std::fs::remove_file(path);
        }
        copied
    }

    /// Adds the pairs of another file; those already here stay. Returns how many were added.
    ///
    /// # Errors
    /// As [`PairCache::open_source`] of the other file, or when this one cannot be written; then none was added.
    pub fn import(&self, other: &Path) -> Result<u64> {
        let source = Self::open_source(other)?;
        let models = source.models()?;
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |e| sqlite::failure("write", &self.path, self.layout, e);
        // Dropped without a commit, it leaves the file as it was.
        let transaction = connection.unchecked_transaction().map_err(failed)?;
        let mut added = 0;
        for (there, [name, fingerprint, precision]) in &models {
            let here = enter(&transaction, name, fingerprint, precision).map_err(failed)?;
            let mut after: Vec<u8> = Vec::new();
            loop {
                let page = source.page(*there, &after)?;
                let Some((last, ..)) = page.last() else { break };
                after = last.to_vec();
                for (key, pair, created) in &page {
                    added += keep(&transaction, here, key, pair, *created).map_err(failed)? as u64;
                }
            }
        }
        transaction.commit().map_err(failed)?;
        Ok(added)
    }

    /// Reads every pair, and refuses scores that are no probabilities.
    fn check(&self) -> Result<()> {
        let (pairs, wrong, first) = self.with("read", |db| {
            let (mut pairs, mut wrong, mut first) = (0_u64, 0_u64, None);
            let mut query = db.prepare(&format!("SELECT {STORED} FROM pairs"))?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let (_, pair, _) = stored(row)?;
                pairs += 1;
                if !pair.is_possible() {
                    wrong += 1;
                    first = first.or(Some((pairs, pair)));
                }
            }
            Ok((pairs, wrong, first))
        })?;
        let Some((place, pair)) = first else { return Ok(()) };
        Err(Error::request(format!(
            "{} holds scores that are no probabilities: {wrong} of {pairs} pairs, the first is pair {place} ({})",
            self.path.display(),
            pair.numbers()
        ))
        .with_hint(self.layout.damaged))
    }

    /// Every model's number here, with its name, fingerprint and precision.
    fn models(&self) -> Result<Vec<(i64, [String; 3])>> {
        self.with("read", |db| {
            db.prepare("SELECT id, name, fingerprint, precision FROM models ORDER BY id")?
                .query_map([], |row| Ok((row.get(0)?, [row.get(1)?, row.get(2)?, row.get(3)?])))?
                .collect()
        })
    }

    /// Up to [`PAGE`] pairs of a model in the order of their keys, after `after`.
    fn page(&self, model: i64, after: &[u8]) -> Result<Vec<Stored>> {
        let find = format!("SELECT {STORED} FROM pairs WHERE model = ?1 AND key > ?2 ORDER BY key LIMIT ?3");
        self.with("read", |db| db.prepare_cached(&find)?.query_map(params![model, after, PAGE], stored)?.collect())
    }

    fn with<T>(&self, action: &str, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        // A lock whose holder died is still a lock: statements leave the file whole.
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        work(&connection).map_err(|e| sqlite::failure(action, &self.path, self.layout, e))
    }
}

fn must_be_there(path: &Path) -> Result<()> {
    match path.is_file() {
        true => Ok(()),
        false => Err(Error::request(format!("there is no cache at {}", path.display()))
            .with_hint("a run with gates.grounding.kind = \"nli\" makes it; name another with --cache")),
    }
}

/// Number of a model, which is entered when it is new.
fn enter(db: &Connection, name: &str, fingerprint: &str, precision: &str) -> rusqlite::Result<i64> {
    db.execute(
        "INSERT OR IGNORE INTO models (name, fingerprint, precision) VALUES (?1, ?2, ?3)",
        [name, fingerprint, precision],
    )?;
    let find = "SELECT id FROM models WHERE fingerprint = ?1 AND precision = ?2";
    db.query_row(find, [fingerprint, precision], |row| row.get(0))
}

/// Adds a pair; 0 when its key is there already.
fn keep(db: &Connection, model: i64, key: &[u8; 16], pair: &KeptPair, created: i64) -> rusqlite::Result<usize> {
    let (entailment, contradiction) = (f64::from(pair.score.entailment), pair.score.contradiction.map(f64::from));
    db.prepare_cached("INSERT OR IGNORE INTO pairs VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.execute(params![
        model,
        key,
        entailment,
        contradiction,
        pair.cut,
        created
    ])
}

/// Columns of [`stored`].
const STORED: &str = "key, entailment, contradiction, cut, created";

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    // The numbers were written as f32, so nothing is lost on the way back.
    let entailment = row.get::<_, f64>(1)? as f32;
    let contradiction = row.get::<_, Option<f64>>(2)?.map(|p| p as f32);
    let pair = KeptPair { score: PairScore { entailment, contradiction }, cut: row.get(3)? };
    Ok((row.get(0)?, pair, row.get(4)?))
}

fn kept(db: &Connection, model: i64, key: &[u8; 16]) -> rusqlite::Result<Option<KeptPair>> {
    db.prepare_cached(&format!("SELECT {STORED} FROM pairs WHERE model = ?1 AND key = ?2"))?
        .query_row(params![model, key], |row| stored(row).map(|(_, pair, _)| pair))
        .optional()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn pair(n: u8) -> ([u8; 16], KeptPair) {
        let score = PairScore { entailment: 1.0 / f32::from(n + 3), contradiction: (n != 2).then_some(0.1) };
        ([n; 16], KeptPair { score, cut: n == 1 })
    }

    fn filled(path: &Path) -> (PairCache, i64) {
        let cache = PairCache::open(path).unwrap();
        let model = cache.model("m", "f00d", "f32").unwrap();
        cache.put(model, &[pair(1), pair(2)], 100).unwrap();
        (cache, model)
    }

    #[test]
    fn the_bits_that_went_in_come_out_for_their_model_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/nli.sqlite");
        let (cache, model) = filled(&path);
        drop(cache);
        let cache = PairCache::open_existing(&path).unwrap();
        assert_eq!(cache.model("another name", "f00d", "f32").unwrap(), model);
        let found = cache.get(model, &[[2; 16], [9; 16], [1; 16]]).unwrap();
        assert_eq!(found, [Some(pair(2).1), None, Some(pair(1).1)]);
        for (fingerprint, precision) in [("f00d", "bf16"), ("beef", "f32")] {
            let other = cache.model("m", fingerprint, precision).unwrap();
            assert_eq!(cache.get(other, &[[1; 16]]).unwrap(), [None]);
        }
    }

    #[test]
    fn the_first_score_stands() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, model) = filled(&folder.path().join("c"));
        let other = KeptPair { score: 0.75.into(), cut: false };
        let standing = cache.put(model, &[([1; 16], other), ([7; 16], other)], 200).unwrap();
        assert_eq!(standing, [pair(1).1, other]);
        assert_eq!(cache.get(model, &[[1; 16]]).unwrap(), [Some(pair(1).1)]);
    }

    #[test]
    fn stats_pruning_and_moving() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, model) = filled(&folder.path().join("c"));
        cache.put(model, &[pair(5)], 300).unwrap();
        let bf16 = cache.model("m", "f00d", "bf16").unwrap();
        cache.put(bf16, &[pair(1)], 300).unwrap();
        let stats = cache.stats().unwrap();
        let seen: Vec<_> = stats.iter().map(|s| (s.precision.as_str(), s.pairs, s.cut, s.oldest, s.newest)).collect();
        assert_eq!(seen, [("bf16", 1, 1, 300, 300), ("f32", 3, 1, 100, 300)]);

        // Into a file where the models have other numbers.
        let there = PairCache::open(&folder.path().join("d")).unwrap();
        let first = there.model("first", "beef", "f32").unwrap();
        assert_eq!(first, model);
        assert_eq!(there.import(&folder.path().join("c")).unwrap(), 4);
        assert_eq!(there.import(&folder.path().join("c")).unwrap(), 0);
        assert_eq!(there.stats().unwrap(), stats);
        assert_eq!(there.export(&folder.path().join("e")).unwrap(), 4);
        assert!(there.export(&folder.path().join("e")).unwrap_err().to_string().ends_with("exists already"));

        assert_eq!(cache.prune(Some(200), None, true).unwrap(), (2, false));
        assert_eq!(cache.prune(Some(200), Some("other"), false).unwrap().0, 0);
        assert_eq!(cache.prune(Some(200), Some("m"), false).unwrap(), (2, true));
        assert_eq!(cache.get(model, &[[1; 16], [5; 16]]).unwrap(), [None, Some(pair(5).1)]);
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        assert_eq!(PairCache::open_existing(&path).unwrap_err().exit_code(), 2);
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(!PairCache::is_one(&path));
        let error = PairCache::open(&path).unwrap_err();
        assert!(error.to_string().ends_with("is no cache of grounding pairs of livingrag"), "{}", error.report());
        let (cache, _) = filled(&folder.path().join("c"));
        assert!(PairCache::is_one(&folder.path().join("c")));
        assert_eq!(cache.import(&path).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn impossible_scores_are_the_files_fault() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        let (cache, model) = filled(&path);
        let there = PairCache::open(&folder.path().join("d")).unwrap();
        for wrong in ["entailment = 7.5", "entailment = 9e999", "contradiction = -0.5"] {
            let change = format!(
                "UPDATE pairs SET entailment = 0.5, contradiction = 0.5; UPDATE pairs SET {wrong} \
                                  WHERE key = x'02020202020202020202020202020202'"
            );
            Connection::open(&path).unwrap().execute_batch(&change).unwrap();
            let error = cache.get(model, &[[1; 16], [2; 16]]).unwrap_err();
            assert!(error.to_string().contains("keeps a score that is no probability"), "{}", error.report());
            assert!(error.hint().unwrap().contains("prune --model m --cache"), "{}", error.report());
            let error = there.import(&path).unwrap_err();
            assert!(error.to_string().contains("1 of 2 pairs, the first is pair 2"), "{}", error.report());
            assert!(cache.export(&folder.path().join("e")).is_err());
            assert!(!folder.path().join("e").exists());
        }
        assert!(there.stats().unwrap().is_empty());
    }

    #[test]
    fn a_file_is_read_where_nothing_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c ?%.sqlite");
        drop(filled(&path));
        // A folder in the place of the log: the file of WAL mode opens for no writer, not even the administrator.
        std::fs::create_dir(folder.path().join("c ?%.sqlite-wal")).unwrap();
        let error = PairCache::open(&path).unwrap_err();
        assert!(error.hint().unwrap().contains("gates.grounding.cache"), "{}", error.report());
        let cache = PairCache::open_to_read(&path).unwrap();
        assert_eq!(cache.stats().unwrap()[0].pairs, 2);
        assert_eq!(cache.export(&folder.path().join("e")).unwrap(), 2);
    }

    #[test]
    fn many_connections_write_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let cache = PairCache::open(&path).unwrap();
                    let model = cache.model("m", "f", "f32").unwrap();
                    (0..50).for_each(|n| assert_eq!(cache.put(model, &[pair(n)], 1).unwrap(), [pair(n).1]));
                });
            }
        });
        assert_eq!(PairCache::open(&path).unwrap().stats().unwrap()[0].pairs, 50);
    }
}
