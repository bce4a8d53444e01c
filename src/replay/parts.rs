//! The exchangeable parts of a run, from its configuration: reader, judge, grounding scorer, prompt.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::config::{GeneratorKind, GroundingKind, JudgeKind, RunConfig};
use crate::gates::bernoulli::BernoulliScorer;
use crate::gates::grounding::GroundingScorer;
use crate::gates::lexical::LexicalScorer;
use crate::gates::models::GroundingModels;
use crate::generate::{
    CutTokens, FourBytes, Generator, Marker, PassageBudget, Prices, PromptTemplate, Response, SimulatedReader, cost_usd,
};
use crate::llm::judge::Judge;
use crate::llm::prices::PriceTable;
use crate::llm::{Endpoint, Recording, TokenCounter, recorded_judge, recorded_reader, token_counter};
use crate::replay::quote::Rehearsal;
use crate::replay::rescore::marker;
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
    /// Name of the model that answers or answered; empty where there is none.
    pub model: String,
    /// How much of the passages a prompt has room for; `None` is no limit.
    pub budget: Option<PassageBudget>,
    /// Identity of the budget: equal passages under equal keys are cut equally.
    pub budget_key: String,
    /// What computes GS; never asked by a method without gates.
    pub grounding: Arc<dyn GroundingScorer>,
    /// Identity of the scorer: scorers with equal keys give equal candidates equal grounding.
    pub grounding_key: String,
    /// Identity of the entailment underneath: equal pairs have equal support, whatever the thresholds. Empty: no pair is scored.
    pub entailment_key: String,
    /// Memory that the grounding model takes, bytes.
    pub grounding_bytes: u64,
    /// The prompt.
    pub prompt: Arc<PromptTemplate>,
    /// Which answer marker counts.
    pub marker: Marker,
    /// Prices of the reader's tokens; `None` when the price list has none for its model.
    pub prices: Option<Prices>,
    /// What judges answers, if anything does.
    pub judge: Option<Arc<Judge>>,
    /// Who is asked by reader and judge; `None` when no model is.
    pub endpoint: Option<Arc<Endpoint>>,
    /// Set while a run is only rehearsed.
    pub(super) rehearsal: Option<Arc<Rehearsal>>,
    /// blake3 of everything here that is not in the configuration: prompt texts, recording, prices.
    pub fingerprint: String,
    /// What the user should hear, for example that a recording's last line was torn.
    pub notes: Vec<String>,
    /// What the manifest should say beside them: price list, judge.
    pub facts: Vec<String>,
}

/// Parts of many runs; what equal settings have in common, for example a recording or a model, is opened once.
#[derive(Default)]
pub struct PartsPool {
    known: BTreeMap<String, Parts>,
    models: GroundingModels,
}

impl PartsPool {
    /// The parts of one more run.
    ///
    /// # Errors
    /// As [`Parts::new`].
    pub fn parts(&mut self, config: &RunConfig) -> Result<Parts> {
        let key = format!(
            "{:?} {:?} {:?} {} {} {} {:?}",
            config.generate,
            config.judge,
            config.gates,
            config.method.is_gated(),
            config.seed,
            config.replay.lag,
            config.backend.kind
        );
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let parts = Parts::with_models(config, &mut self.models)?;
        self.known.insert(key, parts.clone());
        Ok(parts)
    }
}

impl Parts {
    /// Builds the parts a checked configuration asks for.
    ///
    /// # Errors
    /// A prompt or recording that cannot be read, a model that is not there; a kind this build does not have.
    pub fn new(config: &RunConfig) -> Result<Self> {
        Self::with_models(config, &mut GroundingModels::default())
    }

