//! Which figures a report has: completion tokens along the stream (figure 2) and the growth and use of the store (figure 9).
//!
//! In: runs in the report's order. Out: one chart a dataset, of its first pair of linear and living, or of its first living run.

use super::figure::{BLUE, Chart, GREY, ORANGE, Point, Series, segment_means};
use super::labels::{datasets, linear_and_living};
use crate::trace::reader::Run;

/// The figures that can be asked for.
pub const IDS: [&str; 2] = ["2", "9"];

/// One figure of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its number in the paper.
    pub id: &'static str,
    /// File name without its folder and ending.
    pub name: String,
    /// What it shows, short.
    pub title: String,
    /// What it shows, whole.
    pub caption: String,
    /// The picture.
    pub svg: String,
}

impl Figure {
    /// Path of the file, from the report's folder.
    pub fn path(&self) -> String {
        format!("figures/{}.svg", self.name)
    }
}

/// The figures that the runs can fill, those named by `wanted` only (all when it is empty).
pub fn build(runs: &[&Run], wanted: &[String]) -> Vec<Figure> {
    let pairs = linear_and_living(runs);
    let asked = |id: &str| wanted.is_empty() || wanted.iter().any(|w| w == id);
    let mut out = Vec::new();
    for (i, dataset) in datasets(runs).into_iter().enumerate() {
        let pair = pairs.iter().find(|(_, living)| living.head().dataset == dataset);
        let living = pair
            .map(|(_, living)| *living)
            .or_else(|| runs.iter().copied().find(|r| r.head().dataset == dataset && r.head().method == "living"));
        let Some(living) = living else { continue };
        if asked("2") {
            out.extend(completion_tokens(pair.map(|(linear, _)| *linear), living, i));
        }
        if asked("9") {
            out.push(store(living, i));
        }
    }
    out
}

/// Figure 2: mean completion tokens in each segment of the stream.
fn completion_tokens(linear: Option<&Run>, living: &Run, number: usize) -> Option<Figure> {
    let curve = |run: &Run, colour| Series {
        name: run.head().method.clone(),
        colour,
        points: segment_means(&run.rows.iter().map(|r| r.completion_tokens.map(f64::from)).collect::<Vec<_>>()),
    };
    let series: Vec<Series> = linear.map(|run| curve(run, BLUE)).into_iter().chain([curve(living, ORANGE)]).collect();
    if series.iter().all(|s| s.points.is_empty()) {
        return None;
    }
    let simulated = super::header::is_simulated(living);
    Some(figure(
        "2",
        "completion-tokens",
        living,
        number,
        format!("Completion tokens, {}{}", living.head().dataset, if simulated { " (simulated reader)" } else { "" }),
        "Mean in each segment of the stream; green where living uses fewer, red where it uses more.",
        Chart {
            title: String::new(),
            unit: "tokens a query".into(),
            queries: living.rows.len(),
            shade: series.len() == 2,
            series,
        },
    ))
}

/// Figure 9: experiences stored and scaffolds used, added up along the stream.
fn store(living: &Run, number: usize) -> Figure {
    let curve = |name: &str, colour, hits: Vec<bool>| Series { name: name.into(), colour, points: added_up(&hits) };
    let series = vec![
        curve("stored", ORANGE, living.rows.iter().map(|r| r.stored).collect()),
        curve("scaffolds used", GREY, living.rows.iter().map(|r| r.scaffold.is_some()).collect()),
    ];
    figure(
        "9",
        "store",
        living,
        number,
        format!("Stored experiences, {}", living.head().dataset),
        "Added up along the stream: experiences stored and queries answered with a scaffold.",
        Chart { title: String::new(), unit: "count".into(), queries: living.rows.len(), shade: false, series },
    )
}

fn figure(
    id: &'static str,
    kind: &str,
    run: &Run,
    number: usize,
    title: String,
    caption: &str,
    chart: Chart,
) -> Figure {
    let svg = Chart { title: title.clone(), ..chart }.svg();
    // The number keeps two datasets apart whose names differ only in signs that a file name cannot hold.
    let name = format!("{kind}-{}-{}", number + 1, file_name(&run.head().dataset));
    Figure { id, name, caption: format!("Figure {id}: {title}. {caption}"), title, svg }
}

/// Running count at up to a hundred places of the stream, from 0.
fn added_up(hits: &[bool]) -> Vec<Point> {
    let n = hits.len();
    let mut points = vec![(0.0, 0.0)];
    let mut count = 0.0;
    let mut next = 1;
    for (i, hit) in hits.iter().enumerate() {
        count += f64::from(u8::from(*hit));
        // Finer in the first tenth, which is drawn wide: every 1/400 there, every 1/100 after.
        let done = (i + 1) as f64 / n as f64;
        let step = if done <= 0.1 { n.div_ceil(400) } else { n.div_ceil(100) };
        if i + 1 >= next || i + 1 == n {
            points.push((done, count));
            next = i + 1 + step;
        }
    }
    points
}

fn file_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_starts_at_nothing_and_ends_at_all() {
        let hits: Vec<bool> = (0..1000).map(|i| i % 4 == 0).collect();
        let points = added_up(&hits);
        assert_eq!((points[0], points[points.len() - 1]), ((0.0, 0.0), (1.0, 250.0)));
        assert!(points.len() < 150);
        assert_eq!(added_up(&[true, true]), [(0.0, 0.0), (0.5, 1.0), (1.0, 2.0)]);
    }
}
