//! Kept answers as a Parquet file, to carry them to another machine.
//!
//! In: a cache, or files that [`export`] wrote. Out: the other. Rows are in the order of keys, so equal caches give equal files.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::{Cache, Entry, write_new};
use crate::llm::{CacheKey, Usage, reply};
use crate::{Error, Result};

/// Rows read or written at a time; bodies are long.
const BATCH: u32 = 4096;

fn schema() -> Arc<Schema> {
    let field = |name: &str, kind: DataType, nullable| Field::new(name, kind, nullable);
    Arc::new(Schema::new(vec![
        field("key", DataType::Utf8, false),
        field("base_url", DataType::Utf8, false),
        field("model", DataType::Utf8, false),
        field("attempt", DataType::UInt32, false),
        field("question", DataType::Utf8, false),
        field("body", DataType::Utf8, false),
        field("prompt_tokens", DataType::UInt32, true),
        field("completion_tokens", DataType::UInt32, true),
        field("reasoning_tokens", DataType::UInt32, true),
        field("cached_tokens", DataType::UInt32, true),
        field("elapsed_us", DataType::UInt64, false),
        field("tries", DataType::UInt32, false),
        field("created", DataType::Int64, false),
        field("settings", DataType::Utf8, false),
    ]))
}

/// What an import did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Imported {
    /// Rows of the file.
    pub rows: u64,
    /// Those that were new; the others were there already and stay.
    pub added: u64,
}

/// Writes every kept answer to `path`, which appears whole or not at all. Returns how many.
///
/// # Errors
/// When `path` exists, or something cannot be read or written.
pub fn export(cache: &Cache, path: &Path) -> Result<u64> {
    write_new(path, |unfinished| write(cache, unfinished))
}

fn write(cache: &Cache, path: &Path) -> Result<u64> {
    let failed = |e| Error::work(format!("cannot write {}", path.display())).with_source(e);
    let file = File::create(path).map_err(|e| Error::io("create", path, e))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(65_536))
        .build();
    let mut writer = ArrowWriter::try_new(file, schema(), Some(properties)).map_err(failed)?;
    let (mut rows, mut last) = (0, None);
    loop {
        let page = cache.page(last, BATCH)?;
        let Some(end) = page.last() else { break };
        last = Some(end.key);
        rows += page.len() as u64;
        let batch = to_batch(&page).map_err(|e| Error::work("cannot lay out the answers").with_source(e))?;
        writer.write(&batch).map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    Ok(rows)
}

fn to_batch(entries: &[Entry]) -> std::result::Result<RecordBatch, arrow_schema::ArrowError> {
    fn text<'a>(entries: &'a [Entry], of: impl Fn(&'a Entry) -> &'a str) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(entries.iter().map(of)))
    }
    let number = |of: fn(&Entry) -> u32| Arc::new(UInt32Array::from_iter_values(entries.iter().map(of))) as ArrayRef;
    let tokens = |of: fn(&Usage) -> Option<u32>| {
        Arc::new(entries.iter().map(|e| of(&e.usage)).collect::<UInt32Array>()) as ArrayRef
    };
    RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(StringArray::from_iter_values(entries.iter().map(|e| e.key.hex()))),
            text(entries, |e| &e.base_url),
            text(entries, |e| &e.model),
            number(|e| e.attempt),
            text(entries, |e| &e.question),
            text(entries, |e| &e.body),
            tokens(|u| u.prompt_tokens),
            tokens(|u| u.completion_tokens),
            tokens(|u| u.reasoning_tokens),
            tokens(|u| u.cached_tokens),
            Arc::new(UInt64Array::from_iter_values(entries.iter().map(|e| e.elapsed_us))),
            number(|e| e.tries),
            Arc::new(Int64Array::from_iter_values(entries.iter().map(|e| e.created))),
            text(entries, |e| &e.settings),
        ],
    )
}

/// Adds the answers of a file; those already there stay as they are.
///
/// # Errors
/// When the file is no export, naming it with the column or the row.
pub fn import(cache: &Cache, path: &Path) -> Result<Imported> {
    let mut imported = Imported { rows: 0, added: 0 };
    read(path, |entries| {
        imported.rows += entries.len() as u64;
        imported.added += cache.add_all(&entries)?;
        Ok(())
    })?;
    Ok(imported)
}

/// Reads a file as [`import`] does and keeps nothing, so that a file that is no export is found before a cache is made or changed.
///
/// # Errors
/// As [`import`].
pub fn check_import(path: &Path) -> Result<()> {
    read(path, |_| Ok(()))
}

/// Hands on the answers of a file, some at a time.
fn read(path: &Path, mut each: impl FnMut(Vec<Entry>) -> Result<()>) -> Result<()> {
    let unreadable = |e| {
        Error::request(format!("{} is no Parquet file of answers", path.display())).with_source(e).with_hint(cure(path))
    };
    let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(unreadable)?
        .with_batch_size(BATCH as usize)
        .build()
        .map_err(unreadable)?;
    let mut rows = 0;
    for batch in reader {
        let batch = batch.map_err(|e| {
            Error::request(format!("cannot read {}", path.display()))
                .with_source(e)
                .with_hint("the file is damaged: export it again where it came from")
        })?;
        let entries = from_batch(&batch, path, rows)?;
        rows += entries.len() as u64;
        each(entries)?;
    }
    Ok(())
}

