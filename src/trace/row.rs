//! One row of `traces.parquet`, of `experiences.parquet` and of `retrieve`'s file, as plain data (schema version 1).
//!
//! The same structs are what the journal keeps, so a resumed run writes the same bytes. Floats are finite.

use serde::{Deserialize, Serialize};

use crate::gates::Decision;
use crate::generate::{Judgement, LlmStatus};

/// A linked seed entity and its score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeedCell {
    /// Surface string of the graph entity.
    pub entity: String,
    /// Cosine of question entity and graph entity.
    pub score: f32,
}

/// One of the top-K matched experiences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MatchCell {
    /// Which experience.
    pub experience: u32,
    /// s_ret, equation 7.
    pub score: f32,
    /// cos(v_q, v_k).
    pub cos_query: f32,
    /// cos(a_base, ã_k).
    pub cos_activation: f32,
    /// w_k, equation 10.
    pub weight: f32,
}

/// A passage given to the reader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PassageCell {
    /// Which passage.
    pub passage: u32,
    /// Its ranking score.
    pub score: f64,
}

/// A claim and its best evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimCell {
    /// The claim.
    pub text: String,
    /// g, equation 15.
    pub support: f32,
    /// Passage of the best evidence sentence.
    pub passage: u32,
    /// The best evidence sentence.
    pub evidence: String,
    /// P(contradict) of that pair; `None` where the scorer knows no contradiction.
    #[serde(default)]
    pub contradiction: Option<f32>,
}

/// One query of one run. Field order is column order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns are described once, in trace::schema, and checked against it")]
pub struct TraceRow {
    pub run_id: String,
    pub dataset: String,
    pub method: String,
    pub order: String,
    pub seed: u64,
    pub stream_index: u32,
    pub query_id: String,
    pub question: String,
    pub gold_answers: Vec<String>,
    pub prediction: String,
    pub raw_response: String,
    pub lag: u32,
    pub store_visible: u32,
    pub store_committed: u32,
    pub fallback: Option<String>,
    pub seeds: Vec<SeedCell>,
    pub activation_base_n: u32,
    pub activation_fused_n: u32,
    pub activation_final_n: u32,
    pub fused_new_above_threshold: u32,
    pub matches: Vec<MatchCell>,
    pub scaffold: Option<u32>,
    pub scaffold_score: Option<f32>,
    pub scaffold_template_tfidf: Option<f32>,
    pub passages: Vec<PassageCell>,
    pub gold_passages: Option<Vec<u32>>,
    pub prompt_tokens: Option<u32>,
    pub completion_tokens: Option<u32>,
    pub reasoning_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    pub tokens_estimated: bool,
    pub cost_usd: Option<f64>,
    pub llm_status: LlmStatus,
    pub prompt_cut: bool,
    pub passages_cut: u32,
    pub contain: Option<bool>,
    pub contain_word: Option<bool>,
    pub judge: Judgement,
    pub judge_raw: Vec<String>,
    pub judge_agreement: Option<f32>,
    pub novelty: Option<f32>,
    pub novelty_nearest: Option<u32>,
    pub grounding: Option<f32>,
    pub grounding_model: Option<String>,
    pub claims: Vec<ClaimCell>,
    pub stored: bool,
    pub decision: Decision,
    pub reuse_entity: Option<bool>,
    pub reuse_graph: Option<bool>,
    pub reuse_template: Option<bool>,
    /// Passages 1..=20 of the ranking, for recall at k beyond what the reader saw.
    pub ranked: Vec<u32>,
    pub retrieval_us: Option<u64>,
    pub llm_us: Option<u64>,
    pub judge_us: Option<u64>,
    pub novelty_us: Option<u64>,
    pub grounding_us: Option<u64>,
}

/// One entry of a stored activation map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActivationCell {
    /// Surface string of the graph entity.
    pub entity: String,
    /// Its entry of ã.
    pub weight: f32,
}

/// One row of `experiences.parquet`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns are described once, in trace::schema, and checked against it")]
pub struct ExperienceRow {
    pub experience: u32,
    pub run_id: String,
    pub stream_index: u32,
    pub query_id: String,
    pub query: String,
    pub answer: String,
    pub summary: String,
    pub confidence: f32,
    pub activation: Vec<ActivationCell>,
}

/// An entity that is active after propagation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActiveCell {
    /// Surface string of the graph entity.
    pub entity: String,
    /// Its score.
    pub score: f64,
    /// The hop that reached it (spec 2.3).
    pub tier: u32,
}

/// An entity's entry of the final activation vector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WeightCell {
    /// Surface string of the graph entity.
    pub entity: String,
    /// Its weight in the reset vector.
    pub weight: f64,
}

/// One row of the file that `livingrag retrieve` writes: base retrieval with its inner state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the columns are described once, in trace::schema, and checked against it")]
pub struct RetrieveRow {
    pub query_id: String,
    pub question: String,
    pub fallback: Option<String>,
    pub seeds: Vec<SeedCell>,
    pub active: Vec<ActiveCell>,
    pub weights: Vec<WeightCell>,
    pub passages: Vec<PassageCell>,
}
