//! The one model of a table that every output format renders.
//!
//! In: values with their kind (count, percentage, tokens, dollars). Out: a [`Table`] that knows its columns, its best values and its
//! notes, and how each value is printed. A format decides only how a table is laid out, never how a number reads.

/// What a value is, and so how it is printed; the raw number stays for CSV.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Not known or not applicable: an en dash, empty in CSV.
    Missing,
    /// Words.
    Text(String),
    /// A whole number, printed with thousands separators.
    Count(u64),
    /// 0 to 100, two decimals.
    Percent(f64),
    /// A relative change or a difference in points, signed, two decimals.
    Change(f64),
    /// Any other number, with this many decimals and thousands separators.
    Number(f64, usize),
    /// US dollars.
    Usd(f64),
    /// A p-value.
    P(f64),
}

impl Value {
    /// A percentage, or missing.
    pub fn percent(value: Option<f64>) -> Self {
        value.map_or(Self::Missing, Self::Percent)
    }

    /// A number with some decimals, or missing.
    pub fn number(value: Option<f64>, digits: usize) -> Self {
        value.map_or(Self::Missing, |x| Self::Number(x, digits))
    }

    /// A signed change, or missing.
    pub fn change(value: Option<f64>) -> Self {
        value.map_or(Self::Missing, Self::Change)
    }

    /// Dollars, or missing.
    pub fn usd(value: Option<f64>) -> Self {
        value.map_or(Self::Missing, Self::Usd)
    }

    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// As a person reads it.
    pub fn print(&self) -> String {
        match self {
            Self::Missing => "–".into(),
            Self::Text(text) => text.clone(),
            Self::Count(n) => thousands(&n.to_string()),
            Self::Percent(x) => format!("{x:.2}"),
            Self::Change(x) => format!("{:+.2}", without_negative_zero(*x)),
            Self::Number(x, digits) => thousands(&format!("{:.*}", *digits, x)),
            Self::Usd(x) if *x != 0.0 && x.abs() < 0.01 => format!("${x:.6}"),
            Self::Usd(x) => format!("${}", thousands(&format!("{x:.2}"))),
            Self::P(p) if *p < 0.0001 => "<0.0001".into(),
            Self::P(p) => format!("{p:.4}"),
        }
    }

    /// As a program reads it: full precision, no separators, empty when missing.
    pub fn raw(&self) -> String {
        match self {
            Self::Missing => String::new(),
            Self::Text(text) => text.clone(),
            Self::Count(n) => n.to_string(),
            Self::Percent(x) | Self::Change(x) | Self::Number(x, _) | Self::Usd(x) | Self::P(x) => x.to_string(),
        }
    }

    fn magnitude(&self) -> Option<f64> {
        match self {
            Self::Missing | Self::Text(_) => None,
            Self::Count(n) => Some(*n as f64),
            Self::Percent(x) | Self::Change(x) | Self::Number(x, _) | Self::Usd(x) | Self::P(x) => Some(*x),
        }
    }
}

fn without_negative_zero(x: f64) -> f64 {
    if x.abs() < 0.005 { 0.0 } else { x }
}

/// Puts a comma between groups of three digits of the whole part.
fn thousands(number: &str) -> String {
    let (sign, rest) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(w, f)| (w, Some(f)));
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// How a value ranks in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mark {
    /// Not ranked.
    #[default]
    None,
    /// Best: bold.
    Best,
    /// Second: underlined.
    Second,
}

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// What stands in it.
    pub value: Value,
    /// How it ranks.
    pub mark: Mark,
}

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name in CSV.
    pub key: String,
    /// Name for people.
    pub title: String,
    /// Words are aligned left, numbers right.
    pub words: bool,
    /// Only in CSV: counts behind a percentage and the like.
    pub csv_only: bool,
}

impl Column {
    /// A column of words.
    pub fn words(key: impl Into<String>, title: impl Into<String>) -> Self {
        Self { key: key.into(), title: title.into(), words: true, csv_only: false }
    }

    /// A column of numbers.
    pub fn numbers(key: impl Into<String>, title: impl Into<String>) -> Self {
        Self { words: false, ..Self::words(key, title) }
    }

    /// A column of numbers for CSV only.
    pub fn raw(key: impl Into<String>) -> Self {
        Self { csv_only: true, ..Self::numbers(key, "") }
    }
}

