//! Rows to Parquet.
//!
//! In: rows in stream order. Out: one file that appears whole (see [`super::atomic`]). Equal rows give equal bytes: no time, host or
//! path enters the file.

use std::path::Path;

use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::schema::{Row, VERSION_KEY};
use super::{SCHEMA_VERSION, atomic};
use crate::{Error, Result};

/// Rows a row group holds at most.
pub const ROWS_PER_GROUP: usize = 65_536;

/// Rows turned into columns at a time, which bounds the memory of the conversion.
const ROWS_PER_BATCH: usize = 4_096;

/// What the file says made it; fixed, so that files of two versions can be compared byte by byte.
const CREATED_BY: &str = "livingrag";

/// Writes rows to `path`, atomically.
///
/// # Errors
/// When a float is not finite (names file, column and row), or the folder cannot be written.
pub fn write_rows<R: Row>(path: &Path, rows: &[R]) -> Result<()> {
    write_grouped(path, rows, ROWS_PER_GROUP)
}

fn write_grouped<R: Row>(path: &Path, rows: &[R], rows_per_group: usize) -> Result<()> {
    let schema = R::schema();
    let version = KeyValue::new(VERSION_KEY.to_string(), SCHEMA_VERSION.to_string());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(rows_per_group))
        .set_created_by(CREATED_BY.into())
        .set_key_value_metadata(Some(vec![version]))
        .build();
    let failed =
        |e: parquet::errors::ParquetError| Error::work(format!("cannot write {}", path.display())).with_source(e);
    atomic::write_with(path, |file| {
        let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(failed)?;
        for (i, part) in rows.chunks(ROWS_PER_BATCH).enumerate() {
            let columns = R::encode(part).map_err(|p| {
                Error::work(format!(
                    "cannot write {}: column `{}` {}, in the rows from {}",
                    path.display(),
                    p.column,
                    p.text,
                    i * ROWS_PER_BATCH
                ))
            })?;
            let batch = RecordBatch::try_new(schema.clone(), columns)
                .map_err(|e| Error::work(format!("cannot write {}", path.display())).with_source(e))?;
            writer.write(&batch).map_err(failed)?;
        }
        writer.close().map_err(failed)?;
        Ok(())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;
    use crate::trace::fixture;
    use crate::trace::reader::read_rows;
    use crate::trace::row::{ExperienceRow, TraceRow};

    #[test]
    fn rows_survive_the_round_trip_and_equal_rows_give_equal_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.parquet"), folder.path().join("b.parquet"));
        let rows: Vec<TraceRow> = (1..=5_000).map(fixture::row).collect();
        write_rows(&a, &rows).unwrap();
        write_rows(&b, &rows).unwrap();
        assert_eq!(read_rows::<TraceRow>(&a).unwrap(), rows);
        assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
    }

    #[test]
    fn experiences_survive_the_round_trip_even_none_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("experiences.parquet");
        for n in [0, 3] {
            let rows: Vec<ExperienceRow> = (0..n).map(fixture::experience).collect();
            write_rows(&path, &rows).unwrap();
            assert_eq!(read_rows::<ExperienceRow>(&path).unwrap(), rows);
        }
    }

    #[test]
    fn row_groups_are_bounded_and_the_file_says_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let rows: Vec<TraceRow> = (1..=25).map(fixture::row).collect();
        write_grouped(&path, &rows, 10).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let groups: Vec<i64> = reader.metadata().row_groups().iter().map(|g| g.num_rows()).collect();
        assert_eq!(groups, [10, 10, 5]);
        let file = reader.metadata().file_metadata();
        assert_eq!(file.created_by(), Some("livingrag"));
        let version = file.key_value_metadata().unwrap().iter().find(|kv| kv.key == VERSION_KEY).unwrap();
        assert_eq!(version.value.as_deref(), Some("1"));
        assert_eq!(read_rows::<TraceRow>(&path).unwrap(), rows);
    }

    #[test]
    fn a_float_that_is_not_finite_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let mut row = fixture::row(1);
        row.matches[0].cos_query = f32::NAN;
        let error = write_rows(&path, &[row]).unwrap_err().to_string();
        assert!(error.contains("column `matches.cos_query` is NaN at entry 0"), "{error}");
        assert!(!path.exists());
    }
}
