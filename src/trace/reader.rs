//! Parquet to rows, and folders to runs.
//!
//! In: trace files, run folders, sweep folders, or several of them. Out: rows and [`Run`]s. Strict: another schema version, a missing
//! or retyped column, an unfinished or inconsistent run are errors that name the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::SCHEMA_VERSION;
use super::manifest::{MANIFEST_FILE, Manifest, Status};
use super::row::TraceRow;
use super::schema::{Row, VERSION_KEY};
use crate::{Error, Result};

/// Name of the trace file in a run folder.
pub const TRACES_FILE: &str = "traces.parquet";

/// Files whose presence makes a folder a run folder, finished or not.
const RUN_FILES: [&str; 3] = [TRACES_FILE, MANIFEST_FILE, "plan.toml"];

/// One run as read from its folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Where it was read from.
    pub folder: PathBuf,
    /// What ran; `None` only for an unfinished run that was asked for.
    pub manifest: Option<Manifest>,
    /// Its rows, in stream order; at least one.
    pub rows: Vec<TraceRow>,
}

impl Run {
    /// The first row, which carries what is equal in all rows of a run.
    pub fn head(&self) -> &TraceRow {
        // Every constructor goes through `check_rows`, which refuses an empty run.
        &self.rows[0]
    }
}

/// Reads one table.
///
/// # Errors
/// When the file is missing, no Parquet, of another schema version, or a column is missing, retyped or null.
pub fn read_rows<R: Row>(path: &Path) -> Result<Vec<R>> {
    let file = File::open(path).map_err(|e| Error::io("read", path, e))?;
    let invalid = |e: &dyn std::error::Error| {
        Error::request(format!("{} is not a readable Parquet file: {e}", path.display())).with_hint(
            "the file may be cut; remove the run's folder and run it again (a sweep: --rerun all --only RUN-ID)",
        )
    };
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| invalid(&e))?;
    let version = builder.schema().metadata().get(VERSION_KEY).map(String::as_str);
    if version != Some(SCHEMA_VERSION.to_string().as_str()) {
        let found = version.map_or("none".to_string(), |v| format!("`{v}`"));
        return Err(Error::request(format!(
            "{} has {VERSION_KEY} {found}, this program reads `{SCHEMA_VERSION}`",
            path.display()
        ))
        .with_hint("use the version of livingrag that wrote the run"));
    }
    let mut rows = Vec::new();
    for batch in builder.with_batch_size(4_096).build().map_err(|e| invalid(&e))? {
        let batch = batch.map_err(|e| invalid(&e))?;
        rows.extend(R::decode(&batch).map_err(|p| {
            Error::request(format!("{}: column `{}` {}", path.display(), p.column, p.text))
                .with_hint("the columns and their types are listed in the trace schema")
        })?);
    }
    Ok(rows)
}

/// The run folders meant by `paths`: each a trace file, a run folder, or a folder of run folders. Sorted within a sweep, each once.
///
/// # Errors
/// When a path is missing or holds no run.
pub fn find_run_folders(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for path in paths {
        let kind = fs::metadata(path)
            .map_err(|e| Error::io("read", path, e).with_hint("`livingrag run` prints the folder of its results"))?;
        if kind.is_file() {
            if !RUN_FILES.iter().any(|name| path.ends_with(name)) {
                return Err(Error::request(format!("{} is no file of a run", path.display()))
                    .with_hint(format!("give a run folder, a folder of them, or a {TRACES_FILE}")));
            }
            // `Path::new("x").parent()` is "", which `join` treats as the current folder.
            folders.push(path.parent().unwrap_or(Path::new("")).to_path_buf());
        } else if is_run_folder(path) {
            folders.push(path.clone());
        } else {
            let inside = runs_inside(path)?;
            if inside.is_empty() {
                return Err(Error::request(format!("{} holds no run", path.display())).with_hint(
                    "give a run folder (with traces.parquet and manifest.json) or a sweep folder of such folders",
                ));
            }
            folders.extend(inside);
        }
    }
    let mut seen = BTreeSet::new();
    folders.retain(|f| seen.insert(fs::canonicalize(f).unwrap_or_else(|_| f.clone())));
    Ok(folders)
}

fn is_run_folder(path: &Path) -> bool {
    RUN_FILES.iter().any(|name| path.join(name).is_file())
}

