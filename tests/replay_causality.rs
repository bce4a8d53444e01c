//! Causality of the replay (spec 5): a row depends on nothing that comes later, nor on how the work was cut into batches.
//!
//! Rows are compared as JSON, byte for byte, without the run's id (it names the dataset's fingerprint, which any change of the
//! dataset changes) and, where later queries differ, without `scaffold_template_tfidf` and `reuse_template`: spec 8 fits TF-IDF on
//! the whole stream's masked questions, so these two describe the stream as a whole and are the only columns that may change.

#![allow(clippy::unwrap_used)]

mod support;

use livingrag::config::{GroundingKind, Method, RunConfig, TemplateSimilarity};
use livingrag::gates::Decision;
use livingrag::index::IndexOptions;
use livingrag::math::sparse::{SparseVector, cosine};
use livingrag::replay::Session;
use livingrag::trace::row::{ExperienceRow, TraceRow};
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::test_runner::RngSeed;
use support::repository;
use support::world::{self, METHODS, NAMES, Outcome, PASSAGES, Query, TEMPLATES, config, many, real, replay, session};

const LAGS: [u32; 4] = [1, 2, 4, 16];

/// A row as bytes, without the run's id.
fn bytes(row: &TraceRow) -> String {
    serde_json::to_string(&TraceRow { run_id: String::new(), ..row.clone() }).unwrap()
}

/// As [`bytes`], without what spec 8 computes from the whole stream.
fn causal(row: &TraceRow) -> String {
    bytes(&TraceRow { scaffold_template_tfidf: None, reuse_template: None, ..row.clone() })
}

fn stored(experience: &ExperienceRow) -> String {
    serde_json::to_string(&ExperienceRow { run_id: String::new(), ..experience.clone() }).unwrap()
}

/// The rows and the store of two runs are the same bytes.
fn assert_same(a: &Outcome, b: &Outcome, what: &str) {
    assert_eq!(a.rows.len(), b.rows.len(), "{what}");
    for (x, y) in a.rows.iter().zip(&b.rows) {
        assert_eq!(bytes(x), bytes(y), "{what}");
    }
    let store = |o: &Outcome| o.experiences.iter().map(stored).collect::<Vec<_>>();
    assert_eq!(store(a), store(b), "{what}");
}

/// Every method under every lag.
fn every_run(change: impl Fn(&mut RunConfig)) -> Vec<RunConfig> {
    let mut configs: Vec<RunConfig> =
        LAGS.iter().flat_map(|&lag| METHODS.iter().map(move |&method| config(method, lag))).collect();
    configs.iter_mut().for_each(change);
    configs
}

fn open(queries: &[Query], templates: bool) -> Session {
    let folder = world::scratch();
    world::write(folder.path(), queries, templates);
    session(folder.path(), &IndexOptions::default(), 2)
}

fn bernoulli(config: &mut RunConfig) {
    config.gates.grounding.kind = GroundingKind::Bernoulli;
    config.gates.grounding.p = 0.7;
}

/// What happens to the queries after place t.
#[derive(Debug, Clone)]
enum Change {
    Drop(usize),
    Append(Vec<Query>),
    Replace(Vec<Query>),
    Gold,
    Vectors,
    Rotate(usize),
    Reverse,
    Insert(Vec<Query>),
}

impl Change {
    fn apply(&self, later: &[Query]) -> Vec<Query> {
        let mut out = later.to_vec();
        match self {
            Self::Drop(n) => out.truncate(later.len() - n % (later.len() + 1)),
            Self::Append(more) => out.extend(more.iter().cloned()),
            Self::Replace(other) => out.clone_from(other),
            Self::Gold => out.iter_mut().for_each(|q| {
                q.gold = q.gold.iter().map(|g| (g + 5) % PASSAGES).collect();
                q.answer = (q.answer + 1) % NAMES.len();
            }),
            Self::Vectors => out.iter_mut().for_each(|q| q.salt += 1),
            Self::Rotate(n) => out.rotate_left(n % later.len()),
            Self::Reverse => out.reverse(),
            Self::Insert(before) => out = before.iter().chain(later).cloned().collect(),
        }
        out
    }
}