/// What to do with a file that is no Parquet, by what it looks like.
fn cure(path: &Path) -> String {
    let mut head = [0_u8; 16];
    let read = File::open(path).and_then(|mut file| file.read(&mut head)).unwrap_or(0);
    let head = &head[..read];
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let path = path.display();
    if text.starts_with(b"{") {
        return format!(
            "a recording is not imported: a run replays it with generate.kind = \"recorded\", \
             generate.model = \"{path}\""
        );
    }
    if head.starts_with(b"SQLite format 3") {
        return format!("of a cache of answers import an export: `livingrag cache export FILE.parquet --cache {path}`");
    }
    "import files that `livingrag cache export` wrote".to_owned()
}

fn from_batch(batch: &RecordBatch, path: &Path, before: u64) -> Result<Vec<Entry>> {
    let text = |name| column::<StringArray>(batch, name, path);
    let number = |name| column::<UInt32Array>(batch, name, path);
    let (key, base_url, model, question, body) =
        (text("key")?, text("base_url")?, text("model")?, text("question")?, text("body")?);
    let (attempt, tries) = (number("attempt")?, number("tries")?);
    let usage =
        [number("prompt_tokens")?, number("completion_tokens")?, number("reasoning_tokens")?, number("cached_tokens")?];
    let elapsed_us = column::<UInt64Array>(batch, "elapsed_us", path)?;
    let created = column::<Int64Array>(batch, "created", path)?;
    // The first exports had none.
    let settings = batch.column_by_name("settings").map(|_| text("settings")).transpose()?;
    let broken = |row: usize, what: String| {
        Error::request(format!("{}, row {}: {what}", path.display(), before + row as u64 + 1))
            .with_hint("import files that `livingrag cache export` wrote")
    };
    (0..batch.num_rows())
        .map(|row| {
            let tokens = usage.map(|array| array.is_valid(row).then(|| array.value(row)));
            reply::parse(body.value(row)).map_err(|e| broken(row, e))?;
            Ok(Entry {
                key: CacheKey::from_hex(key.value(row))
                    .ok_or_else(|| broken(row, format!("key is {:?}, expected 64 hex digits", key.value(row))))?,
                base_url: base_url.value(row).to_owned(),
                model: model.value(row).to_owned(),
                settings: settings.map(|s| s.value(row).to_owned()).unwrap_or_default(),
                attempt: attempt.value(row),
                question: question.value(row).to_owned(),
                body: body.value(row).to_owned(),
                usage: Usage {
                    prompt_tokens: tokens[0],
                    completion_tokens: tokens[1],
                    reasoning_tokens: tokens[2],
                    cached_tokens: tokens[3],
                },
                elapsed_us: elapsed_us.value(row),
                tries: tries.value(row),
                created: created.value(row),
            })
        })
        .collect()
}

fn column<'a, T: 'static>(batch: &'a RecordBatch, name: &str, path: &Path) -> Result<&'a T> {
    let array = batch.column_by_name(name);
    array.and_then(|a| a.as_any().downcast_ref()).ok_or_else(|| {
        let found = array.map_or("nothing".to_owned(), |a| format!("{:?}", a.data_type()));
        Error::request(format!("{}: the column {name} holds {found}", path.display()))
            .with_hint("import files that `livingrag cache export` wrote")
    })
}

#[cfg(all(test, feature = "llm"))]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn sample(n: u32) -> Entry {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&n.to_be_bytes());
        Entry {
            key: CacheKey(key),
            base_url: "http://h/v1".into(),
            model: "m".into(),
            settings: format!("{{\"max_tokens\":{n}}}"),
            attempt: n % 3,
            question: format!("q{n} ü"),
            body: format!(r#"{{"choices":[{{"message":{{"content":"{n}"}}}}]}}"#),
            usage: Usage {
                prompt_tokens: Some(n),
                cached_tokens: n.is_multiple_of(2).then_some(1),
                ..Usage::default()
            },
            elapsed_us: 1 << 40,
            tries: 2,
            created: 1_924_992_000,
        }
    }

    #[test]
    fn an_export_imports_again() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let entries: Vec<_> = (0..BATCH + 5).map(sample).collect();
        let cache = Cache::open(&at("a.sqlite")).unwrap();
        cache.add_all(&entries).unwrap();
        assert_eq!(export(&cache, &at("a.parquet")).unwrap(), u64::from(BATCH) + 5);
        assert_eq!(export(&cache, &at("a.parquet")).unwrap_err().exit_code(), 2);

        let other = Cache::open(&at("b.sqlite")).unwrap();
        other.add_all(&entries[..3]).unwrap();
        let imported = import(&other, &at("a.parquet")).unwrap();
        assert_eq!(imported, Imported { rows: u64::from(BATCH) + 5, added: u64::from(BATCH) + 2 });
        assert_eq!(other.page(None, u32::MAX).unwrap(), entries);
        export(&other, &at("b.parquet")).unwrap();
        assert_eq!(std::fs::read(at("a.parquet")).unwrap(), std::fs::read(at("b.parquet")).unwrap());
        let mut files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
        files.retain(|f| f.to_string_lossy().contains("unfinished"));
        assert!(files.is_empty());
    }

    #[test]
    fn files_that_are_no_export() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(&folder.path().join("a.sqlite")).unwrap();
        let path = folder.path().join("x.parquet");
        std::fs::write(&path, "no").unwrap();
        assert!(import(&cache, &path).unwrap_err().to_string().contains("x.parquet"));
        let broken = Entry { body: "{}".into(), ..sample(1) };
        cache.add_all(&[sample(0), broken]).unwrap();
        export(&cache, &folder.path().join("y.parquet")).unwrap();
        let error = import(&cache, &folder.path().join("y.parquet")).unwrap_err();
        assert!(error.to_string().contains("row 2"), "{error}");
    }
}