fn runs_inside(path: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| Error::io("read", path, e))? {
        let folder = entry.map_err(|e| Error::io("read", path, e))?.path();
        if folder.is_dir() && is_run_folder(&folder) {
            folders.push(folder);
        }
    }
    folders.sort();
    Ok(folders)
}

/// Reads one run folder. With `partial` a run without a complete manifest is taken as far as its trace goes.
///
/// # Errors
/// When the run is not finished (unless `partial`), a file cannot be read, or rows and manifest do not fit together.
pub fn read_run(folder: &Path, partial: bool) -> Result<Run> {
    let manifest = folder.join(MANIFEST_FILE).is_file().then(|| Manifest::read(folder)).transpose()?;
    let complete = manifest.as_ref().is_some_and(|m| m.status == Status::Complete);
    if !complete && !partial {
        let out = folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return Err(Error::request(format!("the run in {} is not finished", folder.display())).with_hint(format!(
            "finish it with `livingrag run {} --out {} --resume`",
            folder.join("plan.toml").display(),
            out.display()
        )));
    }
    let path = folder.join(TRACES_FILE);
    let rows = read_rows::<TraceRow>(&path)?;
    check_rows(&path, &rows)?;
    if let Some(manifest) = manifest.as_ref().filter(|_| complete) {
        check_manifest(&path, &rows, manifest)?;
    }
    Ok(Run { folder: folder.to_path_buf(), manifest, rows })
}

/// Reads every run meant by `paths`, in that order. Partial runs without a trace file are left out and returned apart.
///
/// # Errors
/// As [`find_run_folders`] and [`read_run`], and when two folders hold the same run.
pub fn read_runs(paths: &[PathBuf], partial: bool) -> Result<(Vec<Run>, Vec<PathBuf>)> {
    let (mut runs, mut without_trace) = (Vec::new(), Vec::new());
    let mut seen: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in find_run_folders(paths)? {
        if partial && !folder.join(TRACES_FILE).is_file() {
            without_trace.push(folder);
            continue;
        }
        let run = read_run(&folder, partial)?;
        if let Some(first) = seen.insert(run.head().run_id.clone(), folder.clone()) {
            return Err(Error::request(format!(
                "run {} lies in {} and in {}, and would count twice",
                run.head().run_id,
                first.display(),
                folder.display()
            ))
            .with_hint("give one of the two folders"));
        }
        runs.push(run);
    }
    if runs.is_empty() {
        return Err(Error::request("none of the given folders has a traces.parquet")
            .with_hint("finish a run first: `livingrag run <config.toml>`"));
    }
    Ok((runs, without_trace))
}

/// A trace holds one run: equal labels in all rows, stream indices 1, 2, …, each question once.
fn check_rows(path: &Path, rows: &[TraceRow]) -> Result<()> {
    let wrong = |what: String| {
        Error::request(format!("{}: {what}", path.display())).with_hint("a trace file holds one run, in stream order")
    };
    let Some(head) = rows.first() else {
        return Err(wrong("holds no row".into()));
    };
    let mut queries = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        let labels = [
            ("run_id", &head.run_id, &row.run_id),
            ("dataset", &head.dataset, &row.dataset),
            ("method", &head.method, &row.method),
            ("order", &head.order, &row.order),
        ];
        if let Some((name, first, other)) = labels.into_iter().find(|(_, first, other)| first != other) {
            return Err(wrong(format!("column `{name}` is `{first}` in row 0 and `{other}` in row {i}")));
        }
        if row.stream_index as usize != i + 1 {
            return Err(wrong(format!("column `stream_index` is {} in row {i}, not {}", row.stream_index, i + 1)));
        }
        if let Some(first) = queries.insert(&row.query_id, i) {
            return Err(wrong(format!("column `query_id` is `{}` in rows {first} and {i}", row.query_id)));
        }
    }
    Ok(())
}