/// Queries with these numbers: each number once in a stream, so that no two questions have one text.
fn queries(count: std::ops::Range<usize>, first: u32) -> impl Strategy<Value = Vec<Query>> {
    let places = |n: usize, most: usize| subsequence((0..n).collect::<Vec<_>>(), 0..=most);
    let one = (0..TEMPLATES, places(NAMES.len(), 2), places(PASSAGES, 2), 0..NAMES.len());
    proptest::collection::vec(one, count).prop_map(move |list| {
        let numbered = list.into_iter().zip(first..);
        let query =
            |((template, names, gold, answer), number)| Query { number, template, names, gold, answer, salt: 0 };
        numbered.map(query).collect()
    })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (1..20_usize).prop_map(Change::Drop),
        queries(1..6, 500).prop_map(Change::Append),
        queries(1..6, 500).prop_map(Change::Replace),
        Just(Change::Gold),
        Just(Change::Vectors),
        (1..5_usize).prop_map(Change::Rotate),
        Just(Change::Reverse),
        queries(1..4, 500).prop_map(Change::Insert),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, rng_seed: RngSeed::Fixed(2), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn later_queries_never_change_an_earlier_row(
        earlier in queries(1..20, 100),
        later in queries(1..8, 300),
        change in change(),
        templates in any::<bool>(),
        coin in any::<bool>(),
    ) {
        let configs = every_run(|c| if coin { bernoulli(c) });
        let stream = |later: &[Query]| earlier.iter().chain(later).cloned().collect::<Vec<_>>();
        let before = replay(&open(&stream(&later), templates), &configs);
        let after = replay(&open(&stream(&change.apply(&later)), templates), &configs);
        let t = earlier.len();
        for (a, b) in before.iter().zip(&after) {
            for (x, y) in a.rows[..t].iter().zip(&b.rows[..t]) {
                prop_assert_eq!(causal(x), causal(y), "{} lag {}", x.method, x.lag);
            }
            let store = |o: &Outcome| {
                o.experiences.iter().filter(|e| e.stream_index as usize <= t).map(stored).collect::<Vec<_>>()
            };
            prop_assert_eq!(store(a), store(b));
        }
    }
}

/// A later question without a template vector must not turn `auto` to tokens for the earlier ones: it is an error.
#[test]
fn a_missing_template_vector_is_an_error() {
    let folder = world::scratch();
    let queries = many(12);
    let (earlier, later): (Vec<Query>, Vec<Query>) = queries.into_iter().partition(|q| q.template != 2);
    assert!(!later.is_empty());
    world::write(folder.path(), &earlier, true);
    let templates = folder.path().join("embeddings/templates.parquet");
    let known = std::fs::read(&templates).unwrap();
    world::write(folder.path(), &[earlier, later].concat(), false);
    std::fs::write(&templates, known).unwrap();
    let session = session(folder.path(), &IndexOptions::default(), 1);
    let error = session.template_similarity(TemplateSimilarity::Auto).unwrap_err();
    assert!(
        error.to_string().contains("no vector for") && error.to_string().contains("[ENTITY] build before"),
        "{error}"
    );
    assert_eq!(session.template_similarity(TemplateSimilarity::Tokens).unwrap(), TemplateSimilarity::Tokens);
}

/// `replay.limit` drops later queries, too.
#[test]
fn a_limit_changes_no_row_before_it() {
    let session = open(&many(40), true);
    let whole = replay(&session, &every_run(bernoulli));
    for limit in [1, 17, 30] {
        let cut = replay(
            &session,
            &every_run(|c| {
                bernoulli(c);
                c.replay.limit = limit;
            }),
        );
        for (a, b) in whole.iter().zip(&cut) {
            assert_eq!(b.rows.len(), limit as usize);
            for (x, y) in a.rows.iter().zip(&b.rows) {
                assert_eq!(causal(x), causal(y), "{} lag {}", x.method, x.lag);
            }
        }
    }
}

/// The block size is how the work is cut, never what comes out.
#[test]
fn block_sizes_give_equal_rows() {
    let session = open(&many(48), false);
    for lag in [3, 4, 16] {
        for order in ["file", "shuffle:5"] {
            let of = |block: u32| {
                let configs = METHODS.map(|method| {
                    let mut config = config(method, lag);
                    bernoulli(&mut config);
                    config.order = order.into();
                    config.replay.block = block;
                    config
                });
                replay(&session, &configs)
            };
            let whole = of(0);
            for block in [1, 2, 3, lag] {
                for (a, b) in whole.iter().zip(of(block)) {
                    assert_eq!(a.rows[0].run_id, b.rows[0].run_id);
                    assert_same(a, &b, &format!("{} lag {lag} block {block} {order}", a.rows[0].method));
                }
            }
        }
    }
}