    /// As [`Parts::new`], with the models that other parts have opened.
    fn with_models(config: &RunConfig, models: &mut GroundingModels) -> Result<Self> {
        let g = &config.generate;
        let prompt = match g.prompt.as_os_str().is_empty() {
            true => PromptTemplate::builtin()?,
            false => PromptTemplate::load(&g.prompt)?,
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(prompt.hash().as_bytes());
        let (mut notes, mut facts) = (Vec::new(), Vec::new());
        let counter = token_counter(config)?;
        if let Some(counter) = &counter {
            // The file's path takes no part in the run id; what is in it does.
            hasher.update(counter.fingerprint().as_bytes());
        }
        let (budget, budget_key) = budget(config, counter.as_ref());
        facts.extend(budget.as_ref().map(|_| format!("passage budget: {budget_key}")));
        let endpoint = Endpoint::new(config, counter.clone())?.map(Arc::new);
        let api = endpoint.as_ref().and_then(|e| e.reader.clone());
        let recordings = Recordings::open(config)?;
        for recording in recordings.each() {
            hasher.update(recording.fingerprint().as_bytes());
            facts.extend(recording.provenance());
            if recording.torn_tail() {
                notes.push(format!("{}: the last line is torn and was left out", recording.path().display()));
            }
        }
        let judge = match &recordings.judge {
            Some(recording) => Some(Arc::new(recorded_judge(config, recording)?)),
            None => endpoint.as_ref().and_then(|e| e.judge.clone()),
        };
        let (reader, model): (Arc<dyn Generator>, String) = match (g.kind, &recordings.reader, api) {
            (GeneratorKind::Recorded, Some(recording), _) => {
                (Arc::new(recorded_reader(config, recording, counter)?), recording.model_names())
            }
            (GeneratorKind::Api | GeneratorKind::Gguf, _, Some(reader)) => {
                let model = reader.template().model.clone();
                // A model in this process has the fingerprint of its file in its address.
                hasher.update(reader.template().local_address().as_bytes());
                (reader, model)
            }
            (GeneratorKind::Simulated, ..) => {
                (Arc::new(SimulatedReader { seed: config.seed, accuracy: g.simulated_accuracy }), String::new())
            }
            _ => return Err(Error::work("the configuration's reader was not made")),
        };
        let prices = match g.kind {
            GeneratorKind::Simulated => Some(Prices {
                prompt: g.usd_per_million_prompt,
                cached: None,
                completion: g.usd_per_million_completion,
            }),
            _ => {
                let table = match g.prices.as_os_str().is_empty() {
                    true => PriceTable::built_in()?,
                    false => PriceTable::load(&g.prices)?,
                };
                let prices = table.of(&model);
                // A price reaches every row, so another price is another run.
                hasher.update(format!("{} {prices:?}", table.version()).as_bytes());
                let known = if prices.is_some() { "" } else { ", which has no price for the model: costs are null" };
                facts.push(format!("prices: list {}{known}", table.version()));
                prices
            }
        };
        if let Some(judge) = &judge {
            hasher.update(judge.prompt.hash().as_bytes());
            hasher.update(judge.template.local_address().as_bytes());
            facts.push(format!(
                "judge: prompt {}, profile {}, judged {} time{}",
                judge.prompt.hash().get(..12).unwrap_or_default(),
                config.judge.profile.as_str(),
                judge.repeats,
                if judge.repeats == 1 { "" } else { "s" }
            ));
        }
        let grounding = Grounding::new(config, models)?;
        hasher.update(grounding.model_key.as_bytes());
        facts.extend(grounding.fact);
        Ok(Self {
            reader,
            reader_key: format!("{} {budget_key}", reader_key(config)),
            simulated: g.kind == GeneratorKind::Simulated,
            model,
            budget,
            budget_key,
            grounding: grounding.scorer,
            entailment_key: grounding.entailment_key,
            grounding_key: grounding.key,
            grounding_bytes: grounding.bytes,
            prompt: Arc::new(prompt),
            marker: marker(g.answer_marker),
            prices,
            judge,
            endpoint,
            rehearsal: None,
            fingerprint: hasher.finalize().to_hex().to_string(),
            notes,
            facts,
        })
    }
}

impl Parts {
    /// Whether a model is asked, rather than gold data or a recording.
    pub fn asks(&self) -> bool {
        !self.simulated && self.reader.name() != "recorded"
    }

    /// Dollars of one answer; `None` without a price, without token counts, and where an endpoint did not report them.
    pub fn cost(&self, response: &Response) -> Option<f64> {
        let guessed = response.tokens_estimated && !self.simulated;
        self.prices.filter(|_| !guessed).and_then(|prices| cost_usd(&response.usage, &prices))
    }
}

/// The recordings that a configuration replays; one file is read once.
struct Recordings {
    reader: Option<Arc<Recording>>,
    judge: Option<Arc<Recording>>,
}

impl Recordings {
    fn open(config: &RunConfig) -> Result<Self> {
        let (g, j) = (&config.generate, &config.judge);
        let open = |path: &str| Recording::open(Path::new(path)).map(Arc::new);
        let reader = (g.kind == GeneratorKind::Recorded).then(|| open(&g.model)).transpose()?;
        let judge = (j.kind == JudgeKind::Recorded)
            .then(|| match &reader {
                Some(recording) if j.model.is_empty() || j.model == g.model => Ok(Arc::clone(recording)),
                _ => open(&j.model),
            })
            .transpose()?;
        Ok(Self { reader, judge })
    }

