//! Text vectors beside a dataset: `embeddings/<kind>.parquet` in, a checked table of texts and vectors out, and back.
//!
//! Columns: `text` (string) and `vector` (list of f32, of fixed size or not), a row a distinct text, vectors of Euclidean
//! length 1. Schema metadata: `encoder`, `normalized` = `l2`, `truncated_at_tokens`; where the file was made here also
//! `encoder_fingerprint` and `cut_rows`, the rows whose text was cut.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::Note;
use super::source::file_name;
use crate::error::{Error, Result};

/// How far a vector's Euclidean length may be from 1.
pub const NORM_TOLERANCE: f64 = 1e-3;

/// A table of distinct texts and their L2-normalised vectors.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorTable {
    /// Encoder name from the schema metadata.
    pub encoder: String,
    /// Where the encoder cut over-long texts, in tokens, if the file says.
    pub truncated_at_tokens: Option<usize>,
    /// Width of a vector.
    pub dim: usize,
    /// Distinct texts, in file order.
    pub texts: Vec<String>,
    /// `texts.len() * dim` numbers, row-major.
    pub data: Vec<f32>,
}

impl VectorTable {
    /// Row `i`, `dim` numbers.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.dim..(i + 1) * self.dim]
    }

    /// Lookup by text.
    pub fn index(&self) -> VectorIndex<'_> {
        VectorIndex { table: self, rows: self.texts.iter().enumerate().map(|(i, t)| (t.as_str(), i)).collect() }
    }

    /// Whether two or more texts all have the same vector, which makes every ranking the same.
    pub fn is_constant(&self) -> bool {
        const SAME: f32 = 1e-6;
        let first = &self.data[..self.dim.min(self.data.len())];
        self.texts.len() > 1
            && self
                .data
                .chunks_exact(self.dim.max(1))
                .all(|row| row.iter().zip(first).all(|(a, b)| (a - b).abs() <= SAME))
    }
}

/// Finds the row of a text.
#[derive(Debug, Clone)]
pub struct VectorIndex<'a> {
    table: &'a VectorTable,
    rows: HashMap<&'a str, usize>,
}

impl<'a> VectorIndex<'a> {
    /// The row of `text`.
    pub fn row(&self, text: &str) -> Option<usize> {
        self.rows.get(text).copied()
    }

    /// The vector of `text`.
    pub fn vector(&self, text: &str) -> Option<&'a [f32]> {
        self.row(text).map(|i| self.table.row(i))
    }
}

/// What a vector file says of its making, beside encoder and limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// blake3 of the encoder's files, hex, if the file says.
    pub encoder_fingerprint: Option<String>,
    /// Rows whose text was cut, ascending, if the file says.
    pub cut_rows: Option<Vec<usize>>,
}

fn open(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let file = File::open(path).map_err(|e| Error::io("read", path, e))?;
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| not_parquet(path, e))
}

fn not_parquet(path: &Path, e: parquet::errors::ParquetError) -> Error {
    Error::request(format!("{} cannot be read as Parquet", path.display())).with_source(e)
}

fn damaged(path: &Path, e: arrow_schema::ArrowError) -> Error {
    Error::request(format!("{} is damaged", path.display())).with_source(e)
}

/// The encoder that a vector file names.
///
/// # Errors
/// The file is missing, no Parquet, or names none.
pub fn read_encoder(path: &Path) -> Result<String> {
    Ok(Metadata::of(path, open(path)?.schema())?.encoder)
}

/// The texts of a vector file, in its order, and what made it; the vectors are not read.
///
/// # Errors
/// The file is missing, no Parquet, has no column of texts, or lacks one.
pub fn read_texts(path: &Path) -> Result<(Vec<String>, Origin)> {
    let builder = open(path)?;
    let origin = Metadata::of(path, builder.schema())?.origin;
    let only = [column(path, builder.schema(), "text")?];
    let mask = ProjectionMask::roots(builder.parquet_schema(), only);
    let mut texts = Vec::new();
    for batch in builder.with_projection(mask).build().map_err(|e| not_parquet(path, e))? {
        let batch = batch.map_err(|e| damaged(path, e))?;
        for text in text_cells(path, batch.column(0))? {
            let row = texts.len();
            texts.push(text.ok_or_else(|| row_error(path, row, "has no text"))?.to_owned());
        }
    }
    Ok((texts, origin))
}