/// Runs that advance together share retrievals; each has the rows it has alone, on a session of its own.
#[test]
fn runs_together_give_the_rows_of_each_alone() {
    let queries = many(32);
    let mut configs: Vec<RunConfig> = METHODS.iter().map(|&m| config(m, 4)).collect();
    // The same method with other settings, seeds and lags beside it.
    for (i, change) in [
        (|c| c.seed = 1) as fn(&mut RunConfig),
        |c| c.replay.lag = 1,
        |c| c.retrieve.passage_ratio = 0.05,
        |c| c.experience.beta = 0.6,
        |c| c.order = "reverse".into(),
        |c| c.replay.limit = 9,
    ]
    .into_iter()
    .enumerate()
    {
        let mut other = config(METHODS[i % 2], 4);
        bernoulli(&mut other);
        change(&mut other);
        configs.push(other);
    }
    let together = replay(&open(&queries, true), &configs);
    for (config, outcome) in configs.iter().zip(&together) {
        let alone = replay(&open(&queries, true), std::slice::from_ref(config));
        assert_same(outcome, &alone[0], &outcome.rows[0].run_id);
    }
}

/// Equation 7 written again from the tables alone: the query's seeds, the stored map, and the questions' vectors in 64 bits.
fn similarity(session: &Session, alpha: f64, row: &TraceRow, experience: &ExperienceRow) -> f64 {
    let question = |id: &str| session.dataset.questions.iter().position(|q| q.id == id).unwrap();
    let entity = |name: &str| session.index().entities.iter().position(|e| e == name).unwrap() as u32;
    let vectors = &session.index().question_vectors;
    let (a, b) = (vectors.row(question(&row.query_id)), vectors.row(question(&experience.query_id)));
    let query: f64 = a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
    let map = |cells: Vec<(&str, f32)>| {
        SparseVector::from_assignments(cells.into_iter().map(|(name, w)| (entity(name), f64::from(w))))
    };
    let base = map(row.seeds.iter().map(|s| (s.entity.as_str(), s.score)).collect());
    let kept = map(experience.activation.iter().map(|c| (c.entity.as_str(), c.weight)).collect());
    alpha * query + (1.0 - alpha) * cosine(&base, &kept)
}

/// What a row says of the store is what spec 5 lets it see: matches and scaffold among the experiences of queries <= t - W, novelty
/// against everything committed before t.
fn assert_sees_what_it_may(session: &Session, config: &RunConfig, run: &Outcome) {
    const TOLERANCE: f64 = 1e-5;
    let e = &config.experience;
    for row in &run.rows {
        let upto = |last: i64| run.experiences.iter().filter(|x| i64::from(x.stream_index) <= last).count();
        let (t, lag) = (i64::from(row.stream_index), i64::from(config.replay.lag));
        let with_store = config.method.has_store();
        let (visible, committed) = (if with_store { upto(t - lag) } else { 0 }, upto(t - 1));
        let what = format!("{} lag {lag} t {t}", row.method);
        assert_eq!((row.store_visible as usize, row.store_committed as usize), (visible, committed), "{what}");
        assert!(row.matches.iter().all(|m| (m.experience as usize) < visible), "{what}");
        assert!(row.scaffold.is_none_or(|s| (s as usize) < visible), "{what}");
        assert_eq!(row.scaffold.is_some(), visible > 0 && config.method != Method::NoScaffold, "{what}");

        let scores: Vec<f64> =
            run.experiences[..committed].iter().map(|x| similarity(session, e.alpha, row, x)).collect();
        let fuses = with_store && config.method != Method::NoFusion && !row.seeds.is_empty();
        assert_eq!(row.matches.len(), if fuses { visible.min(e.top_k as usize) } else { 0 }, "{what}");
        let mut best = scores[..visible].to_vec();
        best.sort_by(|a, b| b.total_cmp(a));
        for (m, want) in row.matches.iter().zip(best) {
            assert!((f64::from(m.score) - want).abs() < TOLERANCE, "{what}: {m:?}, expected score {want}");
            assert!((scores[m.experience as usize] - want).abs() < TOLERANCE, "{what}");
        }

        let gated = with_store && config.method != Method::NoGate;
        assert_eq!(row.novelty.is_some(), gated && row.decision != Decision::NoAnswer, "{what}");
        let Some(novelty) = row.novelty else { continue };
        let most = scores.iter().copied().reduce(f64::max);
        let expected = 1.0 - most.unwrap_or(0.0);
        assert!((f64::from(novelty) - expected).abs() < TOLERANCE, "{what}: novelty {novelty}, expected {expected}");
        assert_eq!(row.novelty_nearest.is_some(), committed > 0, "{what}");
        assert!(row.novelty_nearest.is_none_or(|k| (scores[k as usize] - most.unwrap()).abs() < TOLERANCE), "{what}");
        // Grounding is looked at only where novelty passes.
        assert_eq!(row.grounding.is_some(), f64::from(novelty) >= config.gates.tau_novel, "{what}");
        assert!(row.grounding.is_some() || (row.claims.is_empty() && row.grounding_model.is_none()), "{what}");
    }
}