/// Which end of a column is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Larger.
    Higher,
    /// Smaller.
    Lower,
}

/// One table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Its number in the paper, or a word: what `--tables` names and the CSV file is called after.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows; each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// What a reader must know, a sentence each.
    pub notes: Vec<String>,
}

impl Table {
    /// An empty table.
    pub fn new(id: &str, title: &str, columns: Vec<Column>) -> Self {
        Self { id: id.into(), title: title.into(), columns, rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a row, one value a column.
    pub fn push(&mut self, values: Vec<Value>) {
        debug_assert_eq!(values.len(), self.columns.len(), "table {}", self.id);
        self.rows.push(values.into_iter().map(|value| Cell { value, mark: Mark::None }).collect());
    }

    /// Adds a note, once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// The table, if it has a row.
    pub fn if_any(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }

    /// Marks the best and the second best printed value of a column among rows whose `group` columns are equal; ties share a mark.
    /// A value without a rival is not marked.
    pub fn mark(&mut self, key: &str, better: Better, group: &[&str]) {
        let at = |key: &str| self.columns.iter().position(|c| c.key == key);
        let Some(column) = at(key) else { return };
        let group: Vec<usize> = group.iter().filter_map(|key| at(key)).collect();
        let group_of = |row: &[Cell]| group.iter().map(|i| row[*i].value.print()).collect::<Vec<_>>();
        let groups: Vec<Vec<String>> = self.rows.iter().map(|row| group_of(row)).collect();
        for i in 0..self.rows.len() {
            let mut rivals: Vec<(f64, String)> = (self.rows.iter().zip(&groups))
                .filter(|(_, g)| **g == groups[i])
                .filter_map(|(row, _)| Some((row[column].value.magnitude()?, row[column].value.print())))
                .collect();
            if rivals.len() < 2 {
                continue;
            }
            rivals.sort_by(|(a, _), (b, _)| if better == Better::Higher { b.total_cmp(a) } else { a.total_cmp(b) });
            // Ties are ties as printed: digits nobody sees decide nothing.
            rivals.dedup_by(|(_, a), (_, b)| a == b);
            let printed = self.rows[i][column].value.print();
            self.rows[i][column].mark = match rivals.iter().position(|(_, p)| *p == printed) {
                Some(0) => Mark::Best,
                Some(1) => Mark::Second,
                _ => Mark::None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_the_paper_prints_them() {
        let printed = |v: Value| v.print();
        assert_eq!(printed(Value::Percent(4.3)), "4.30");
        assert_eq!(printed(Value::Number(6038.24, 1)), "6,038.2");
        assert_eq!(printed(Value::Number(-1234567.0, 0)), "-1,234,567");
        assert_eq!(printed(Value::Count(1806)), "1,806");
        assert_eq!(printed(Value::Count(100)), "100");
        assert_eq!(printed(Value::Usd(6.2219)), "$6.22");
        assert_eq!(printed(Value::Usd(0.00061)), "$0.000610");
        assert_eq!(printed(Value::Change(-15.1)), "-15.10");
        assert_eq!(printed(Value::Change(-0.001)), "+0.00");
        assert_eq!(printed(Value::P(0.00001)), "<0.0001");
        assert_eq!(printed(Value::percent(None)), "–");
        assert_eq!(Value::Percent(87.5).raw(), "87.5");
        assert_eq!(Value::Missing.raw(), "");
    }

    fn marks(values: &[Option<f64>], better: Better) -> Vec<Mark> {
        let mut table = Table::new("t", "T", vec![Column::words("g", "G"), Column::numbers("x", "X")]);
        for value in values {
            table.push(vec![Value::text("one group"), Value::percent(*value)]);
        }
        table.mark("x", better, &["g"]);
        table.rows.iter().map(|row| row[1].mark).collect()
    }

    #[test]
    fn best_and_second_are_marked_with_their_ties() {
        use Mark::{Best, None as Plain, Second};
        assert_eq!(
            marks(&[Some(3.0), Some(5.0), None, Some(5.001), Some(3.0), Some(1.0)], Better::Higher),
            [Second, Best, Plain, Best, Second, Plain]
        );
        assert_eq!(marks(&[Some(3.0), Some(5.0)], Better::Lower), [Best, Second]);
        assert_eq!(marks(&[Some(3.0), None], Better::Higher), [Plain, Plain]);
    }
}