/// [`read_with_notes`] without the notes.
pub fn read(path: &Path) -> Result<VectorTable> {
    read_with_notes(path).map(|(table, _)| table)
}

/// Reads a vector file. Of rows with equal text the first stands, which a note counts.
///
/// Errors name file and row (from 0): no such column, a column of another type, a missing value, a vector of another width
/// or with a number that is not finite, a length off 1 by more than [`NORM_TOLERANCE`], no encoder in the metadata.
pub fn read_with_notes(path: &Path) -> Result<(VectorTable, Vec<Note>)> {
    read_with_origin(path).map(|(table, _, notes)| (table, notes))
}

/// [`read_with_notes`], and what made the file.
pub fn read_with_origin(path: &Path) -> Result<(VectorTable, Origin, Vec<Note>)> {
    let builder = open(path)?;
    let metadata = Metadata::of(path, builder.schema())?;
    let text_column = column(path, builder.schema(), "text")?;
    let vector_column = column(path, builder.schema(), "vector")?;

    let mut rows = Rows::new(path);
    for batch in builder.build().map_err(|e| not_parquet(path, e))? {
        let batch = batch.map_err(|e| damaged(path, e))?;
        rows.append(batch.column(text_column), batch.column(vector_column))?;
    }
    let Some(dim) = rows.dim else {
        return Err(Error::request(format!("{} holds no vector", path.display())));
    };

    let mut notes = Vec::new();
    if rows.repeated > 0 {
        notes.push(Note {
            code: "duplicate_vector_text",
            text: format!(
                "{}: {} rows repeat the text of an earlier row and were left out",
                file_name(path),
                rows.repeated
            ),
        });
    }
    let Metadata { encoder, truncated_at_tokens, origin } = metadata;
    Ok((VectorTable { encoder, truncated_at_tokens, dim, texts: rows.texts, data: rows.data }, origin, notes))
}

/// What the schema says about the encoder.
struct Metadata {
    encoder: String,
    truncated_at_tokens: Option<usize>,
    origin: Origin,
}

impl Metadata {
    fn of(path: &Path, schema: &Schema) -> Result<Self> {
        let get = |key: &str| schema.metadata().get(key).map(|v| v.trim());
        let error = |what: String| Error::request(format!("{}: {what}", path.display()));
        let encoder = get("encoder").filter(|e| !e.is_empty()).ok_or_else(|| {
            error("the schema metadata does not name the encoder".into())
                .with_hint("write the key \"encoder\" with the model's name, so that queries can be told to match")
        })?;
        if let Some(other) = get("normalized").filter(|n| *n != "l2") {
            return Err(error(format!("the schema metadata says normalized = \"{other}\" where \"l2\" belongs")));
        }
        let truncated_at_tokens = get("truncated_at_tokens")
            .map(|n| {
                n.parse().map_err(|_| {
                    error(format!("the schema metadata says truncated_at_tokens = \"{n}\" where a number belongs"))
                })
            })
            .transpose()?;
        let cut_rows = get("cut_rows")
            .map(|rows| rows.split_whitespace().map(str::parse).collect::<Result<_, _>>())
            .transpose()
            .map_err(|e: std::num::ParseIntError| {
                error("the schema metadata names cut_rows that are no numbers".into()).with_source(e)
            })?;
        let origin = Origin { encoder_fingerprint: get("encoder_fingerprint").map(str::to_owned), cut_rows };
        Ok(Self { encoder: encoder.to_owned(), truncated_at_tokens, origin })
    }
}

fn column(path: &Path, schema: &Schema, name: &str) -> Result<usize> {
    schema.index_of(name).map_err(|_| {
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        Error::request(format!("{} has no column \"{name}\"; it has {}", path.display(), names.join(", ")))
    })
}

