//! The sections of a configuration file as plain data, with their defaults.
//!
//! In and out: TOML tables. Meaning, legal range and origin of every key stand once, in [`super::keys`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::kinds::{
    ActivationScale, AdjacentPassages, AnnotationSource, AnswerMarker, BackendKind, CacheMode, EndpointProfile,
    EntityText, GeneratorKind, GroundingKind, JudgeKind, JudgeProfile, Normalize, PassagePrefix, PrecisionKind,
    Propagation, TemplateSimilarity, Thinking,
};

/// `[dataset]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct DatasetConfig {
    /// The dataset folder.
    pub path: PathBuf,
}

/// `[index]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IndexConfig {
    /// An index folder; empty: built when missing under the results folder and found again by fingerprint.
    pub path: PathBuf,
    /// What makes the vectors that the dataset lacks: `auto`, a folder or a hub id.
    pub encoder: String,
    /// Where computed vectors are kept.
    pub vectors: PathBuf,
    /// `file` or `none`.
    pub annotations: AnnotationSource,
    /// `index` or `none`.
    pub passage_prefix: PassagePrefix,
    /// `all`, `same_document` or `none`.
    pub adjacent_passages: AdjacentPassages,
    /// `exact` or `trim`.
    pub entity_text: EntityText,
}

impl Default for IndexConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            encoder: "auto".into(),
            vectors: "results/vectors".into(),
            annotations: AnnotationSource::default(),
            passage_prefix: PassagePrefix::default(),
            adjacent_passages: AdjacentPassages::default(),
            entity_text: EntityText::default(),
        }
    }
}

/// `[retrieve]`; defaults are LinearRAG's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetrieveConfig {
    /// `bfs` or `matrix`.
    pub propagation: Propagation,
    /// As in the reference: `max_iterations - 1` hops.
    pub max_iterations: u32,
    /// thr: scores below it do not spread.
    pub iteration_threshold: f64,
    /// Share of dense similarity in passage weights.
    pub passage_ratio: f64,
    /// k: sentences an entity may pick per hop.
    pub top_k_sentence: u32,
    /// Weight of passage nodes in the reset vector.
    pub passage_node_weight: f64,
    /// PageRank damping.
    pub damping: f64,
    /// Passages given to the reader.
    pub top_k: u32,
    /// b of equation 27; 0 switches length normalisation off.
    pub length_b: f64,
}

impl Default for RetrieveConfig {
    fn default() -> Self {
        Self {
            propagation: Propagation::Bfs,
            max_iterations: 3,
            iteration_threshold: 0.5,
            passage_ratio: 1.5,
            top_k_sentence: 1,
            passage_node_weight: 0.05,
            damping: 0.5,
            top_k: 5,
            length_b: 0.0,
        }
    }
}

/// `[experience]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExperienceConfig {
    /// K: experiences matched per query.
    pub top_k: u32,
    /// α: share of query similarity.
    pub alpha: f64,
    /// β: weight of stored maps in fusion.
    pub beta: f64,
    /// τ_s: softmax temperature.
    pub tau_s: f64,
    /// λ: share of template similarity in the scaffold score.
    pub lambda: f64,
    /// ε: entries of a map below it are dropped.
    pub epsilon: f64,
    /// H: entries of a map kept at most; 0 is no limit.
    pub max_entities: u32,
    /// `max`, `l1`, `l2` or `none`.
    pub normalize: Normalize,
    /// `max` or `none`.
    pub activation_scale: ActivationScale,
    /// Sentences of a summary at most.
    pub key_sentences: u32,
    /// `auto`, `embedding` or `tokens`.
    pub template_similarity: TemplateSimilarity,
}

impl Default for ExperienceConfig {
    fn default() -> Self {
        Self {
            top_k: 3,
            alpha: 0.6,
            beta: 0.3,
            tau_s: 0.1,
            lambda: 0.1,
            epsilon: 0.05,
            max_entities: 0,
            normalize: Normalize::Max,
            activation_scale: ActivationScale::Max,
            key_sentences: 3,
            template_similarity: TemplateSimilarity::Auto,
        }
    }
}

/// `[gates]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatesConfig {
    /// τ_novel (paper, appendix D).
    pub tau_novel: f64,
    /// τ_gs (paper, appendix D).
    pub tau_gs: f64,
    /// τ_nli.
    pub tau_nli: f64,
    /// K_g: evidence sentences per claim.
    pub evidence_per_claim: u32,
    /// What computes entailment.
    pub grounding: GroundingConfig,
}

impl Default for GatesConfig {
    fn default() -> Self {
        Self { tau_novel: 0.7, tau_gs: 0.6, tau_nli: 0.5, evidence_per_claim: 8, grounding: GroundingConfig::default() }
    }
}

/// `[gates.grounding]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroundingConfig {
    /// `nli`, `lexical` or `bernoulli`.
    pub kind: GroundingKind,
    /// Pass rate of `bernoulli`.
    pub p: f64,
    /// Model folder or hub id of `nli`.
    pub model: String,
    /// Sentences before and after the evidence sentence that belong to its premise.
    pub window: u32,
    /// `auto`, `f32`, `bf16` (CPU) or `f16` (GPU).
    pub precision: PrecisionKind,
    /// Where scored pairs are kept.
    pub cache: PathBuf,
}

