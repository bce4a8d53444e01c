//! Tables 1, 4, 6 and 16: what could be reused, what was, what the gates let through, and whether it was used.
//!
//! In: counts by [`crate::analyse`]. Out: our rows and, for the paper's own streams, the published row beneath.

use crate::analyse::gates::{GateCounts, gate_counts};
use crate::analyse::{coverage as uses, has_store, reuse};
use crate::report::labels::{Label, Labels, datasets};
use crate::report::published::{Published, published};
use crate::report::table::{Column, Table, Value};
use crate::trace::reader::Run;

/// The note of every table that has published rows.
const PUBLISHED_NOTE: &str =
    "Rows marked `published` are the values that the LivingRAG paper prints for the same stream.";

/// A table whose rows are runs, each group of a dataset followed by the published row where there is one.
struct Beside {
    table: Table,
    labels: Labels,
    any: bool,
}

impl Beside {
    /// A `source` column follows the labels when any of the runs replays a published stream.
    fn new(id: &str, title: &str, labels: Labels, runs: &[&Run], numbers: Vec<Column>) -> Self {
        let any = runs.iter().any(|r| published_of(r).is_some());
        let mut columns = labels.columns();
        if any {
            columns.push(Column::words("source", "Source"));
        }
        columns.extend(numbers);
        Self { table: Table::new(id, title, columns), labels, any }
    }

    fn push(&mut self, run: &Run, numbers: Vec<Value>) {
        self.push_labelled(self.labels.cells(run), "ours", numbers);
    }

    fn push_published(&mut self, dataset: &str, numbers: Vec<Value>) {
        self.push_labelled(self.labels.cells_for(dataset), "published", numbers);
        self.table.note(PUBLISHED_NOTE);
    }

    fn push_sum(&mut self, words: &str, numbers: Vec<Value>) {
        self.push_labelled(self.labels.cells_for(words), "ours", numbers);
    }

    fn push_labelled(&mut self, mut row: Vec<Value>, source: &str, numbers: Vec<Value>) {
        if self.any {
            row.push(Value::text(source));
        }
        row.extend(numbers);
        self.table.push(row);
    }
}

fn published_of(run: &Run) -> Option<&'static Published> {
    published(&run.head().dataset, run.rows.len() as u64)
}

/// Runs with a store, of one dataset.
fn of_dataset<'r>(runs: &[&'r Run], dataset: &str) -> Vec<&'r Run> {
    runs.iter().copied().filter(|r| r.head().dataset == dataset).collect()
}

/// Table 1. Opportunities are a property of the stream under `linear`; where there is no linear run, of the first run that knows them.
pub fn opportunities(runs: &[&Run]) -> Option<Table> {
    let mut sources: Vec<&Run> = Vec::new();
    for run in runs.iter().copied().filter(|r| knows_opportunities(r)) {
        let same =
            |other: &&&Run| (&other.head().dataset, &other.head().order) == (&run.head().dataset, &run.head().order);
        match sources.iter().position(|s| same(&s)) {
            None => sources.push(run),
            Some(i) if run.head().method == "linear" && sources[i].head().method != "linear" => sources[i] = run,
            Some(_) => {}
        }
    }
    let labels = Labels::telling_apart(&sources, &[Label::Dataset]);
    let mut columns = vec![Column::words("method", "Measured under")];
    for (key, title) in [("entity", "Entity reuse"), ("graph", "Graph-neigh. reuse"), ("template", "Template reuse")] {
        columns.push(Column::numbers(format!("{key}_percent"), title));
        columns.push(Column::raw(format!("{key}_hits")));
        columns.push(Column::raw(format!("{key}_unknown")));
    }
    columns.push(Column::numbers("of", "Of"));
    let mut out = Beside::new("1", "Reuse opportunities in the stream (%)", labels, &sources, columns);
    for dataset in datasets(&sources) {
        let of_this = of_dataset(&sources, dataset);
        for run in &of_this {
            let found = reuse::opportunities(&run.rows);
            let mut row = vec![Value::text(&run.head().method)];
            for one in [found.entity, found.graph, found.template] {
                row.extend([Value::percent(one.percent()), Value::Count(one.share.hits), Value::Count(one.unknown)]);
            }
            row.push(Value::Count(found.entity.share.of));
            out.push(run, row);
        }
        if let Some(p) = of_this.first().and_then(|r| published_of(r)) {
            let mut row = vec![Value::text("linear")];
            for percent in [p.entity_reuse, p.graph_reuse, p.template_opportunity] {
                row.extend([Value::Percent(percent), Value::Missing, Value::Missing]);
            }
            row.push(Value::Count(p.questions - 1));
            out.push_published(dataset, row);
        }
    }
    out.table.note("Over the queries that have an earlier one: the first query is not counted.");
    out.table.if_any()
}

