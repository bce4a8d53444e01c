//! Quality gates for write-back: novelty (equations 17–18), grounding (15–16) and the rule that joins them (19).
//!
//! In: a candidate (question, explanation, answer, used passages). Out: scores and a decision. Novelty comes first; grounding
//! is computed only for candidates that are novel.

pub mod bernoulli;
pub mod claims;
#[cfg(feature = "encoders")]
mod cross_encoder;
pub mod decide;
pub mod evidence;
pub mod grounding;
pub mod lexical;
pub mod models;
#[cfg(feature = "encoders")]
pub mod nli;
pub mod novelty;
#[cfg(any(feature = "encoders", feature = "llm"))]
pub mod pair_cache;

use serde::{Deserialize, Serialize};

/// Why a candidate was stored or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Both gates passed.
    Stored,
    /// NS below τ_novel; GS was not computed.
    NotNovel,
    /// GS below τ_gs.
    NotGrounded,
    /// Nothing to check: GS = 0.
    NoClaims,
    /// The reader gave no answer.
    NoAnswer,
    /// The method has no store or no gate; with `no_gate` the candidate is stored all the same.
    GateOff,
}

impl Decision {
    /// The stored name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::NotNovel => "not_novel",
            Self::NotGrounded => "not_grounded",
            Self::NoClaims => "no_claims",
            Self::NoAnswer => "no_answer",
            Self::GateOff => "gate_off",
        }
    }
}