    /// Both, or the one that both are.
    fn each(&self) -> impl Iterator<Item = &Recording> {
        let same = matches!((&self.reader, &self.judge), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
        self.reader.iter().chain(self.judge.iter().filter(move |_| !same)).map(AsRef::as_ref)
    }
}

/// The passage budget, and in words what it comes to.
fn budget(config: &RunConfig, counter: Option<&Arc<TokenCounter>>) -> (Option<PassageBudget>, String) {
    let tokens = config.generate.passage_budget;
    if tokens == 0 {
        return (None, String::new());
    }
    let (cutter, how): (Arc<dyn CutTokens>, String) = match counter {
        Some(counter) => {
            let fingerprint = counter.fingerprint();
            (
                Arc::clone(counter) as _,
                format!("counted by the tokenizer {}", fingerprint.get(..12).unwrap_or(fingerprint)),
            )
        }
        None => (Arc::new(FourBytes), "at four bytes a token".to_owned()),
    };
    (Some(PassageBudget { tokens, cutter }), format!("{tokens} tokens, {how}"))
}

/// Everything besides the request that decides an answer. The seed belongs to it only where answers are drawn by it.
fn reader_key(config: &RunConfig) -> String {
    let g = &config.generate;
    match g.kind {
        GeneratorKind::Simulated => format!("simulated {} {}", g.simulated_accuracy, config.seed),
        kind => {
            let seed = if g.temperature > 0.0 { config.seed } else { 0 };
            format!(
                "{kind:?} {:?} {:?} {} {} {:?} {:?} {} {seed}",
                g.base_url, g.model, g.max_tokens, g.temperature, g.profile, g.thinking, g.stream
            )
        }
    }
}

/// The scorer of a run with its identities; see [`Parts`].
struct Grounding {
    scorer: Arc<dyn GroundingScorer>,
    key: String,
    entailment_key: String,
    /// Fingerprint and precision of its model; empty without one.
    model_key: String,
    bytes: u64,
    fact: Option<String>,
}

impl Grounding {
    fn new(config: &RunConfig, models: &mut GroundingModels) -> Result<Self> {
        let (gates, tau_nli) = (&config.gates, config.gates.tau_nli);
        let plain = |scorer: Arc<dyn GroundingScorer>, key: String, entailment_key: &str| Self {
            scorer,
            key,
            entailment_key: entailment_key.to_owned(),
            model_key: String::new(),
            bytes: 0,
            fact: None,
        };
        Ok(match gates.grounding.kind {
            GroundingKind::Bernoulli => {
                let (seed, p) = (config.seed, gates.grounding.p);
                plain(Arc::new(BernoulliScorer { seed, p }), format!("bernoulli {seed} {p}"), "")
            }
            // A method without gates asks nobody, so it needs no model.
            GroundingKind::Nli if config.method.is_gated() => {
                let model = models.nli(&gates.grounding, tau_nli, config.backend.kind)?;
                let fact = format!(
                    "grounding: {}, {} evidence sentences a claim with {} to either side; pairs are packed, without padding",
                    model.scorer.model(),
                    gates.evidence_per_claim,
                    gates.grounding.window
                );
                Self {
                    scorer: model.scorer,
                    key: format!("nli {} {tau_nli}", model.key),
                    entailment_key: format!("nli {}", model.key),
                    model_key: model.key,
                    bytes: model.bytes,
                    fact: Some(fact),
                }
            }
            GroundingKind::Lexical | GroundingKind::Nli => {
                plain(Arc::new(LexicalScorer { tau_nli }), format!("lexical {tau_nli}"), "lexical")
            }
        })
    }
}

fn not_built(key: &str, instead: &str) -> Error {
    Error::request(format!("{key}: this kind is not built into this version")).with_hint(format!("use {instead}"))
}