/// Also shows that the world of these tests reaches every branch: a test of equal rows that never fuse would say nothing.
#[test]
fn every_row_sees_what_its_lag_allows_and_the_gates_have_work() {
    let session = open(&many(48), false);
    for coin in [false, true] {
        let configs = every_run(|c| {
            if coin {
                bernoulli(c)
            }
        });
        let runs = replay(&session, &configs);
        for (config, run) in configs.iter().zip(&runs) {
            assert_sees_what_it_may(&session, config, run);
        }
        if !coin {
            continue;
        }
        let living = configs.iter().zip(&runs).filter(|(c, _)| c.method == Method::Living);
        for (config, run) in living {
            let count = |what: &dyn Fn(&TraceRow) -> bool| run.rows.iter().filter(|r| what(r)).count();
            let lag = config.replay.lag;
            let decided = |decision| count(&|r| r.decision == decision);
            assert!(decided(Decision::Stored) >= 5, "lag {lag}: stored");
            assert!(decided(Decision::NotNovel) >= 5, "lag {lag}: not novel");
            assert!(decided(Decision::NotGrounded) >= 2, "lag {lag}: not grounded");
            assert!(count(&|r| !r.matches.is_empty()) >= 10, "lag {lag}: matches");
            assert!(count(&|r| r.fused_new_above_threshold > 0) >= 5, "lag {lag}: transfer");
            assert!(count(&|r| r.fallback.is_some()) >= 2, "lag {lag}: fallback");
            // Candidates that only their own block's commits made redundant: their grounding had been computed and is dropped.
            let own_block = |r: &TraceRow| {
                let start = (r.stream_index - 1) / lag * lag;
                let at = r.novelty_nearest.map(|k| run.experiences[k as usize].stream_index);
                r.decision == Decision::NotNovel && at.is_some_and(|at| at > start)
            };
            let least = [0, 0, 1, 3][LAGS.iter().position(|&l| l == lag).unwrap()];
            assert!(count(&own_block) >= least, "lag {lag}: redundant within a block");
        }
    }
}

/// The bundled demo under lag 1: the 2nd query sees the first's experience, and under lag 16 the 17th does.
#[test]
fn with_lag_1_the_second_query_sees_the_first() {
    let session = session(&repository().join("data/demo"), &IndexOptions::default(), 2);
    let configs = [config(Method::Living, 1), config(Method::Living, 16)];
    let runs = replay(&session, &configs);
    for (config, run) in configs.iter().zip(&runs) {
        assert_sees_what_it_may(&session, config, run);
        assert!(run.rows[0].stored);
        let first = config.replay.lag as usize;
        assert!(run.rows[..first].iter().all(|r| r.store_visible == 0 && r.scaffold.is_none()));
        assert_eq!((run.rows[first].store_visible, run.rows[first].scaffold), (1, Some(0)));
        assert_eq!(run.rows[first].matches.len(), usize::from(!run.rows[first].seeds.is_empty()));
    }
}

/// The same on the paper's 2wiki stream, for the seeds of the gate-only runs.
#[test]
fn with_lag_1_the_second_query_sees_the_first_on_2wiki() {
    let Some(folder) = real("2wiki") else { return };
    let preset = repository().join("configs/gate-only.toml");
    let mut config = RunConfig::load(&preset, &["replay.lag=1".into(), "replay.limit=3".into()]).unwrap();
    config.replay.timings = false;
    let session = session(&folder, &IndexOptions::from(&config.index), 2);
    let configs: Vec<RunConfig> = (0..5).map(|seed| RunConfig { seed, ..config.clone() }).collect();
    let runs = replay(&session, &configs);
    for run in &runs {
        // Whether the first is stored is the coin's word; an empty store is always novel.
        let first = u32::from(run.rows[0].stored);
        assert_eq!((run.rows[1].store_visible, run.rows[1].scaffold), (first, run.rows[0].stored.then_some(0)));
    }
    assert!(runs.iter().filter(|r| r.rows[0].stored).count() >= 2);
}
