//! A report as Markdown.
//!
//! In: a [`Report`]. Out: the text of `report.md`: best values bold, second best underlined, missing ones an en dash.

use super::Report;
use super::table::{Cell, Mark, Table};

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut out = format!("# {}\n", report.title);
    if !report.warnings.is_empty() {
        out.push_str("\n## Warnings\n\n");
        report.warnings.iter().for_each(|w| out.push_str(&format!("- {}\n", escape(w))));
    }
    if !report.statements.is_empty() {
        out.push_str("\n## What ran\n\n");
        // Statements are ours and may hold markup.
        report.statements.iter().for_each(|s| out.push_str(&format!("- {s}\n")));
    }
    for table in &report.tables {
        out.push_str(&format!("\n## {}\n\n", heading(table)));
        out.push_str(&table_text(table));
    }
    if !report.figures.is_empty() {
        out.push_str("\n## Figures\n");
    }
    for figure in &report.figures {
        out.push_str(&format!("\n![{}]({})\n\n{}\n", escape(&figure.title), figure.path(), escape(&figure.caption)));
    }
    out
}

/// `Table 6: …` for a table of the paper, else the title alone.
pub fn heading(table: &Table) -> String {
    let of_the_paper = table.id.chars().all(|c| c.is_ascii_digit());
    if of_the_paper { format!("Table {}: {}", table.id, table.title) } else { table.title.clone() }
}

/// One table with its notes.
pub fn table_text(table: &Table) -> String {
    let shown: Vec<usize> = (0..table.columns.len()).filter(|i| !table.columns[*i].csv_only).collect();
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = line(shown.iter().map(|i| escape(&table.columns[*i].title)).collect());
    out.push_str(&line(shown.iter().map(|i| if table.columns[*i].words { ":--" } else { "--:" }.into()).collect()));
    for row in &table.rows {
        out.push_str(&line(shown.iter().map(|i| cell_text(&row[*i])).collect()));
    }
    if !table.notes.is_empty() {
        out.push('\n');
        table.notes.iter().for_each(|note| out.push_str(&format!("- {}\n", escape(note))));
    }
    out
}

fn cell_text(cell: &Cell) -> String {
    let text = escape(&cell.value.print());
    match cell.mark {
        Mark::None => text,
        Mark::Best => format!("**{text}**"),
        Mark::Second => format!("<u>{text}</u>"),
    }
}

/// Escapes what would end a cell or start markup; code spans stay.
fn escape(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}
