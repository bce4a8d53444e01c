//! Tables as aligned plain text, for a terminal.
//!
//! In: [`Table`]s. Out: text without markup; best values carry a `*`.

use super::markdown::heading;
use super::table::{Mark, Table};

/// One table with its notes.
pub fn render(table: &Table) -> String {
    let shown: Vec<usize> = (0..table.columns.len()).filter(|i| !table.columns[*i].csv_only).collect();
    let header: Vec<String> = shown.iter().map(|i| table.columns[*i].title.clone()).collect();
    let body = table.rows.iter().map(|row| {
        let print = |i: &usize| {
            let star = if row[*i].mark == Mark::Best { "*" } else { "" };
            format!("{}{star}", row[*i].value.print())
        };
        shown.iter().map(print).collect::<Vec<_>>()
    });
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(body).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..shown.len()).map(width).collect();

    let mut out = format!("{}\n", heading(table));
    for line in &lines {
        let padded = line.iter().enumerate().map(|(i, cell)| {
            let fill = " ".repeat(widths[i] - cell.chars().count());
            if table.columns[shown[i]].words { format!("{cell}{fill}") } else { format!("{fill}{cell}") }
        });
        out.push_str(format!("  {}", padded.collect::<Vec<_>>().join("  ")).trim_end());
        out.push('\n');
    }
    for note in &table.notes {
        out.push_str(&format!("  {note}\n"));
    }
    out
}
