//! Runs in step do each distinct piece of work once: counted by a backend, reader and scorer that write down what they are asked.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use livingrag::Result;
use livingrag::backend::{
    ActivationStore, Backend, Corpus, Description, Form, Matrix, PassageWeightQuery, PropagationQuery, Reset,
    RetrievalData, ScanQuery, ScanResult, cpu::Cpu,
};
use livingrag::config::{Method, RunConfig};
use livingrag::dataset::Dataset;
use livingrag::gates::grounding::{Candidate, Grounded, GroundingScorer, PairMemo, score_pairwise_sharing};
use livingrag::gates::lexical::containment;
use livingrag::generate::{Generator, Request, Response};
use livingrag::index::{IndexOptions, files};
use livingrag::math::propagation::{Propagated, PropagationParams};
use livingrag::replay::shared::Work;
use livingrag::replay::{Opened, Parts, Run, Session, replay};

/// What was asked, each as text with how often.
#[derive(Default)]
struct Log(Mutex<BTreeMap<String, usize>>);

impl Log {
    fn add(&self, what: String) {
        *self.0.lock().unwrap().entry(what).or_default() += 1;
    }

    fn of(&self, kind: &str) -> BTreeMap<String, usize> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|(what, _)| what.starts_with(kind)).map(|(what, n)| (what.clone(), *n)).collect()
    }
}

struct Watched<T: ?Sized>(Arc<Log>, Box<T>);

