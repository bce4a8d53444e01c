//! The exchangeable parts of a run, from its configuration: reader, grounding scorer, prompt.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::config::{AnswerMarker, GeneratorKind, GroundingKind, RunConfig};
use crate::gates::bernoulli::BernoulliScorer;
use crate::gates::grounding::GroundingScorer;
use crate::gates::lexical::LexicalScorer;
use crate::generate::{Generator, Marker, ModelSettings, Prices, PromptTemplate, RecordedReader, SimulatedReader};
use crate::{Error, Result};

/// What a run asks and is checked by.
#[derive(Clone)]
pub struct Parts {
    /// The reader.
    pub reader: Arc<dyn Generator>,
    /// Identity of the reader: readers with equal keys answer equal requests equally, so one of them is asked for all.
    pub reader_key: String,
    /// Whether the reader looks at gold data instead of asking a model.
    pub simulated: bool,
    /// What computes GS.
    pub grounding: Arc<dyn GroundingScorer>,
    /// Identity of the scorer: scorers with equal keys give equal candidates equal grounding.
    pub grounding_key: String,
    /// Identity of the entailment underneath: equal pairs have equal support, whatever the thresholds. Empty: no pair is scored.
    pub entailment_key: String,
    /// The prompt.
    pub prompt: Arc<PromptTemplate>,
    /// Which answer marker counts.
    pub marker: Marker,
    /// Prices of tokens.
    pub prices: Prices,
    /// blake3 of everything here that is not in the configuration: prompt text, recording.
    pub fingerprint: String,
    /// What the user should hear, for example that a recording's last line was torn.
    pub notes: Vec<String>,
}

/// Parts of many runs; what equal settings have in common, for example a recording, is opened once.
#[derive(Default)]
pub struct PartsPool {
    known: BTreeMap<String, Parts>,
}

impl PartsPool {
    /// The parts of one more run.
    ///
    /// # Errors
    /// As [`Parts::new`].
    pub fn parts(&mut self, config: &RunConfig) -> Result<Parts> {
        let key = format!("{:?} {:?} {}", config.generate, config.gates, config.seed);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let parts = Parts::new(config)?;
        self.known.insert(key, parts.clone());
        Ok(parts)
    }
}

impl Parts {
    /// Builds the parts a checked configuration asks for.
    ///
    /// # Errors
    /// A prompt or recording that cannot be read; a kind this build does not have.
    pub fn new(config: &RunConfig) -> Result<Self> {
        let g = &config.generate;
        let prompt = match g.prompt.as_os_str().is_empty() {
            true => PromptTemplate::builtin()?,
            false => PromptTemplate::load(&g.prompt)?,
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(prompt.hash().as_bytes());
        let mut notes = Vec::new();
        let reader: Arc<dyn Generator> = match g.kind {
            GeneratorKind::Simulated => Arc::new(SimulatedReader { seed: config.seed, accuracy: g.simulated_accuracy }),
            GeneratorKind::Recorded => {
                let path = Path::new(&g.model);
                let reader = RecordedReader::open(path, model_settings(config))?;
                hasher.update(&std::fs::read(path).map_err(|e| Error::io("read", path, e))?);
                if reader.torn_tail() {
                    notes.push(format!("{}: the last line is torn and was left out", path.display()));
                }
                Arc::new(reader)
            }
            GeneratorKind::Api | GeneratorKind::Gguf => {
                return Err(not_built("generate.kind", "simulated or recorded"));
            }
        };
        let grounding: Arc<dyn GroundingScorer> = match config.gates.grounding.kind {
            GroundingKind::Lexical => Arc::new(LexicalScorer { tau_nli: config.gates.tau_nli }),
            GroundingKind::Bernoulli => Arc::new(BernoulliScorer { seed: config.seed, p: config.gates.grounding.p }),
            GroundingKind::Nli => return Err(not_built("gates.grounding.kind", "lexical or bernoulli")),
        };
        let grounding_config = &config.gates.grounding;
        Ok(Self {
            reader,
            reader_key: reader_key(config),
            simulated: g.kind == GeneratorKind::Simulated,
            grounding,
            entailment_key: match grounding_config.kind {
                GroundingKind::Bernoulli => String::new(),
                kind => format!("{kind:?} {}", grounding_config.model),
            },
            grounding_key: format!("{grounding_config:?} {} {}", config.gates.tau_nli, grounding_seed(config)),
            prompt: Arc::new(prompt),
            marker: match g.answer_marker {
                AnswerMarker::First => Marker::First,
                AnswerMarker::Last => Marker::Last,
            },
            prices: Prices { prompt: g.usd_per_million_prompt, cached: None, completion: g.usd_per_million_completion },
            fingerprint: hasher.finalize().to_hex().to_string(),
            notes,
        })
    }
}

impl Parts {
    /// Whether a model is asked, rather than gold data or a recording.
    pub fn asks(&self) -> bool {
        !self.simulated && self.reader.name() != "recorded"
    }
}

/// Everything besides the request that decides an answer. The seed belongs to it only where answers are drawn by it.
fn reader_key(config: &RunConfig) -> String {
    let (g, settings) = (&config.generate, model_settings(config));
    match g.kind {
        GeneratorKind::Simulated => format!("simulated {} {}", g.simulated_accuracy, config.seed),
        kind => format!("{kind:?} {settings:?}"),
    }
}

fn grounding_seed(config: &RunConfig) -> u64 {
    match config.gates.grounding.kind {
        GroundingKind::Bernoulli => config.seed,
        GroundingKind::Lexical | GroundingKind::Nli => 0,
    }
}

/// The model settings that a request's key covers.
pub fn model_settings(config: &RunConfig) -> ModelSettings {
    let g = &config.generate;
    ModelSettings {
        base_url: g.base_url.clone(),
        model: g.model.clone(),
        max_tokens: g.max_tokens,
        temperature: g.temperature,
        attempt: 0,
    }
}

fn not_built(key: &str, instead: &str) -> Error {
    Error::request(format!("{key}: this kind is not built into this version")).with_hint(format!("use {instead}"))
}
