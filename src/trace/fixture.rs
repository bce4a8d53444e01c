//! Small rows and manifests for unit tests: every column filled, every null met.

use std::collections::BTreeMap;

use super::SCHEMA_VERSION;
use super::manifest::{BackendInfo, DatasetInfo, GeneratorInfo, IndexInfo, Manifest, ModelInfo, Status};
use super::row::{
    ActivationCell, ActiveCell, ClaimCell, ExperienceRow, MatchCell, PassageCell, RetrieveRow, SeedCell, TraceRow,
    WeightCell,
};
use crate::gates::Decision;
use crate::generate::{Judgement, LlmStatus};

/// Row t of a `living` run, with every list filled.
pub(crate) fn row(t: u32) -> TraceRow {
    let even = t.is_multiple_of(2);
    TraceRow {
        matches: (0..=t % 4)
            .map(|e| MatchCell { experience: e, score: 0.5, cos_query: 0.75, cos_activation: 0.125, weight: 0.25 })
            .collect(),
        scaffold: even.then_some(t / 2),
        scaffold_score: even.then_some(0.5),
        scaffold_template_tfidf: even.then_some(0.375),
        gold_passages: even.then(|| vec![1, t]),
        claims: vec![ClaimCell {
            text: "a".into(),
            support: 0.5,
            passage: t,
            evidence: "é \u{fe0f}".into(),
            contradiction: (t % 2 == 1).then_some(0.25),
        }],
        decision: if even { Decision::NotGrounded } else { Decision::Stored },
        stored: !even,
        fallback: even.then(|| "dense_no_seed".into()),
        reuse_entity: (t > 1).then_some(even),
        cost_usd: even.then_some(0.001),
        grounding_us: even.then_some(7),
        judge_raw: if even { vec!["Correct.".into(), String::new()] } else { vec![] },
        judge_agreement: even.then_some(0.5),
        ..plain(t)
    }
}

/// Row t of a `living` run in which nothing special happens.
pub(crate) fn plain(t: u32) -> TraceRow {
    TraceRow {
        run_id: "living-0123abcd".into(),
        dataset: "toy".into(),
        method: "living".into(),
        order: "file".into(),
        seed: 0,
        stream_index: t,
        query_id: format!("q{t}"),
        question: format!("Question {t}?"),
        gold_answers: vec!["yes".into(), "y".into()],
        prediction: "yes".into(),
        raw_response: "Thought: so.\nAnswer: yes".into(),
        lag: 16,
        store_visible: 0,
        store_committed: 0,
        fallback: None,
        seeds: vec![SeedCell { entity: "Oslo".into(), score: 0.5 }],
        activation_base_n: 1,
        activation_fused_n: 1,
        activation_final_n: 1,
        fused_new_above_threshold: 0,
        matches: vec![],
        scaffold: None,
        scaffold_score: None,
        scaffold_template_tfidf: None,
        passages: vec![PassageCell { passage: t, score: 0.25 }],
        gold_passages: None,
        prompt_tokens: Some(100),
        completion_tokens: Some(10),
        reasoning_tokens: None,
        cached_tokens: None,
        tokens_estimated: false,
        cost_usd: None,
        llm_status: LlmStatus::Ok,
        prompt_cut: false,
        passages_cut: 0,
        contain: Some(true),
        contain_word: Some(true),
        judge: Judgement::NotRun,
        judge_raw: vec![],
        judge_agreement: None,
        novelty: Some(0.25),
        novelty_nearest: None,
        grounding: None,
        grounding_model: None,
        claims: vec![],
        stored: false,
        decision: Decision::NotNovel,
        reuse_entity: (t > 1).then_some(false),
        reuse_graph: (t > 1).then_some(false),
        reuse_template: (t > 1).then_some(false),
        ranked: vec![t],
        retrieval_us: None,
        llm_us: None,
        judge_us: None,
        novelty_us: None,
        grounding_us: None,
    }
}

/// Experience `e` with `e` activation entries.
pub(crate) fn experience(e: u32) -> ExperienceRow {
    ExperienceRow {
        experience: e,
        run_id: "living-0123abcd".into(),
        stream_index: e + 1,
        query_id: format!("q{e}"),
        query: "Who?".into(),
        answer: "Ada".into(),
        summary: "Ada did.".into(),
        confidence: 1.0,
        activation: (0..e).map(|i| ActivationCell { entity: format!("E{i}"), weight: 0.5 }).collect(),
    }
}

/// A row of `retrieve`'s file.
pub(crate) fn retrieved(id: &str) -> RetrieveRow {
    RetrieveRow {
        query_id: id.into(),
        question: "Who?".into(),
        fallback: None,
        seeds: vec![],
        active: vec![ActiveCell { entity: "Ada".into(), score: 0.5, tier: 1 }],
        weights: vec![WeightCell { entity: "Ada".into(), weight: 0.5 }],
        passages: vec![],
    }
}

/// The manifest of a finished run of `rows` rows that [`plain`] rows fit to.
pub(crate) fn manifest(method: &str, rows: u64) -> Manifest {
    Manifest {
        schema_version: SCHEMA_VERSION,
        run_id: "living-0123abcd".into(),
        livingrag_version: "0.1.0".into(),
        status: Status::Complete,
        rows,
        dataset: DatasetInfo {
            name: "toy".into(),
            fingerprint: "d47a5e7f00112233".into(),
            passages: 12,
            questions: rows,
            gold_known: rows,
        },
        index: IndexInfo {
            fingerprint: "1de0aa5500112233".into(),
            encoder: "all-mpnet-base-v2".into(),
            encoder_fingerprint: None,
            computed_vectors: 0,
            entities: 9,
            sentences: 20,
            edges: 31,
            annotations: "file".into(),
            adjacent_passages: "all".into(),
            constant_vectors: Vec::new(),
        },
        method: method.into(),
        order: "file".into(),
        seed: 0,
        lag: 16,
        settings: "5e77".into(),
        propagation: Some("bfs".into()),
        template_similarity: Some("embedding".into()),
        generator: GeneratorInfo { name: "api".into(), model: "reader-1".into(), simulated: false },
        prompt_hash: None,
        grounding: Some(ModelInfo { name: "nli".into(), model: "nli-deberta-v3-large".into() }),
        judge: None,
        backend: BackendInfo { name: "cpu".into(), device: "2 cores".into(), threads: 2, requested: "auto".into() },
        counters: BTreeMap::from([("llm_retries".into(), 0)]),
        notes: vec![],
        started_unix: None,
        finished_unix: None,
    }
}
