//! Line charts along the stream, as SVG written by hand.
//!
//! In: one or two series of values a query. Out: a small chart, one column wide, whose first tenth of the stream is drawn wide to show
//! the start. Linear is blue and living orange; the area between them is green where living is lower and red where it is higher.

use std::fmt::Write;

/// Colours that stay apart for colour-blind readers (Wong 2011, Nature Methods 8, 441).
pub const BLUE: &str = "#0072b2";
/// As [`BLUE`].
pub const ORANGE: &str = "#e69f00";
/// As [`BLUE`].
pub const GREY: &str = "#555555";
const GREEN: &str = "#009e73";
const RED: &str = "#d55e00";

/// 3.03 in at 72 points an inch.
const WIDTH: f64 = 218.0;
const HEIGHT: f64 = 140.0;
const LEFT: f64 = 34.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 26.0;

/// Share of the width that the first tenth of the stream takes.
const START_WIDTH: f64 = 0.3;
/// Segments of the first tenth, and of the rest.
const START_SEGMENTS: usize = 5;
const REST_SEGMENTS: usize = 18;

/// A point of a curve: position in the stream from 0 to 1, and value.
pub type Point = (f64, f64);

/// One curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its colour.
    pub colour: &'static str,
    /// Its points, left to right.
    pub points: Vec<Point>,
}

/// A chart of one or more curves.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What stands above it.
    pub title: String,
    /// What the values are.
    pub unit: String,
    /// Queries of the stream.
    pub queries: usize,
    /// The curves. Exactly two of equal positions get the area between them.
    pub series: Vec<Series>,
    /// Whether to colour the area between the first two.
    pub shade: bool,
}

/// Mean of the known values in each segment of the stream, placed at the segment's middle. Segments without a value are left out.
pub fn segment_means(values: &[Option<f64>]) -> Vec<Point> {
    let n = values.len() as f64;
    let start = (0..=START_SEGMENTS).map(|i| 0.1 * i as f64 / START_SEGMENTS as f64);
    let rest = (1..=REST_SEGMENTS).map(|i| 0.1 + 0.9 * i as f64 / REST_SEGMENTS as f64);
    let edges: Vec<usize> = start.chain(rest).map(|share| (share * n).round() as usize).collect();
    edges
        .windows(2)
        .filter_map(|edge| {
            let known: Vec<f64> = values[edge[0]..edge[1]].iter().flatten().copied().collect();
            let mean = crate::analyse::statistics::mean(&known)?;
            Some(((edge[0] + edge[1]) as f64 / 2.0 / n, mean))
        })
        .collect()
}