fn knows_opportunities(run: &Run) -> bool {
    let found = reuse::opportunities(&run.rows);
    [found.entity, found.graph, found.template].iter().any(|o| o.percent().is_some())
}

/// Table 4, for the runs with a store.
pub fn realised(runs: &[&Run]) -> Option<Table> {
    let runs: Vec<&Run> = runs.iter().copied().filter(|r| has_store(&r.rows)).collect();
    let labels = Labels::telling_apart(&runs, &[Label::Dataset]);
    let columns = vec![
        Column::numbers("graph_transfer_percent", "Graph trans."),
        Column::raw("graph_transfer_hits"),
        Column::raw("queries"),
        Column::numbers("template_opportunity_percent", "Template opp."),
        Column::numbers("template_reuse_percent", "Template reuse"),
        Column::raw("template_reuse_hits"),
        Column::numbers("scaffold_uses", "Scaffold uses"),
    ];
    let mut out = Beside::new("4", "Reuse opportunities and realised reuse (%)", labels, &runs, columns);
    for dataset in datasets(&runs) {
        let of_this = of_dataset(&runs, dataset);
        for run in &of_this {
            let (graph, template) = (reuse::graph_transfer(&run.rows), reuse::template_reuse(&run.rows));
            let row = vec![
                Value::percent(graph.percent()),
                Value::Count(graph.hits),
                Value::Count(graph.of),
                Value::percent(reuse::opportunities(&run.rows).template.percent()),
                Value::percent(template.percent()),
                Value::Count(template.hits),
                Value::Count(template.of),
            ];
            out.push(run, row);
        }
        if let Some(p) = of_this.first().and_then(|r| published_of(r)) {
            let row = vec![
                Value::Percent(p.graph_transfer),
                Value::Missing,
                Value::Count(p.questions),
                Value::Percent(p.template_opportunity),
                Value::Percent(p.template_reuse),
                Value::Missing,
                Value::Count(p.scaffold_uses),
            ];
            out.push_published(dataset, row);
        }
    }
    out.table.note("Graph transfer is over all queries, template reuse over the queries that used a scaffold.");
    out.table.if_any()
}

/// Table 6, for the runs with gates. `All` adds up the datasets when each has one run; several runs of a dataset get their mean.
pub fn gates(runs: &[&Run]) -> Option<Table> {
    let counted: Vec<(&Run, GateCounts)> =
        runs.iter().filter_map(|r| gate_counts(&r.rows).map(|counts| (*r, counts))).collect();
    let runs: Vec<&Run> = counted.iter().map(|(run, _)| *run).collect();
    let labels = Labels::telling_apart(&runs, &[Label::Dataset]);
    let columns = vec![
        Column::numbers("questions", "Questions"),
        Column::numbers("ns_pass_percent", "NS pass (%)"),
        Column::numbers("gs_checked", "GS checked"),
        Column::numbers("gs_pass_percent", "GS pass (%)"),
        Column::numbers("gs_reject", "GS reject"),
        Column::numbers("stored", "Stored"),
        Column::raw("no_answer"),
    ];
    let mut out = Beside::new("6", "Novelty and grounding gates", labels, &runs, columns);
    let names = datasets(&runs);
    for dataset in &names {
        let of_this: Vec<&(&Run, GateCounts)> = counted.iter().filter(|(r, _)| r.head().dataset == *dataset).collect();
        for (run, counts) in &of_this {
            out.push(run, gate_cells(*counts));
        }
        for (method, mean) in means_by_method(&of_this) {
            out.push_sum(&format!("{dataset}, {method}: mean of its runs"), mean);
        }
        if let Some(p) = of_this.first().and_then(|(run, _)| published_of(run)) {
            let row = vec![
                Value::Count(p.questions),
                Value::Percent(p.ns_pass),
                Value::Count(p.gs_checked),
                Value::Percent(p.gs_pass),
                Value::Count(p.gs_reject),
                Value::Count(p.stored),
                Value::Missing,
            ];
            out.push_published(dataset, row);
        }
    }
    if names.len() > 1 && names.len() == runs.len() {
        out.push_sum("All", gate_cells(counted.iter().fold(GateCounts::default(), |sum, (_, c)| sum + *c)));
    }
    out.table.note("NS pass is over all questions; GS pass over the candidates that reached the GS check.");
    if runs
        .iter()
        .any(|r| r.manifest.as_ref().is_some_and(|m| m.grounding.as_ref().is_some_and(|g| g.name == "bernoulli")))
    {
        out.table.note("Grounding `bernoulli` is a seeded coin: GS columns show its rate and measure nothing.");
    }
    out.table.if_any()
}