impl Backend for Watched<dyn Backend> {
    fn description(&self) -> Description {
        self.1.description()
    }
    fn load(&self, data: Arc<RetrievalData>) -> Result<Box<dyn Corpus>> {
        Ok(Box::new(Watched(Arc::clone(&self.0), self.1.load(data)?)))
    }
    fn similarities(&self, rows: &Matrix, queries: &Matrix) -> Result<Vec<f32>> {
        self.1.similarities(rows, queries)
    }
    fn store_scan(&self, store: &dyn ActivationStore, batch: &[ScanQuery<'_>]) -> Result<Vec<ScanResult>> {
        self.1.store_scan(store, batch)
    }
    fn top_k(&self, batch: &[&[f32]], k: usize) -> Result<Vec<Vec<(u32, f64)>>> {
        self.1.top_k(batch, k)
    }
}

impl Corpus for Watched<dyn Corpus> {
    fn link(&self, queries: &Matrix) -> Result<Vec<Option<(u32, f32)>>> {
        self.1.link(queries)
    }
    fn passage_similarities(&self, queries: &[&[f32]]) -> Result<Vec<Vec<f32>>> {
        queries.iter().for_each(|q| self.0.add(format!("dense {q:?}")));
        self.1.passage_similarities(queries)
    }
    fn propagate(
        &self,
        form: Form,
        params: PropagationParams,
        batch: &[PropagationQuery<'_>],
    ) -> Result<Vec<Propagated>> {
        batch.iter().for_each(|q| self.0.add(format!("propagate {:?} {:?}", q.seeds, q.question)));
        self.1.propagate(form, params, batch)
    }
    fn passage_weights(&self, ratio: f64, weight: f64, batch: &[PassageWeightQuery<'_>]) -> Result<Vec<Vec<f32>>> {
        self.1.passage_weights(ratio, weight, batch)
    }
    fn pagerank(&self, damping: f64, batch: &[Reset<'_>]) -> Result<Vec<Option<Vec<f32>>>> {
        batch.iter().for_each(|r| self.0.add(format!("column {:?} {:?}", r.entities, r.passages)));
        self.1.pagerank(damping, batch)
    }
}

struct WatchedReader(Arc<Log>, Arc<dyn Generator>);

impl Generator for WatchedReader {
    fn name(&self) -> &str {
        self.1.name()
    }
    fn generate(&self, batch: &[Request]) -> Result<Vec<Response>> {
        batch.iter().for_each(|r| self.0.add(format!("request {} {} {}", r.query_id, r.prompt.system, r.prompt.user)));
        self.1.generate(batch)
    }
}

/// Lexical grounding that writes down its pairs.
struct WatchedScorer(Arc<Log>, f64);

impl GroundingScorer for WatchedScorer {
    fn name(&self) -> &str {
        "lexical"
    }
    fn score(&self, batch: &[Candidate]) -> Result<Vec<Grounded>> {
        self.score_sharing(batch, &PairMemo::default())
    }
    fn score_sharing(&self, batch: &[Candidate], known: &PairMemo) -> Result<Vec<Grounded>> {
        score_pairwise_sharing(batch, self.1, known, |pairs| {
            pairs.iter().for_each(|p| self.0.add(format!("pair {p:?}")));
            Ok(pairs.iter().map(|(premise, claim)| containment(premise, claim)).collect())
        })
    }
}

fn configs() -> Vec<RunConfig> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut out = Vec::new();
    for order in ["file", "shuffle:1", "drift"] {
        for method in Method::ALL {
            let sets: Vec<String> = [
                format!("order={order}"),
                format!("method={}", method.as_str()),
                format!("dataset.path={}", root.join("data/demo").display()),
                "replay.timings=false".into(),
            ]
            .into();
            out.push(RunConfig::load(&root.join("configs/demo.toml"), &sets).unwrap());
        }
    }
    // Settings of the store that leave much in common with the others.
    for set in ["experience.beta=0", "gates.tau_nli=0.4", "retrieve.top_k=4"] {
        let mut sets = vec![format!("dataset.path={}", root.join("data/demo").display())];
        sets.extend(["replay.timings=false".to_owned(), set.to_owned()]);
        out.push(RunConfig::load(&root.join("configs/demo.toml"), &sets).unwrap());
    }
    out
}

/// Replays these runs in one session, writing down everything.
fn replayed(configs: &[RunConfig], out: &Path) -> (Arc<Log>, Work) {
    let log = Arc::new(Log::default());
    let dataset = Dataset::open(configs[0].dataset_path().unwrap()).unwrap();
    let options = IndexOptions::from(&configs[0].index);
    let index = Arc::new(files::open_or_build(&dataset, &options, &out.join("indexes"), None).unwrap().0);
    let backend: Box<dyn Backend> = Box::new(Cpu::new(2).unwrap());
    let session = Session::new(dataset, index, Arc::new(Watched(Arc::clone(&log), backend))).unwrap();
    let mut runs: Vec<Run> = configs
        .iter()
        .map(|config| {
            let mut parts = Parts::new(config).unwrap();
            parts.reader = Arc::new(WatchedReader(Arc::clone(&log), Arc::clone(&parts.reader)));
            parts.grounding = Arc::new(WatchedScorer(Arc::clone(&log), config.gates.tau_nli));
            match Run::open(&session, config, parts, out, false).unwrap() {
                Opened::Ready(run) => *run,
                Opened::Finished(path) => panic!("{}", path.display()),
            }
        })
        .collect();
    replay(&session, &mut runs, |_| {}).unwrap();
    assert!(
        session.shared.replies.is_empty() && session.shared.retrievals.is_empty() && session.shared.claimed.is_empty(),
        "nothing is kept at the end"
    );
    for run in runs {
        run.finish(&session).unwrap();
    }
    (log, session.work())
}

#[test]
fn each_distinct_piece_of_work_is_done_once() {
    let configs = configs();
    let folder = tempfile::tempdir().unwrap();
    let (together, work) = replayed(&configs, &folder.path().join("together"));
    // What the same runs ask for alone, one session each.
    let mut alone: BTreeMap<String, usize> = BTreeMap::new();
    let (mut requests, mut columns) = (0, 0);
    for config in &configs {
        let (log, work) = replayed(std::slice::from_ref(config), &folder.path().join("alone"));
        requests += work.requests.done;
        columns += work.ppr_columns;
        for (what, n) in log.of("") {
            *alone.entry(what).or_default() += n;
        }
    }
    for (kind, done) in [
        ("request", work.requests.done),
        ("propagate", work.propagations),
        ("column", work.ppr_columns),
        ("pair", work.pairs.done),
    ] {
        let found = together.of(kind);
        assert!(found.values().all(|&n| n == 1), "{kind}: something was done twice");
        let distinct: Vec<&String> = alone.keys().filter(|what| what.starts_with(kind)).collect();
        assert_eq!(found.keys().collect::<Vec<_>>(), distinct, "{kind}: other work than alone");
        assert_eq!(done as usize, distinct.len(), "{kind}: the counter");
    }
    assert!(together.of("dense").values().all(|&n| n == 1), "dense similarities of a question are computed once");
    // One by one everything is asked, most of it again and again.
    assert_eq!(requests, work.requests.asked);
    assert!(columns > 2 * work.ppr_columns && requests > 2 * work.requests.done, "{columns} {requests} {work:?}");
    // Every store belongs to one run, so all its scans are distinct: one a query for matching, one for novelty where there is a gate.
    let per_run =
        |c: &RunConfig| u64::from(c.method.has_store()) + u64::from(c.method.has_store() && c.method != Method::NoGate);
    let queries = work.queries / configs.len() as u64;
    assert_eq!(work.store_scans, configs.iter().map(per_run).sum::<u64>() * queries);
    // And the files are the same.
    for run in std::fs::read_dir(folder.path().join("alone")).unwrap().map(|e| e.unwrap().path()) {
        for file in ["traces.parquet", "experiences.parquet", "manifest.json", "plan.toml", "order.json"] {
            let Ok(bytes) = std::fs::read(run.join(file)) else { continue };
            let other = folder.path().join("together").join(run.file_name().unwrap()).join(file);
            assert!(bytes == std::fs::read(&other).unwrap(), "{}", other.display());
        }
    }
}