impl Default for GroundingConfig {
    fn default() -> Self {
        Self {
            kind: GroundingKind::default(),
            p: 0.88,
            model: "cross-encoder/nli-deberta-v3-large".into(),
            window: 1,
            precision: PrecisionKind::default(),
            cache: "results/nli-cache.sqlite".into(),
        }
    }
}

impl GatesConfig {
    /// Sentences to either side of an evidence sentence that its premise holds: only an entailment model reads them.
    pub fn premise_window(&self) -> u32 {
        if self.grounding.kind == GroundingKind::Nli { self.grounding.window } else { 0 }
    }
}

/// `[replay]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplayConfig {
    /// W: query t sees the experiences accepted from queries up to t - W (recovered: 16).
    pub lag: u32,
    /// Queries computed as one batch, at most the lag; 0 is the lag. Never changes a row.
    pub block: u32,
    /// Only the first so many queries of the order; 0 is all.
    pub limit: u32,
    /// Write wall times into the rows; switch off for byte-equal files.
    pub timings: bool,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        Self { lag: 16, block: 0, limit: 0, timings: true }
    }
}

/// `[generate]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GenerateConfig {
    /// `api`, `recorded`, `simulated` or `gguf`.
    pub kind: GeneratorKind,
    /// Endpoint of `api`.
    pub base_url: String,
    /// Model name of `api`, file of `gguf`, recording of `recorded`.
    pub model: String,
    /// Name of the environment variable that holds the key.
    pub api_key_env: String,
    /// `plain`, `vllm`, `dashscope` or `ollama`.
    pub profile: EndpointProfile,
    /// `default`, `on` or `off`.
    pub thinking: Thinking,
    /// Ask for answers in pieces.
    pub stream: bool,
    /// Completion limit.
    pub max_tokens: u32,
    /// Sampling temperature.
    pub temperature: f64,
    /// Prompt file; empty is the built-in one.
    pub prompt: PathBuf,
    /// Most tokens of the passages of a prompt; 0 is no limit.
    pub passage_budget: u32,
    /// The model's `tokenizer.json`; empty estimates.
    pub tokenizer: PathBuf,
    /// `first` or `last`.
    pub answer_marker: AnswerMarker,
    /// Chance that `simulated` answers correctly where no gold passages are known.
    pub simulated_accuracy: f64,
    /// US dollars per million prompt tokens (paper, table 3).
    pub usd_per_million_prompt: f64,
    /// US dollars per million completion tokens (paper, table 3).
    pub usd_per_million_completion: f64,
    /// Price list of `api`; empty is the built-in one.
    pub prices: PathBuf,
    /// Seconds for one try.
    pub timeout_s: u32,
    /// Most calls at a time; 0 is the lag.
    pub concurrency: u32,
    /// Most times one call is sent.
    pub max_tries: u32,
    /// Most retries of all calls together.
    pub retry_budget: u32,
    /// Most requests sent; 0 is no cap.
    pub max_calls: u32,
    /// Most US dollars spent; 0 is no cap.
    pub max_usd: f64,
    /// Length of the prompt by which an endpoint is probed; 0 probes nothing.
    pub probe_tokens: u32,
    /// Where answers are kept.
    pub cache: PathBuf,
    /// `use`, `refresh` or `only`.
    pub cache_mode: CacheMode,
}

impl Default for GenerateConfig {
    fn default() -> Self {
        Self {
            kind: GeneratorKind::Simulated,
            base_url: String::new(),
            model: String::new(),
            api_key_env: "LIVINGRAG_API_KEY".into(),
            profile: EndpointProfile::Plain,
            thinking: Thinking::Default,
            stream: false,
            max_tokens: 2000,
            temperature: 0.0,
            prompt: PathBuf::new(),
            passage_budget: 0,
            tokenizer: PathBuf::new(),
            answer_marker: AnswerMarker::First,
            simulated_accuracy: 0.8,
            usd_per_million_prompt: 0.5,
            usd_per_million_completion: 3.0,
            prices: PathBuf::new(),
            timeout_s: 120,
            concurrency: 0,
            max_tries: 8,
            retry_budget: 10_000,
            max_calls: 0,
            max_usd: 0.0,
            probe_tokens: 6000,
            cache: "results/llm-cache.sqlite".into(),
            cache_mode: CacheMode::Use,
        }
    }
}

/// `[judge]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeConfig {
    /// `none`, `api`, `recorded` or `gguf`.
    pub kind: JudgeKind,
    /// Endpoint; empty is the reader's.
    pub base_url: String,
    /// Model name of `api`; file of `recorded` and `gguf`, where empty is the reader's.
    pub model: String,
    /// Name of the environment variable that holds the key; empty is the reader's.
    pub api_key_env: String,
    /// `short` or `support`.
    pub profile: JudgeProfile,
    /// Prompt file; empty is the profile's own.
    pub prompt: PathBuf,
    /// Completion limit.
    pub max_tokens: u32,
    /// How often each answer is judged.
    pub repeats: u32,
}

impl Default for JudgeConfig {
    fn default() -> Self {
        Self {
            kind: JudgeKind::None,
            base_url: String::new(),
            model: String::new(),
            api_key_env: String::new(),
            profile: JudgeProfile::Short,
            prompt: PathBuf::new(),
            max_tokens: 16,
            repeats: 1,
        }
    }
}

/// `[backend]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct BackendConfig {
    /// `auto`, `cpu` or `cuda`.
    pub kind: BackendKind,
    /// Worker threads; 0 is one a core.
    pub threads: u32,
}