fn gate_cells(c: GateCounts) -> Vec<Value> {
    vec![
        Value::Count(c.questions),
        Value::percent(c.ns_pass().percent()),
        Value::Count(c.gs_checked),
        Value::percent(c.gs_pass().percent()),
        Value::Count(c.gs_rejected),
        Value::Count(c.stored()),
        Value::Count(c.no_answer),
    ]
}

/// Mean counts of each method that has several runs on a dataset; percentages are of the summed counts.
fn means_by_method(runs: &[&(&Run, GateCounts)]) -> Vec<(String, Vec<Value>)> {
    let mut sums: Vec<(String, u64, GateCounts)> = Vec::new();
    for (run, counts) in runs {
        match sums.iter_mut().find(|(method, _, _)| *method == run.head().method) {
            Some((_, n, sum)) => (*n, *sum) = (*n + 1, *sum + *counts),
            None => sums.push((run.head().method.clone(), 1, *counts)),
        }
    }
    let several = sums.into_iter().filter(|(_, n, _)| *n > 1);
    several
        .map(|(method, n, sum)| {
            let mean = |x: u64| Value::Number(x as f64 / n as f64, 1);
            let cells = vec![
                mean(sum.questions),
                Value::percent(sum.ns_pass().percent()),
                mean(sum.gs_checked),
                Value::percent(sum.gs_pass().percent()),
                mean(sum.gs_rejected),
                mean(sum.stored()),
                mean(sum.no_answer),
            ];
            (method, cells)
        })
        .collect()
}

/// Table 16, for the runs with a store.
pub fn coverage(runs: &[&Run]) -> Option<Table> {
    let counted: Vec<(&Run, uses::Coverage)> =
        runs.iter().filter_map(|r| uses::coverage(&r.rows).map(|counts| (*r, counts))).collect();
    let runs: Vec<&Run> = counted.iter().map(|(run, _)| *run).collect();
    let labels = Labels::telling_apart(&runs, &[Label::Dataset]);
    let columns = vec![
        Column::numbers("stored", "Stored"),
        Column::numbers("selections", "Top-K selections"),
        Column::numbers("selected_percent", "Selected (%)"),
        Column::raw("selected"),
        Column::numbers("scaffold_uses", "Scaffold uses"),
        Column::numbers("scaffolded_percent", "Used as scaffold (%)"),
        Column::raw("scaffolded"),
        Column::numbers("max_uses", "Max uses"),
    ];
    let mut out = Beside::new("16", "Use of the stored experiences", labels, &runs, columns);
    for dataset in datasets(&runs) {
        for (run, c) in counted.iter().filter(|(r, _)| r.head().dataset == dataset) {
            let row = vec![
                Value::Count(c.stored),
                Value::Count(c.selections),
                Value::percent(c.selected.percent()),
                Value::Count(c.selected.hits),
                Value::Count(c.scaffold_uses),
                Value::percent(c.scaffolded.percent()),
                Value::Count(c.scaffolded.hits),
                Value::Count(c.max_uses),
            ];
            out.push(run, row);
        }
        if let Some(p) = of_dataset(&runs, dataset).first().and_then(|r| published_of(r)) {
            let row = vec![
                Value::Count(p.stored),
                Value::Count(p.selections),
                Value::Percent(p.selection_coverage),
                Value::Missing,
                Value::Count(p.scaffold_uses),
                Value::Percent(p.scaffold_coverage),
                Value::Missing,
                Value::Count(p.max_uses),
            ];
            out.push_published(dataset, row);
        }
    }
    out.table.note("Percentages are coverage: stored experiences selected, or used as a scaffold, at least once.");
    out.table.if_any()
}
