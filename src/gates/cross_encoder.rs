//! Cross-encoders as grounding models: pairs' probabilities from logits.
//!
//! In: `[gates.grounding]` and a device. Out: an [`NliModel`] whose weights are not read yet.

use super::grounding::PairScore;
use super::nli::{Identity, Judged, NliModel, PairModel};
use super::pair_cache::PairCache;
use crate::config::{BackendKind, GroundingConfig, PrecisionKind};
use crate::encode::{CrossEncoder, EncodeDevice, Precision, check_cross_encoder, locate};
use crate::error::ErrorKind;
use crate::{Error, Result};

/// Finds and checks a model; returns it with the memory its weights take, bytes.
///
/// # Errors
/// A model that is nowhere or is no NLI model, a device that cannot be had, a cache that cannot be written.
pub(super) fn open(config: &GroundingConfig, device: BackendKind) -> Result<(NliModel, u64)> {
    let folder = locate(&config.model).map_err(|e| of_key(&config.model, &e))?;
    let outlook = check_cross_encoder(&folder).map_err(|e| of_key(&config.model, &e))?;
    let device = EncodeDevice::open(device)?;
    let precision = match config.precision {
        PrecisionKind::F32 => Precision::F32,
        PrecisionKind::Bf16 => Precision::Bf16,
        PrecisionKind::F16 => Precision::F16,
        PrecisionKind::Auto => device.usual_precision(),
    };
    device.check(precision).map_err(|e| {
        let hint = e.hint().map(str::to_owned).unwrap_or_default();
        Error::request(format!("gates.grounding.precision = {:?}: {}", precision.as_str(), e.sentence()))
            .with_hint(hint)
    })?;
    let precision_word = precision.as_str().to_owned();
    let identity =
        Identity { name: folder.short_name(), fingerprint: folder.fingerprint()?, precision: precision_word };
    let bytes = outlook.weights * precision.bytes();
    let cache = match config.cache.as_os_str().is_empty() {
        true => None,
        false => Some(PairCache::open(&config.cache)?),
    };
    let open = move || -> Result<Box<dyn PairModel>> { Ok(Box::new(CrossEncoder::load(&folder, &device, precision)?)) };
    Ok((NliModel::new(identity, cache, open)?, bytes))
}

/// The error with the key it is about.
fn of_key(model: &str, error: &Error) -> Error {
    let text = format!("gates.grounding.model = {model:?}: {}", error.sentence());
    let new = match error.kind() {
        ErrorKind::Request => Error::request(text),
        ErrorKind::Work => Error::work(text),
    };
    let cure = error.hint().map(|hint| format!("{hint}; ")).unwrap_or_default();
    new.with_hint(format!("{cure}gates.grounding.kind = \"lexical\" needs no model"))
}

impl PairModel for CrossEncoder {
    fn judge(&self, pairs: &[(&str, &str)], done: &mut dyn FnMut(usize)) -> Result<Judged> {
        let labels = self.labels();
        let scores = CrossEncoder::score(self, pairs, done)?;
        let score = |i: usize| {
            let probabilities = scores.probabilities(i);
            PairScore {
                entailment: probabilities[labels.entailment] as f32,
                contradiction: Some(probabilities[labels.contradiction] as f32),
            }
        };
        Ok(Judged { scores: (0..pairs.len()).map(score).collect(), cut: scores.cut.clone(), tokens: scores.tokens })
    }
}
