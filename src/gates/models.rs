//! Grounding models by configuration, each opened once for all runs that share it.
//!
//! In: `[gates.grounding]`. Out: a scorer, and the identity of the model under it. What is missing is an early error: the model's files are
//! found, read through once for their fingerprint and checked before any question is asked; its weights are loaded when a pair needs them.

#[cfg(feature = "encoders")]
use std::collections::BTreeMap;
use std::sync::Arc;

use super::grounding::GroundingScorer;
use crate::Result;
use crate::config::{BackendKind, GroundingConfig};

/// The paper's grounding model (appendix B).
pub const DEFAULT_NLI_MODEL: &str = "cross-encoder/nli-deberta-v3-large";

/// A scorer with the model under it.
#[derive(Clone)]
pub struct ModelScorer {
    /// The scorer.
    pub scorer: Arc<dyn GroundingScorer>,
    /// Identity of the model: fingerprint and precision.
    pub key: String,
    /// Memory its weights take, bytes.
    pub bytes: u64,
}

/// Models opened so far.
#[derive(Default)]
pub struct GroundingModels {
    #[cfg(feature = "encoders")]
    open: BTreeMap<String, (Arc<super::nli::NliModel>, u64)>,
}

#[cfg(not(feature = "encoders"))]
impl GroundingModels {
    /// Always an error in this build.
    ///
    /// # Errors
    /// Always.
    pub fn nli(&mut self, _: &GroundingConfig, _tau_nli: f64, _: BackendKind) -> Result<ModelScorer> {
        Err(crate::Error::request("gates.grounding.kind = \"nli\" is not built into this version")
            .with_hint("build with the default features, or add --features encoders; or use lexical or bernoulli"))
    }
}

#[cfg(feature = "encoders")]
impl GroundingModels {
    /// The entailment scorer of a configuration.
    ///
    /// # Errors
    /// pitfalls 34 and 37: a model that is nowhere or is no NLI model, a device that cannot be had; a cache that cannot be written.
    pub fn nli(&mut self, config: &GroundingConfig, tau_nli: f64, device: BackendKind) -> Result<ModelScorer> {
        let name = format!("{} {:?} {device:?} {}", config.model, config.precision, config.cache.display());
        if !self.open.contains_key(&name) {
            let (model, bytes) = super::cross_encoder::open(config, device)?;
            self.open.insert(name.clone(), (Arc::new(model), bytes));
        }
        let (model, bytes) = &self.open[&name];
        let identity = model.identity();
        Ok(ModelScorer {
            scorer: Arc::new(super::nli::NliScorer { model: Arc::clone(model), tau_nli }),
            // The name too: the rows hold it.
            key: format!("{} {} {}", identity.name, identity.fingerprint, identity.precision),
            bytes: *bytes,
        })
    }
}
