//! The named choices of a configuration: what a key that takes one of a few words may say.
//!
//! In and out: the lower-case words of the TOML file. [`super::keys`] lists the same words for messages and documents, and a
//! test keeps the two lists equal.

use serde::{Deserialize, Serialize};

/// The system a run replays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Dense top-k, no graph, no store.
    Vanilla,
    /// LinearRAG: graph retrieval, no store.
    Linear,
    /// LivingRAG: the store guides retrieval and generation.
    Living,
    /// Living without activation-map fusion (table 5).
    NoFusion,
    /// Living without scaffolds (table 5).
    NoScaffold,
    /// Living that stores every candidate with confidence 1 (table 5).
    NoGate,
}

impl Method {
    /// Every method, in the order of the report.
    pub const ALL: [Self; 6] =
        [Self::Vanilla, Self::Linear, Self::Living, Self::NoFusion, Self::NoScaffold, Self::NoGate];

    /// The name in configurations and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Linear => "linear",
            Self::Living => "living",
            Self::NoFusion => "no_fusion",
            Self::NoScaffold => "no_scaffold",
            Self::NoGate => "no_gate",
        }
    }

    /// Whether the method has an experience store.
    pub fn has_store(self) -> bool {
        !matches!(self, Self::Vanilla | Self::Linear)
    }

    /// Whether candidates pass gates before they are stored.
    pub fn is_gated(self) -> bool {
        self.has_store() && self != Self::NoGate
    }
}

/// Which annotations make the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum AnnotationSource {
    /// `annotations.jsonl` and `question_entities.jsonl` of the dataset folder.
    #[default]
    File,
    /// A graph without entities: every query is ranked by dense cosine.
    None,
}

/// What stands before each passage text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum PassagePrefix {
    /// `"{i}:"` with the passage's corpus index (the reference).
    #[default]
    Index,
    /// Nothing.
    None,
}

/// Which corpus neighbours are joined by an edge of weight 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum AdjacentPassages {
    /// Every pair i, i+1 (the reference).
    #[default]
    All,
    /// Only neighbours of one title.
    SameDocument,
    /// None.
    None,
}

/// What an entity's text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum EntityText {
    /// Exactly as annotated (the reference).
    #[default]
    Exact,
    /// White space stripped at both ends.
    Trim,
}

/// Form of entity propagation (spec 2.3); two different algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Propagation {
    /// Breadth-first, the reference's default.
    #[default]
    Bfs,
    /// The reference's vectorised mode.
    Matrix,
}

/// `normalize` of equation 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Normalize {
    /// Largest entry 1 (ours).
    #[default]
    Max,
    /// Sum 1.
    L1,
    /// Euclidean length 1.
    L2,
    /// As it is.
    None,
}

/// How a stored activation map is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ActivationScale {
    /// Largest entry 1 (ours).
    #[default]
    Max,
    /// As it is.
    None,
}

/// How two masked questions are compared in equation 12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum TemplateSimilarity {
    /// `embedding` when the index has template vectors, else `tokens`; the manifest says which.
    #[default]
    Auto,
    /// Cosine of the template vectors, the paper's.
    Embedding,
    /// Cosine of the templates' token counts; needs no encoder.
    Tokens,
}

/// What computes GS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum GroundingKind {
    /// The NLI cross-encoder of the paper.
    Nli,
    /// Token and number containment; no model, no entailment.
    #[default]
    Lexical,
    /// A seeded coin, for simulation.
    Bernoulli,
}

/// Precision of a grounding model's products; sums, scores and norms are in 32 bits always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum PrecisionKind {
    /// `f32` on the CPU, `f16` on a GPU; rows and manifest say which.
    #[default]
    Auto,
    /// 32 bits.
    F32,
    /// 16 bits, of them 8 of exponent; on CPUs.
    Bf16,
    /// 16 bits, of them 5 of exponent; on GPUs.
    F16,
}

/// What answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum GeneratorKind {
    /// An OpenAI-compatible endpoint.
    Api,
    /// Answers from a file, by request hash.
    Recorded,
    /// A deterministic stand-in that reads the gold data; every row says so.
    #[default]
    Simulated,
    /// A local model file.
    Gguf,
}

/// Whose endpoint it is, for what providers want said differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum EndpointProfile {
    /// The API as it was first written.
    #[default]
    Plain,
    /// vLLM.
    Vllm,
    /// Alibaba's DashScope.
    Dashscope,
    /// Ollama.
    Ollama,
}

/// Whether a model that can reason before it answers does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// Nothing is said; the endpoint's own default stands.
    #[default]
    Default,
    /// It does.
    On,
    /// It does not.
    Off,
}

/// What the request cache is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum CacheMode {
    /// What is kept is used, the rest is asked and kept.
    #[default]
    Use,
    /// Everything is asked anew and replaces what was kept.
    Refresh,
    /// Nothing is asked; what is not kept is an error.
    Only,
}

/// Which `Answer:` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum AnswerMarker {
    /// Between the first and the second (the reference).
    #[default]
    First,
    /// After the last.
    Last,
}

/// What judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum JudgeKind {
    /// Nothing.
    #[default]
    None,
    /// An OpenAI-compatible endpoint.
    Api,
    /// Judgements from a file.
    Recorded,
    /// A local model file.
    Gguf,
}

/// What kind of answers is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum JudgeProfile {
    /// Short spans.
    #[default]
    Short,
    /// Support answers.
    Support,
}

/// Where the arithmetic runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum BackendKind {
    /// CUDA where it was built and a device is there, else the CPU; the manifest says which.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// CUDA or an error.
    Cuda,
}

/// Gives a setting its name in configurations, traces and manifests.
macro_rules! names {
    ($($kind:ident { $($variant:ident => $name:literal),+ $(,)? })+) => {$(
        impl $kind {
            /// The name in configurations, traces and manifests.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    )+};
}

names! {
    AnnotationSource { File => "file", None => "none" }
    PassagePrefix { Index => "index", None => "none" }
    EntityText { Exact => "exact", Trim => "trim" }
    AdjacentPassages { All => "all", SameDocument => "same_document", None => "none" }
    Propagation { Bfs => "bfs", Matrix => "matrix" }
    JudgeProfile { Short => "short", Support => "support" }
    AnswerMarker { First => "first", Last => "last" }
    TemplateSimilarity { Auto => "auto", Embedding => "embedding", Tokens => "tokens" }
    BackendKind { Auto => "auto", Cpu => "cpu", Cuda => "cuda" }
    PrecisionKind { Auto => "auto", F32 => "f32", Bf16 => "bf16", F16 => "f16" }
}
