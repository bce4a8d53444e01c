//! A table as CSV (RFC 4180): every column, raw numbers, empty where missing.
//!
//! In: a [`Table`]. Out: the text of its file.

use super::table::Table;

/// Header and rows.
pub fn render(table: &Table) -> String {
    let mut out = line(table.columns.iter().map(|c| c.key.clone()));
    for row in &table.rows {
        out.push_str(&line(row.iter().map(|cell| cell.value.raw())));
    }
    out
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(|c| quote(&c)).collect();
    cells.join(",") + "\n"
}

fn quote(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::{Column, Value};

    #[test]
    fn cells_are_quoted_and_numbers_are_raw() {
        let mut table = Table::new(
            "t",
            "T",
            vec![
                Column::words("name", "Name"),
                Column::numbers("n", "N"),
                Column::raw("hidden"),
                Column::numbers("x", "X"),
            ],
        );
        table.push(vec![Value::text("a, \"b\""), Value::Count(1806), Value::Percent(0.5), Value::Missing]);
        assert_eq!(render(&table), "name,n,hidden,x\n\"a, \"\"b\"\"\",1806,0.5,\n");
    }
}