/// The cells of the text column.
fn text_cells<'a>(path: &Path, column: &'a ArrayRef) -> Result<Vec<Option<&'a str>>> {
    Ok(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().iter().collect(),
        DataType::LargeUtf8 => column.as_string::<i64>().iter().collect(),
        DataType::Utf8View => column.as_string_view().iter().collect(),
        other => return Err(wrong_type(path, "text", other, "string")),
    })
}

fn wrong_type(path: &Path, name: &str, found: &DataType, wanted: &str) -> Error {
    Error::request(format!("{}: column \"{name}\" is {found} where {wanted} belongs", path.display()))
}

fn row_error(path: &Path, row: usize, what: &str) -> Error {
    Error::request(format!("{}: row {row} {what}", path.display()))
}

/// Rows read so far.
struct Rows<'a> {
    path: &'a Path,
    /// Rows of the file seen, repeated ones included.
    seen: usize,
    repeated: usize,
    dim: Option<usize>,
    known: HashSet<String>,
    texts: Vec<String>,
    data: Vec<f32>,
}

impl<'a> Rows<'a> {
    fn new(path: &'a Path) -> Self {
        Self { path, seen: 0, repeated: 0, dim: None, known: HashSet::new(), texts: Vec::new(), data: Vec::new() }
    }

    fn append(&mut self, texts: &ArrayRef, vectors: &ArrayRef) -> Result<()> {
        let wrong = |name: &str, found: &DataType, wanted: &str| wrong_type(self.path, name, found, wanted);
        let texts = text_cells(self.path, texts)?;
        let list: Vec<Option<ArrayRef>> = match vectors.data_type() {
            DataType::FixedSizeList(..) => vectors.as_fixed_size_list().iter().collect(),
            DataType::List(_) => vectors.as_list::<i32>().iter().collect(),
            DataType::LargeList(_) => vectors.as_list::<i64>().iter().collect(),
            other => return Err(wrong("vector", other, "a list of f32")),
        };
        for (text, vector) in texts.into_iter().zip(list) {
            let row = self.seen;
            self.seen += 1;
            let text = text.ok_or_else(|| self.error(row, "has no text"))?;
            let vector = vector.ok_or_else(|| self.error(row, "has no vector"))?;
            let values = vector
                .as_primitive_opt::<Float32Type>()
                .ok_or_else(|| wrong("vector", vector.data_type(), "a list of f32"))?;
            self.row(row, text, values)?;
        }
        Ok(())
    }

    fn row(&mut self, row: usize, text: &str, values: &Float32Array) -> Result<()> {
        let dim = *self.dim.get_or_insert(values.len());
        if values.len() != dim {
            return Err(self.error(row, &format!("has a vector of width {} where {dim} belongs", values.len())));
        }
        if dim == 0 {
            return Err(self.error(row, "has an empty vector"));
        }
        let numbers = values.values();
        if values.null_count() > 0 || numbers.iter().any(|x| !x.is_finite()) {
            return Err(self.error(row, "has a number in its vector that is missing or not finite"));
        }
        let norm = numbers.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
        if (norm - 1.0).abs() > NORM_TOLERANCE {
            return Err(self.error(row, &format!("has a vector of length {norm:.4} where 1 belongs")).with_hint(
                "divide each vector by its Euclidean length before writing it; a zero vector has no direction",
            ));
        }
        if self.known.insert(text.to_owned()) {
            self.texts.push(text.to_owned());
            self.data.extend_from_slice(numbers);
        } else {
            self.repeated += 1;
        }
        Ok(())
    }

    fn error(&self, row: usize, what: &str) -> Error {
        row_error(self.path, row, what)
    }
}

/// Writes a table in the form that [`read`] takes; the file appears whole or not at all.
pub fn write(path: &Path, table: &VectorTable) -> Result<()> {
    write_with_origin(path, table, &Origin::default())
}