fn check_manifest(path: &Path, rows: &[TraceRow], manifest: &Manifest) -> Result<()> {
    let wrong = |what: String| {
        Error::request(format!("{} and its manifest differ: {what}", path.display()))
            .with_hint("the two files are not of one run; run the stream again")
    };
    let Some(head) = rows.first() else { return Ok(()) };
    if manifest.rows != rows.len() as u64 {
        return Err(wrong(format!("{} rows, the manifest says {}", rows.len(), manifest.rows)));
    }
    let labels = [
        ("run_id", &head.run_id, &manifest.run_id),
        ("dataset", &head.dataset, &manifest.dataset.name),
        ("method", &head.method, &manifest.method),
        ("order", &head.order, &manifest.order),
    ];
    match labels.into_iter().find(|(_, ours, theirs)| ours != theirs) {
        Some((name, ours, theirs)) => Err(wrong(format!("{name} is `{ours}`, the manifest says `{theirs}`"))),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch, StringArray};
    use arrow_schema::{DataType, Field, Schema};
    use parquet::arrow::ArrowWriter;

    use super::*;
    use crate::trace::fixture;
    use crate::trace::writer::write_rows;

    /// A finished run folder `<root>/<id>` with `n` rows.
    fn run_folder(root: &Path, id: &str, n: u32) -> PathBuf {
        let folder = root.join(id);
        fs::create_dir_all(&folder).unwrap();
        let mut rows: Vec<TraceRow> = (1..=n).map(fixture::row).collect();
        rows.iter_mut().for_each(|r| r.run_id = id.into());
        write_rows(&folder.join(TRACES_FILE), &rows).unwrap();
        let manifest = Manifest { run_id: id.into(), ..fixture::manifest("living", u64::from(n)) };
        manifest.write(&folder).unwrap();
        folder
    }

    fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    /// The file was written by version 0.1.0 from these rows and must stay readable as long as the schema version is 1.
    #[test]
    fn a_file_of_schema_version_1_stays_readable() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces/schema-version-1.parquet");
        let mut rows: Vec<TraceRow> = (1..=4).map(fixture::row).collect();
        // Added since; a file without them reads as null or empty.
        rows.iter_mut().flat_map(|row| &mut row.claims).for_each(|claim| claim.contradiction = None);
        rows.iter_mut().for_each(|row| (row.judge_raw, row.judge_agreement) = (Vec::new(), None));
        assert_eq!(read_rows::<TraceRow>(&path).unwrap(), rows);
    }

    #[test]
    fn a_file_a_run_a_sweep_and_several_name_the_same_runs() {
        let root = tempfile::tempdir().unwrap();
        let b = run_folder(root.path(), "b", 3);
        let a = run_folder(root.path(), "a", 2);
        fs::create_dir(root.path().join("notes")).unwrap();
        let sweep = root.path().to_path_buf();
        let found = |path: &Path| find_run_folders(&[path.to_path_buf()]).unwrap();
        assert_eq!(found(&b.join(TRACES_FILE)), vec![b.clone()]);
        assert_eq!(found(&sweep), [a.clone(), b.clone()]);
        assert_eq!(find_run_folders(&[b.clone(), sweep.clone(), a.clone()]).unwrap(), [b, a]);
        let (runs, left_out) = read_runs(&[sweep], false).unwrap();
        assert_eq!(runs.iter().map(|r| r.rows.len()).collect::<Vec<_>>(), [2, 3]);
        assert!(left_out.is_empty());
        assert!(message(find_run_folders(&[root.path().join("notes")])).ends_with("notes holds no run"));
    }

    /// pitfall 26: a run that was interrupted is refused, not reported as if it were all.
    #[test]
    fn an_unfinished_run_needs_partial() {
        let root = tempfile::tempdir().unwrap();
        let folder = run_folder(root.path(), "a", 3);
        fs::remove_file(folder.join(MANIFEST_FILE)).unwrap();
        let error = read_run(&folder, false).unwrap_err();
        assert!(error.to_string().ends_with("is not finished"), "{error}");
        assert!(error.hint().unwrap().contains("--resume"));
        assert_eq!(read_run(&folder, true).unwrap().rows.len(), 3);

        let mut running = Manifest { run_id: "a".into(), ..fixture::manifest("living", 9) };
        running.status = Status::Running;
        running.write(&folder).unwrap();
        assert!(read_run(&folder, false).is_err());
        assert_eq!(read_run(&folder, true).unwrap().rows.len(), 3);

        let planned = root.path().join("planned");
        fs::create_dir(&planned).unwrap();
        fs::write(planned.join("plan.toml"), "").unwrap();
        let (runs, left_out) = read_runs(&[root.path().to_path_buf()], true).unwrap();
        assert_eq!((runs.len(), left_out), (1, vec![planned]));
    }

    /// pitfall 26: fewer rows than the manifest counts is an error.
    #[test]
    fn rows_and_manifest_must_fit() {
        let root = tempfile::tempdir().unwrap();
        let folder = run_folder(root.path(), "a", 3);
        Manifest { run_id: "a".into(), ..fixture::manifest("living", 4) }.write(&folder).unwrap();
        assert!(message(read_run(&folder, false)).ends_with("3 rows, the manifest says 4"));
        Manifest { run_id: "b".into(), ..fixture::manifest("living", 3) }.write(&folder).unwrap();
        assert!(message(read_run(&folder, false)).ends_with("run_id is `a`, the manifest says `b`"));
    }

    #[test]
    fn a_trace_is_one_run_in_order() {
        let path = Path::new("t.parquet");
        let rows: Vec<TraceRow> = (1..=3).map(fixture::row).collect();
        let changed = |change: fn(&mut Vec<TraceRow>)| {
            let mut rows = rows.clone();
            change(&mut rows);
            message(check_rows(path, &rows))
        };
        assert_eq!(changed(Vec::clear), "t.parquet: holds no row");
        assert_eq!(
            changed(|r| r[2].method = "linear".into()),
            "t.parquet: column `method` is `living` in row 0 and `linear` in row 2"
        );
        assert_eq!(changed(|r| drop(r.remove(1))), "t.parquet: column `stream_index` is 3 in row 1, not 2");
        assert_eq!(
            changed(|r| r[2].query_id = r[0].query_id.clone()),
            "t.parquet: column `query_id` is `q1` in rows 0 and 2"
        );
    }

    #[test]
    fn the_same_run_twice_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let a = run_folder(&root.path().join("one"), "a", 1);
        let b = run_folder(&root.path().join("two"), "a", 1);
        assert!(message(read_runs(&[a, b], false)).ends_with("would count twice"));
    }

    #[test]
    fn wrong_files_are_named_with_the_column() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(TRACES_FILE);
        assert!(message(read_rows::<TraceRow>(&path)).starts_with("cannot read"));
        fs::write(&path, "no parquet").unwrap();
        assert!(message(read_rows::<TraceRow>(&path)).contains("is not a readable Parquet file"));

        let write = |version: Option<&str>, batch: &RecordBatch| {
            let metadata: BTreeMap<_, _> =
                version.map(|v| (VERSION_KEY.to_string(), v.to_string())).into_iter().collect();
            let schema = Arc::new(batch.schema().as_ref().clone().with_metadata(metadata));
            let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), schema.clone(), None).unwrap();
            writer.write(&RecordBatch::try_new(schema, batch.columns().to_vec()).unwrap()).unwrap();
            writer.close().unwrap();
            message(read_rows::<TraceRow>(&path))
        };
        let fields = |kind| Arc::new(Schema::new(vec![Field::new("run_id", kind, true)]));
        let numbers = RecordBatch::try_new(fields(DataType::Int64), vec![Arc::new(Int64Array::from(vec![1]))]).unwrap();
        assert!(write(None, &numbers).contains("has livingrag.schema_version none, this program reads `1`"));
        assert!(write(Some("2"), &numbers).contains("has livingrag.schema_version `2`, this program reads `1`"));
        assert!(write(Some("1"), &numbers).ends_with("column `run_id` is of type Int64, not string"));
        let nulls =
            RecordBatch::try_new(fields(DataType::Utf8), vec![Arc::new(StringArray::from(vec![Some("a"), None]))])
                .unwrap();
        assert!(write(Some("1"), &nulls).ends_with("column `run_id` is null at entry 1"));
        let short = RecordBatch::try_new(fields(DataType::Utf8), vec![Arc::new(StringArray::from(vec!["a"]))]).unwrap();
        assert!(write(Some("1"), &short).ends_with("column `dataset` is missing"));
    }

    #[test]
    fn an_unknown_name_in_a_column_is_an_error() {
        let rows = [fixture::row(1)];
        let mut columns = TraceRow::encode(&rows).unwrap();
        let at = TraceRow::columns().iter().position(|c| c.name == "decision").unwrap();
        columns[at] = Arc::new(StringArray::from(vec!["maybe"]));
        let batch = RecordBatch::try_new(TraceRow::schema(), columns).unwrap();
        let problem = TraceRow::decode(&batch).unwrap_err();
        assert_eq!(problem.column, "decision");
        assert!(problem.text.starts_with("holds an unknown variant `maybe`"), "{}", problem.text);
    }
}
