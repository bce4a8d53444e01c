//! Table 18: the same run under several arrival orders or seeds.
//!
//! In: runs that differ only in order and seed. Out: a row a measure with every value, mean, sample deviation and, beside it, the
//! deviation of `linear`, which has no store: the noise floor.

use crate::analyse::accuracy::{contain, judge};
use crate::analyse::gates::gate_counts;
use crate::analyse::orders::{Spread, spread};
use crate::analyse::reuse::{graph_transfer, template_reuse};
use crate::analyse::tokens::tokens;
use crate::analyse::{has_store, retrieval};
use crate::report::labels::settings;
use crate::report::table::{Column, Table, Value};
use crate::trace::reader::Run;

/// Key, title, decimals, and the value of one run.
type Measure = (&'static str, &'static str, usize, fn(&Run) -> Option<f64>);

const MEASURES: [Measure; 8] = [
    ("contain", "Contain acc. (%)", 2, |r| contain(&r.rows)?.share().percent()),
    ("judge", "Judge acc. (%)", 2, |r| judge(&r.rows)?.share().percent()),
    ("completion_tokens", "Completion tokens", 1, |r| tokens(&r.rows).completion.mean()),
    ("recall_5", "R@5 (%)", 2, |r| Some(100.0 * retrieval::retrieval(&r.rows)?.recall[2])),
    ("graph_transfer", "Graph trans. (%)", 2, |r| graph_transfer(&r.rows).percent().filter(|_| has_store(&r.rows))),
    ("template_reuse", "Template reuse (%)", 2, |r| template_reuse(&r.rows).percent()),
    ("ns_passes", "NS passes", 1, |r| Some(gate_counts(&r.rows)?.gs_checked as f64)),
    ("stored", "Stored", 1, |r| has_store(&r.rows).then(|| r.rows.iter().filter(|row| row.stored).count() as f64)),
];

/// Runs that differ only in order and seed.
struct Replicates<'r> {
    dataset: &'r str,
    method: &'r str,
    settings: &'r str,
    runs: Vec<&'r Run>,
}

/// Every measure over the orders and seeds.
pub fn orders(runs: &[&Run]) -> Option<Table> {
    let groups = replicates(runs);
    let mut replicas: Vec<(&str, u64)> = Vec::new();
    for run in groups.iter().flat_map(|g| &g.runs) {
        if !replicas.contains(&replica(run)) {
            replicas.push(replica(run));
        }
    }
    let several_seeds = replicas.iter().any(|(_, seed)| *seed != replicas[0].1);
    // Datasets have their own settings anyway; a column is worth it only where one method of one dataset ran under several.
    let several_settings = groups
        .iter()
        .any(|a| groups.iter().any(|b| (a.dataset, a.method) == (b.dataset, b.method) && a.settings != b.settings));
    let mut columns = vec![Column::words("dataset", "Dataset"), Column::words("method", "Method")];
    if several_settings {
        columns.push(Column::words("settings", "Settings"));
    }
    columns.push(Column::words("measure", "Measure"));
    for (order, seed) in &replicas {
        let title = if several_seeds { format!("{order}, seed {seed}") } else { (*order).to_string() };
        columns.push(Column::numbers(format!("{order}_{seed}"), title));
    }
    columns.extend([
        Column::numbers("mean", "Mean"),
        Column::numbers("sd", "SD"),
        Column::numbers("linear_sd", "SD of linear"),
    ]);
    let mut table = Table::new("18", "Robustness across orders and seeds", columns);
    for group in &groups {
        for (_, title, digits, measure) in MEASURES {
            let s = over(group, &replicas, measure);
            if s.values.iter().all(Option::is_none) {
                continue;
            }
            let baseline = baseline(&groups, group).and_then(|b| over(b, &replicas, measure).deviation);
            let mut row = vec![Value::text(group.dataset), Value::text(group.method)];
            if several_settings {
                row.push(Value::text(group.settings.chars().take(8).collect::<String>()));
            }
            row.push(Value::text(title));
            row.extend(s.values.iter().chain([&s.mean, &s.deviation, &baseline]).map(|x| Value::number(*x, digits)));
            table.push(row);
        }
    }
    table.note(
        "SD is the sample deviation. What linear varies by has nothing to do with experience: it is the noise floor.",
    );
    table.if_any()
}

/// Groups of at least two runs, in the order of their first run.
fn replicates<'r>(runs: &[&'r Run]) -> Vec<Replicates<'r>> {
    let mut groups: Vec<Replicates> = Vec::new();
    for run in runs.iter().copied() {
        let (dataset, method, settings) = (run.head().dataset.as_str(), run.head().method.as_str(), settings(run));
        let same = |g: &Replicates| (g.dataset, g.method, g.settings) == (dataset, method, settings);
        match groups.iter_mut().find(|g| same(g)) {
            Some(group) => group.runs.push(run),
            None => groups.push(Replicates { dataset, method, settings, runs: vec![run] }),
        }
    }
    groups.retain(|g| g.runs.len() > 1);
    groups
}

fn replica(run: &Run) -> (&str, u64) {
    (&run.head().order, run.head().seed)
}

/// One measure of a group, a value a replica.
fn over(group: &Replicates, replicas: &[(&str, u64)], measure: fn(&Run) -> Option<f64>) -> Spread {
    let run_of = |key: &(&str, u64)| group.runs.iter().find(|r| replica(r) == *key);
    spread(replicas.iter().map(|key| run_of(key).and_then(|r| measure(r))).collect())
}

/// The linear runs of the same dataset: of equal settings, else the only ones there are.
fn baseline<'g, 'r>(groups: &'g [Replicates<'r>], of: &Replicates) -> Option<&'g Replicates<'r>> {
    let linear: Vec<_> = groups.iter().filter(|g| g.method == "linear" && g.dataset == of.dataset).collect();
    let equal = linear.iter().copied().find(|g| g.settings == of.settings);
    equal.or(linear.first().copied().filter(|_| linear.len() == 1))
}