/// [`write()`], and what made the file.
pub fn write_with_origin(path: &Path, table: &VectorTable, origin: &Origin) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| Error::work(format!("cannot write {}: {e}", path.display()));
    let width = i32::try_from(table.dim).map_err(|e| failed(&e))?;
    let element = Arc::new(Field::new("element", DataType::Float32, false));
    let vectors = FixedSizeListArray::try_new(element, width, Arc::new(Float32Array::from(table.data.clone())), None)
        .map_err(|e| failed(&e))?;
    let mut metadata =
        HashMap::from([("encoder".to_owned(), table.encoder.clone()), ("normalized".to_owned(), "l2".to_owned())]);
    if let Some(tokens) = table.truncated_at_tokens {
        metadata.insert("truncated_at_tokens".to_owned(), tokens.to_string());
    }
    if let Some(fingerprint) = &origin.encoder_fingerprint {
        metadata.insert("encoder_fingerprint".to_owned(), fingerprint.clone());
    }
    if let Some(rows) = &origin.cut_rows {
        let rows: Vec<String> = rows.iter().map(usize::to_string).collect();
        metadata.insert("cut_rows".to_owned(), rows.join(" "));
    }
    let fields =
        vec![Field::new("text", DataType::Utf8, false), Field::new("vector", vectors.data_type().clone(), false)];
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    let texts = StringArray::from_iter_values(&table.texts);
    let batch =
        RecordBatch::try_new(schema.clone(), vec![Arc::new(texts), Arc::new(vectors)]).map_err(|e| failed(&e))?;

    // Another process may be writing the same file.
    let part = path.with_extension(format!("parquet.{}.part", std::process::id()));
    let file = File::create(&part).map_err(|e| Error::io("write", &part, e))?;
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).map_err(|e| failed(&e))?;
    writer.write(&batch).map_err(|e| failed(&e))?;
    let file = writer.into_inner().map_err(|e| failed(&e))?;
    file.sync_all().map_err(|e| Error::io("write", &part, e))?;
    std::fs::rename(&part, path).map_err(|e| Error::io("write", path, e))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, ListBuilder};

    use super::*;

    fn table(texts: &[&str], data: &[f32]) -> VectorTable {
        VectorTable {
            encoder: "e".into(),
            truncated_at_tokens: Some(384),
            dim: data.len() / texts.len(),
            texts: texts.iter().map(|t| (*t).to_owned()).collect(),
            data: data.to_vec(),
        }
    }

    /// Writes any two columns with this metadata and reads them as vectors.
    fn read_columns(text: ArrayRef, vector: ArrayRef, metadata: &[(&str, &str)]) -> Result<(VectorTable, Vec<Note>)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v.parquet");
        let fields = vec![
            Field::new("text", text.data_type().clone(), true),
            Field::new("vector", vector.data_type().clone(), true),
        ];
        let metadata: HashMap<_, _> = metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        let batch = RecordBatch::try_new(schema.clone(), vec![text, vector]).unwrap();
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), schema, None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        read_with_notes(&path)
    }

    fn lists(rows: &[&[f32]]) -> ArrayRef {
        let mut builder = ListBuilder::new(Float32Builder::new());
        for row in rows {
            builder.values().append_slice(row);
            builder.append(true);
        }
        Arc::new(builder.finish())
    }

    fn texts(rows: &[&str]) -> ArrayRef {
        Arc::new(StringArray::from(rows.to_vec()))
    }

    fn message(text: ArrayRef, vector: ArrayRef, metadata: &[(&str, &str)]) -> String {
        let error = read_columns(text, vector, metadata).unwrap_err().to_string();
        error.split_once("v.parquet").unwrap().1.to_owned()
    }

    #[test]
    fn a_written_table_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v.parquet");
        let written = table(&["a", "é"], &[1.0, 0.0, 0.6, 0.8]);
        write(&path, &written).unwrap();
        let read = read(&path).unwrap();
        assert_eq!(read, written);
        assert_eq!(read.index().vector("é"), Some(&[0.6, 0.8][..]));
        assert_eq!(read.index().row("b"), None);
        assert_eq!(read_with_origin(&path).unwrap().1, Origin::default());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no part left behind");
    }

    #[test]
    fn what_made_a_file_reads_back_and_texts_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v.parquet");
        let written = table(&["a", "é", "c"], &[1.0, 0.0, 0.6, 0.8, 0.0, 1.0]);
        for cut_rows in [vec![], vec![0, 2]] {
            let origin = Origin { encoder_fingerprint: Some("f00d".into()), cut_rows: Some(cut_rows) };
            write_with_origin(&path, &written, &origin).unwrap();
            let (read, found, notes) = read_with_origin(&path).unwrap();
            assert_eq!((read, found, notes.len()), (written.clone(), origin.clone(), 0));
            assert_eq!(read_texts(&path).unwrap(), (written.texts.clone(), origin));
        }
        assert_eq!(read_texts(&dir.path().join("x")).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn lists_of_any_kind_are_read_and_the_first_of_equal_texts_stands() {
        let meta = [("encoder", "e")];
        let (read, notes) =
            read_columns(texts(&["a", "b", "a"]), lists(&[&[1.0, 0.0], &[0.0, 1.0], &[0.6, 0.8]]), &meta).unwrap();
        assert_eq!((read.texts, read.data), (vec!["a".to_owned(), "b".into()], vec![1.0, 0.0, 0.0, 1.0]));
        assert_eq!((read.encoder.as_str(), read.truncated_at_tokens), ("e", None));
        assert_eq!(notes[0].text, "v.parquet: 1 rows repeat the text of an earlier row and were left out");

        let mut fixed = FixedSizeListBuilder::new(Float32Builder::new(), 2);
        fixed.values().append_slice(&[0.6, 0.8]);
        fixed.append(true);
        assert_eq!(read_columns(texts(&["a"]), Arc::new(fixed.finish()), &meta).unwrap().0.dim, 2);
    }

    #[test]
    fn errors_name_file_row_and_value() {
        let meta = [("encoder", "e")];
        let m = |rows: &[&[f32]]| message(texts(&["a", "b"]), lists(rows), &meta);
        assert_eq!(m(&[&[1.0, 0.0], &[1.0]]), ": row 1 has a vector of width 1 where 2 belongs");
        assert_eq!(m(&[&[1.0], &[f32::NAN]]), ": row 1 has a number in its vector that is missing or not finite");
        assert_eq!(m(&[&[3.0, 4.0], &[1.0, 0.0]]), ": row 0 has a vector of length 5.0000 where 1 belongs");
        assert_eq!(m(&[&[0.0], &[1.0]]), ": row 0 has a vector of length 0.0000 where 1 belongs");
        assert_eq!(m(&[&[], &[]]), ": row 0 has an empty vector");
        let one = || lists(&[&[1.0]]);
        assert_eq!(message(Arc::new(StringArray::from(vec![None::<&str>])), one(), &meta), ": row 0 has no text");
        assert_eq!(message(one(), one(), &meta), ": column \"text\" is List(Float32) where string belongs");
        assert_eq!(
            message(texts(&["a"]), texts(&["a"]), &meta),
            ": column \"vector\" is Utf8 where a list of f32 belongs"
        );
        assert_eq!(message(texts(&["a"]), one(), &[]), ": the schema metadata does not name the encoder");
        assert_eq!(
            message(texts(&["a"]), one(), &[("encoder", "e"), ("normalized", "no")]),
            ": the schema metadata says normalized = \"no\" where \"l2\" belongs"
        );
        assert_eq!(
            message(texts(&["a"]), one(), &[("encoder", "e"), ("truncated_at_tokens", "x")]),
            ": the schema metadata says truncated_at_tokens = \"x\" where a number belongs"
        );
        assert_eq!(message(texts(&[]), lists(&[]), &meta), " holds no vector");

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v.parquet");
        std::fs::write(&path, "text,vector").unwrap();
        assert!(read(&path).unwrap_err().to_string().ends_with("v.parquet cannot be read as Parquet"));
    }

    #[test]
    fn pitfall_9_constant_vectors_are_told() {
        assert!(table(&["a", "b"], &[0.6, 0.8, 0.6, 0.8]).is_constant());
        assert!(!table(&["a", "b"], &[0.6, 0.8, 0.8, 0.6]).is_constant());
        assert!(!table(&["a"], &[0.6, 0.8]).is_constant());
    }
}
