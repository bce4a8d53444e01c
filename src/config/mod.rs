//! What a run is asked to do: strict TOML, every key with a documented default.
//!
//! In: `configs/*.toml` and `--set key=value`. Out: [`RunConfig`], then a validated, hashed [`RunPlan`].
//! [`keys`] is the one list of keys; messages, range checks, `configs/default.toml` and `docs/configuration.md` all come
//! from it. Where a default comes from is said per key: *paper* (stated there), *recovered* (given away by its tables),
//! *reference* (LinearRAG's code), *ours*.

pub mod keys;
mod kinds;
pub(crate) mod load;
mod plan;
#[cfg(test)]
mod reference;
mod sections;
mod validate;

use serde::{Deserialize, Serialize};

pub use kinds::{
    ActivationScale, AdjacentPassages, AnnotationSource, AnswerMarker, BackendKind, CacheMode, EndpointProfile,
    EntityText, GeneratorKind, GroundingKind, JudgeKind, JudgeProfile, Method, Normalize, PassagePrefix, PrecisionKind,
    Propagation, TemplateSimilarity, Thinking,
};
pub use plan::RunPlan;
pub use sections::{
    BackendConfig, DatasetConfig, ExperienceConfig, GatesConfig, GenerateConfig, GroundingConfig, IndexConfig,
    JudgeConfig, ReplayConfig, RetrieveConfig,
};

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Which system.
    pub method: Method,
    /// Arrival order: `file`, `shuffle:<seed>`, `reverse`, `clustered`, `spread`, `drift`.
    pub order: String,
    /// Seed of everything drawn at random (simulated reader, bernoulli grounding).
    pub seed: u64,
    /// Where the questions and passages are.
    pub dataset: DatasetConfig,
    /// How the graph is built.
    pub index: IndexConfig,
    /// Base retrieval.
    pub retrieve: RetrieveConfig,
    /// Matching, fusing and scaffolds.
    pub experience: ExperienceConfig,
    /// Write-back.
    pub gates: GatesConfig,
    /// The stream.
    pub replay: ReplayConfig,
    /// The reader.
    pub generate: GenerateConfig,
    /// The judge.
    pub judge: JudgeConfig,
    /// Where the arithmetic runs; never changes the rows of a plan on one backend.
    pub backend: BackendConfig,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            method: Method::Living,
            order: "file".into(),
            seed: 0,
            dataset: DatasetConfig::default(),
            index: IndexConfig::default(),
            retrieve: RetrieveConfig::default(),
            experience: ExperienceConfig::default(),
            gates: GatesConfig::default(),
            replay: ReplayConfig::default(),
            generate: GenerateConfig::default(),
            judge: JudgeConfig::default(),
            backend: BackendConfig::default(),
        }
    }
}