/// Horizontal place of a position in the stream: the first tenth is drawn wide.
fn across(position: f64) -> f64 {
    let share = if position <= 0.1 {
        START_WIDTH * position / 0.1
    } else {
        START_WIDTH + (1.0 - START_WIDTH) * (position - 0.1) / 0.9
    };
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

impl Chart {
    /// The SVG text.
    pub fn svg(&self) -> String {
        let highest = self.series.iter().flat_map(|s| s.points.iter().map(|p| p.1)).fold(0.0, f64::max);
        let (top, ticks) = axis(highest);
        let up = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out, top, ticks, &up);
        out
    }

    fn write(&self, out: &mut String, top: f64, ticks: u32, up: &dyn Fn(f64) -> f64) -> std::fmt::Result {
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}pt" height="{HEIGHT}pt" font-family="Helvetica, Arial, sans-serif" font-size="6.5" fill="{GREY}">"#
        )?;
        writeln!(out, r##"<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>"##)?;
        writeln!(out, r##"<text x="{LEFT}" y="9" font-size="7.5" fill="#111111">{}</text>"##, escape(&self.title))?;
        let (x0, x1, bottom) = (across(0.0), across(1.0), up(0.0));
        writeln!(
            out,
            r##"<rect x="{x0:.1}" y="{TOP:.1}" width="{:.1}" height="{:.1}" fill="#f4f4f4"/>"##,
            across(0.1) - x0,
            bottom - TOP
        )?;
        for i in 0..=ticks {
            let value = top * f64::from(i) / f64::from(ticks);
            let y = up(value);
            writeln!(out, r##"<path d="M{x0:.1} {y:.1}H{x1:.1}" stroke="#dddddd" stroke-width="0.5"/>"##)?;
            writeln!(
                out,
                r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 3.0,
                y + 2.2,
                tick(value)
            )?;
        }
        for position in [0.0, 0.1, 0.4, 0.7, 1.0] {
            let query = (position * self.queries as f64).round();
            writeln!(
                out,
                r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{query}</text>"#,
                across(position),
                HEIGHT - BOTTOM + 9.0
            )?;
        }
        let middle = (x0 + x1) / 2.0;
        writeln!(
            out,
            r#"<text x="{middle:.1}" y="{:.1}" text-anchor="middle">query in the stream (first tenth wide) · {}</text>"#,
            HEIGHT - 5.0,
            escape(&self.unit)
        )?;
        if let (true, [a, b]) = (self.shade, self.series.as_slice()) {
            shade(out, &a.points, &b.points, up)?;
        }
        let mut legend = LEFT;
        for series in &self.series {
            let line: Vec<String> =
                series.points.iter().map(|(x, y)| format!("{:.2},{:.2}", across(*x), up(*y))).collect();
            writeln!(
                out,
                r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="1.2" stroke-linejoin="round"/>"#,
                line.join(" "),
                series.colour
            )?;
            writeln!(
                out,
                r#"<path d="M{legend:.1} 15.5h9" stroke="{}" stroke-width="1.6"/><text x="{:.1}" y="17.8">{}</text>"#,
                series.colour,
                legend + 11.0,
                escape(&series.name)
            )?;
            legend += 18.0 + 3.6 * series.name.chars().count() as f64;
        }
        writeln!(out, "</svg>")
    }
}

/// Fills between two curves of equal positions, cut where they cross.
fn shade(out: &mut String, a: &[Point], b: &[Point], up: &dyn Fn(f64) -> f64) -> std::fmt::Result {
    let same_positions = a.len() == b.len() && a.iter().zip(b).all(|(p, q)| p.0 == q.0);
    if !same_positions {
        return Ok(());
    }
    for i in 1..a.len() {
        let (left, right) = (b[i - 1].1 - a[i - 1].1, b[i].1 - a[i].1);
        if left * right < 0.0 {
            // The crossing is taken on the page, where the curves are straight between two points.
            let share = left / (left - right);
            let x = across(a[i - 1].0) + share * (across(a[i].0) - across(a[i - 1].0));
            let y = up(a[i - 1].1 + share * (a[i].1 - a[i - 1].1));
            polygon(out, left, &[at(a[i - 1], up), at(b[i - 1], up), (x, y)])?;
            polygon(out, right, &[(x, y), at(b[i], up), at(a[i], up)])?;
        } else {
            let sign = if left == 0.0 { right } else { left };
            polygon(out, sign, &[at(a[i - 1], up), at(b[i - 1], up), at(b[i], up), at(a[i], up)])?;
        }
    }
    Ok(())
}

fn at(point: Point, up: &dyn Fn(f64) -> f64) -> (f64, f64) {
    (across(point.0), up(point.1))
}

fn polygon(out: &mut String, living_minus_linear: f64, corners: &[(f64, f64)]) -> std::fmt::Result {
    let colour = if living_minus_linear < 0.0 { GREEN } else { RED };
    let points: Vec<String> = corners.iter().map(|(x, y)| format!("{x:.2},{y:.2}")).collect();
    writeln!(out, r#"<polygon points="{}" fill="{colour}" fill-opacity="0.22"/>"#, points.join(" "))
}

/// Upper end of the value axis and its number of steps: the smallest of 1, 2, 2.5, 4, 5, 8 times a power of ten that is not below
/// `highest`, cut so that every step is a round number; (1, 5) for nothing.
fn axis(highest: f64) -> (f64, u32) {
    if highest <= 0.0 {
        return (1.0, 5);
    }
    let power = 10f64.powf(highest.log10().floor());
    let ends = [(1.0, 5), (2.0, 4), (2.5, 5), (4.0, 4), (5.0, 5), (8.0, 4)];
    let (end, steps) = ends.into_iter().find(|(end, _)| end * power >= highest).unwrap_or((10.0, 5));
    (end * power, steps)
}

fn tick(value: f64) -> String {
    if value == value.round() { format!("{value:.0}") } else { format!("{value:.2}").trim_end_matches('0').to_string() }
}

/// Escapes text for SVG.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_finer_in_the_first_tenth() {
        let values: Vec<Option<f64>> = (0..1000).map(|i| Some(f64::from(i))).collect();
        let points = segment_means(&values);
        assert_eq!(points.len(), 23);
        assert_eq!(points[0], (0.01, 9.5), "queries 1 to 20");
        assert_eq!(points[5], (0.125, 124.5), "queries 101 to 150");
        assert_eq!(segment_means(&[None, Some(2.0)]), [(0.75, 2.0)]);
    }

    #[test]
    fn the_axis_ends_and_steps_at_round_numbers() {
        for (highest, end, steps) in [
            (0.0, 1.0, 5),
            (906.4, 1000.0, 5),
            (1067.6, 2000.0, 4),
            (2223.8, 2500.0, 5),
            (549.0, 800.0, 4),
            (3.0, 4.0, 4),
            (0.02, 0.02, 4),
        ] {
            let found = axis(highest);
            assert!((found.0 - end).abs() < 1e-12 && found.1 == steps, "{highest}: {found:?}");
        }
    }

    #[test]
    fn the_area_is_green_where_living_is_lower_and_red_where_higher() {
        let curve = |name: &str, values: [f64; 3]| Series {
            name: name.into(),
            colour: BLUE,
            points: [0.0, 0.5, 1.0].into_iter().zip(values).collect(),
        };
        let chart = Chart {
            title: "a < b".into(),
            unit: "tokens".into(),
            queries: 10,
            series: vec![curve("linear", [4.0, 4.0, 4.0]), curve("living", [2.0, 6.0, 6.0])],
            shade: true,
        };
        let svg = chart.svg();
        let areas: Vec<&str> = svg.lines().filter(|l| l.starts_with("<polygon")).collect();
        assert_eq!(areas.len(), 3);
        assert!(areas[0].contains(GREEN) && areas[1].contains(RED) && areas[2].contains(RED));
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }
}
