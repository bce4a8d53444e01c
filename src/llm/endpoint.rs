//! From a configuration to who is asked: the client of a run, its reader, its judge, its prices.
//!
//! In: the sections `[generate]` and `[judge]`. Out: an [`Endpoint`], checked so far that every request can be sent. Reader and judge
//! share cache, caps, ledger and the number of calls at a time, also where they live at two addresses.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::judge::{self, Judge, JudgePrompt};
use super::local::LocalModel;
use super::prices::{PriceTable, Quote};
use super::probe::{Probe, probe};
use super::tokens::TokenCounter;
use super::{
    Cache, CacheMode, Caps, ChatReader, ChatRequest, Client, ClientSettings, FailureKind, Ledger, Message, Profile,
    Recording, RetryPolicy, Secret, Source, Thinking, locked,
};
use crate::config::{self, GeneratorKind, JudgeKind, JudgeProfile, RunConfig};
use crate::{Error, Result};

/// Answer length assumed where the cache holds none of the model, tokens (the order of the paper's table 3).
const ASSUMED_COMPLETION_TOKENS: u64 = 1000;
/// Likewise of a judgement.
const ASSUMED_JUDGEMENT_TOKENS: u64 = 4;

/// Who is asked in a run.
pub struct Endpoint {
    /// The reader, where `generate.kind` is `api` or `gguf`.
    pub reader: Option<Arc<ChatReader>>,
    /// The judge, where `judge.kind` is `api` or `gguf`.
    pub judge: Option<Arc<Judge>>,
    /// Length of the probe's long prompt; 0 is no probe.
    probe_tokens: u32,
    /// Variables that hold the reader's and the judge's key.
    key_names: (String, String),
    /// A client of either; they share everything that is counted.
    client: Arc<Client>,
    /// What was taken by [`Endpoint::take_spent`] so far.
    taken: Mutex<Ledger>,
}

/// Calls of one model that a run would make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Calls that would go out.
    pub new_calls: u64,
    /// Calls that the cache answers.
    pub cached_calls: u64,
    /// Prompt tokens of the new calls, estimated.
    pub prompt_tokens: u64,
}

impl Endpoint {
    /// The endpoint a checked configuration asks for; `None` when no model is asked. `counter` is the reader's vocabulary.
    ///
    /// # Errors
    /// A key, prompt, price list, model file or cache that cannot be read, an address that is none, a cap in dollars without
    /// a price.
    pub fn new(config: &RunConfig, counter: Option<Arc<TokenCounter>>) -> Result<Option<Self>> {
        let (g, j) = (&config.generate, &config.judge);
        let reads = matches!(g.kind, GeneratorKind::Api | GeneratorKind::Gguf);
        let judges = matches!(j.kind, JudgeKind::Api | JudgeKind::Gguf);
        if !reads && !judges {
            return Ok(None);
        }
        let table = match g.prices.as_os_str().is_empty() {
            true => PriceTable::built_in()?,
            false => PriceTable::load(&g.prices)?,
        };
        let local = Locals::open(config)?;
        let reader_template = reads.then(|| sendable(template_of_reader(config, local.reader())?)).transpose()?;
        let judge_parts = judges
            .then(|| Ok::<_, Error>((sendable(template_of_judge(config, local.judge())?)?, judge_prompt(config)?)))
            .transpose()?;
        let cache = open_cache(config)?;
        let price = |template: &ChatRequest| table.of(&template.model);
        let prices = reader_template.as_ref().and_then(price);
        let judge_prices = judge_parts.as_ref().and_then(|(template, _)| price(template));
        let key_names = (g.api_key_env.clone(), or(&j.api_key_env, &g.api_key_env));
        let (first_local, first_key, first_price) = match reads {
            true => (local.reader(), &key_names.0, prices),
            false => (local.judge(), &key_names.1, judge_prices),
        };
        let client = match first_local {
            Some(model) => {
                let settings = ClientSettings { concurrency: 1, ..settings(config) };
                Client::over(model.transport(), settings, cache, first_price)?
            }
            None => Client::new(settings(config), Secret::from_env(first_key)?, cache, first_price)?,
        };
        let client = Arc::new(client.with_counter(counter.clone().filter(|_| reads)));
        let judge = judge_parts
            .map(|(template, prompt)| {
                let client = match (reads, local.judge()) {
                    (false, _) => Arc::clone(&client),
                    (true, Some(model)) => Arc::new(client.beside_over(model.transport(), judge_prices)?),
                    (true, None) => Arc::new(client.beside(Secret::from_env(&key_names.1)?, judge_prices)?),
                };
                let name = if local.judge().is_some() { "gguf" } else { "api" };
                let (model, source) = (template.model.clone(), Source::Client(client));
                Ok::<_, Error>(Arc::new(Judge { name, model, source, prompt, template, repeats: j.repeats }))
            })
            .transpose()?;
        let name = if local.reader().is_some() { "gguf" } else { "api" };
        let source = || Source::Client(Arc::clone(&client));
        let reader = |template| Arc::new(ChatReader::new(name, source(), template, counter));
        Ok(Some(Self {
            reader: reader_template.map(reader),
            judge,
            probe_tokens: g.probe_tokens,
            key_names,
            client,
            taken: Mutex::default(),
        }))
    }

    /// The client that counts for reader and judge alike.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether nothing may be asked.
    pub fn asks_nothing(&self) -> bool {
        matches!(self.client.cache(), Some((_, CacheMode::Only)))
    }

    /// What was done since this was last called.
    pub fn take_spent(&self) -> Ledger {
        let mut taken = locked(&self.taken);
        let now = self.client.ledger();
        let since = now.since(&taken);
        *taken = now;
        since
    }

    /// Goes on from what an earlier part of a resumed run did.
    pub fn add_before(&self, before: &Ledger) {
        let mut taken = locked(&self.taken);
        self.client.add_before(before);
        taken.add(before);
    }

    /// Looks at each model before a run: its name and what was found. Nothing where no probe is asked for or nothing may be asked.
    ///
    /// # Errors
    /// When an endpoint refuses the key, or a cap is reached.
    pub fn probe(&self) -> Result<Vec<(String, Probe)>> {
        if self.probe_tokens == 0 || self.asks_nothing() {
            return Ok(Vec::new());
        }
        let reader = self.reader.as_ref().and_then(|r| Some((r.client()?, r.template(), &self.key_names.0)));
        let judge = self.judge.as_ref().and_then(|j| Some((j.source.client()?, &j.template, &self.key_names.1)));
        let same = |a: &ChatRequest, b: &ChatRequest| a.address() == b.address() && a.model == b.model;
        let judge = judge.filter(|(_, t, key)| !reader.is_some_and(|(_, r, k)| same(r, t) && k == *key));
        let mut found = Vec::new();
        // What a model in this process does is known.
        let asked = reader.into_iter().chain(judge).filter(|(_, template, _)| !template.is_local());
        for (client, template, key) in asked {
            let one = probe(client, template, self.probe_tokens)?;
            let refused = one.answer.error.as_ref().filter(|e| e.kind == FailureKind::Unauthorized);
            if let Some(error) = refused {
                return Err(Error::request(format!("{} refuses the key: {}", template.address(), error.text))
                    .with_hint(format!("put a key that is valid there into the environment variable {key}")));
            }
            found.push((template.model.clone(), one));
        }
        Ok(found)
    }

    /// What the calls would take, by what the cache knows of the models; `seconds` is the time of one call where it knows nothing.
    ///
    /// # Errors
    /// When the cache cannot be read.
    pub fn quote(&self, reads: Tally, judges: Tally, seconds: Option<f64>) -> Result<Quote> {
        let stats = self.client.cache().map(|(cache, _)| cache.stats()).transpose()?.unwrap_or_default();
        let quote = |tally: Tally, client: &Client, template: &ChatRequest, assumed: u64| {
            let known = stats.models.iter().find(|m| m.model == template.model && m.base_url == template.address());
            let answered = known.filter(|m| m.with_usage > 0).map(|m| m.completion_tokens.div_ceil(m.with_usage));
            let mean = known.map(|m| m.elapsed_us as f64 / m.answers.max(1) as f64 / 1e6);
            let each = answered.unwrap_or(assumed.min(u64::from(template.max_tokens)));
            Quote::new(
                (tally.new_calls, tally.cached_calls),
                (tally.prompt_tokens, tally.new_calls * each),
                client.prices(),
                mean.or(seconds),
                client.concurrency(),
            )
        };
        let reader = self.reader.as_ref().and_then(|r| Some((r.client()?, r.template())));
        let judge = self.judge.as_ref().and_then(|j| Some((j.source.client()?, &j.template)));
        let reads = reader.map(|(client, template)| quote(reads, client, template, ASSUMED_COMPLETION_TOKENS));
        let judges = judge.map(|(client, template)| quote(judges, client, template, ASSUMED_JUDGEMENT_TOKENS));
        let nothing = Quote::new((0, 0), (0, 0), None, None, 1);
        Ok(reads.into_iter().chain(judges).reduce(Quote::and).unwrap_or(nothing))
    }
}

/// The models in this process that a configuration asks for; one file is opened once.
struct Locals {
    reader: Option<Arc<LocalModel>>,
    judge: Option<Arc<LocalModel>>,
}

impl Locals {
    fn open(config: &RunConfig) -> Result<Self> {
        let (g, j) = (&config.generate, &config.judge);
        let open = |path: &str, tokenizer: &Path| LocalModel::open(Path::new(path), tokenizer).map(Arc::new);
        let reader = (g.kind == GeneratorKind::Gguf).then(|| open(&g.model, &g.tokenizer)).transpose()?;
        let judge = (j.kind == JudgeKind::Gguf)
            .then(|| match &reader {
                Some(model) if j.model.is_empty() || j.model == g.model => Ok(Arc::clone(model)),
                // generate.tokenizer is that of the reader's model.
                _ => open(&j.model, Path::new("")),
            })
            .transpose()?;
        Ok(Self { reader, judge })
    }

    fn reader(&self) -> Option<&Arc<LocalModel>> {
        self.reader.as_ref()
    }

    fn judge(&self) -> Option<&Arc<LocalModel>> {
        self.judge.as_ref()
    }
}

fn or(own: &str, other: &str) -> String {
    if own.is_empty() { other.to_owned() } else { own.to_owned() }
}

/// The reader that replays a recording.
///
/// # Errors
/// Settings that no request can have.
pub fn recorded_reader(
    config: &RunConfig,
    recording: &Arc<Recording>,
    counter: Option<Arc<TokenCounter>>,
) -> Result<ChatReader> {
    let source = Source::Recording(Arc::clone(recording));
    Ok(ChatReader::new("recorded", source, template_of_reader(config, None)?, counter))
}

/// The judge that replays a recording.
///
/// # Errors
/// Settings that no request can have, a prompt that cannot be read.
pub fn recorded_judge(config: &RunConfig, recording: &Arc<Recording>) -> Result<Judge> {
    Ok(Judge {
        name: "recorded",
        model: recording.model_names(),
        source: Source::Recording(Arc::clone(recording)),
        prompt: judge_prompt(config)?,
        template: template_of_judge(config, None)?,
        repeats: config.judge.repeats,
    })
}

/// The settings of every reader's call. Without model and address where answers come from a recording, which has its own.
fn template_of_reader(config: &RunConfig, local: Option<&Arc<LocalModel>>) -> Result<ChatRequest> {
    let g = &config.generate;
    let recorded = g.kind == GeneratorKind::Recorded;
    let (base_url, model) = named(recorded, local, (&g.base_url, &g.model));
    let mut template = template(config, &base_url, &model, g.max_tokens)?;
    template.temperature = g.temperature;
    // At temperature 0 nothing is drawn, and runs of different seeds may share their answers.
    template.seed = (g.temperature > 0.0).then_some(config.seed);
    Ok(template)
}

/// The settings of every call of the judge; as [`template_of_reader`].
fn template_of_judge(config: &RunConfig, local: Option<&Arc<LocalModel>>) -> Result<ChatRequest> {
    let (g, j) = (&config.generate, &config.judge);
    let recorded = j.kind == JudgeKind::Recorded;
    let base_url = or(&j.base_url, &g.base_url);
    let (base_url, model) = named(recorded, local, (&base_url, &j.model));
    template(config, &base_url, &model, j.max_tokens)
}

/// Address and model of a call.
fn named(recorded: bool, local: Option<&Arc<LocalModel>>, own: (&str, &str)) -> (String, String) {
    match local {
        _ if recorded => (String::new(), String::new()),
        Some(model) => (model.address(), model.name().to_owned()),
        None => (own.0.to_owned(), own.1.to_owned()),
    }
}

fn template(config: &RunConfig, base_url: &str, model: &str, max_tokens: u32) -> Result<ChatRequest> {
    let g = &config.generate;
    let mut template = ChatRequest::new(base_url, model, Vec::new(), max_tokens);
    template.stream = g.stream;
    profile(g.profile).apply(thinking(g.thinking), &mut template)?;
    Ok(template)
}

/// Before anything is asked: a request of this form can be sent.
fn sendable(template: ChatRequest) -> Result<ChatRequest> {
    ChatRequest { messages: vec![Message::user("?")], ..template.clone() }.check()?;
    Ok(template)
}

/// The prompt of a configuration's judge.
fn judge_prompt(config: &RunConfig) -> Result<JudgePrompt> {
    let j = &config.judge;
    match (j.prompt.as_os_str().is_empty(), j.profile) {
        (false, _) => JudgePrompt::load(&j.prompt),
        (true, JudgeProfile::Short) => JudgePrompt::parse(judge::SHORT, "the built-in judge prompt"),
        (true, JudgeProfile::Support) => JudgePrompt::parse(judge::SUPPORT, "the built-in judge prompt"),
    }
}

/// The vocabulary that `generate.tokenizer` names.
///
/// # Errors
/// A file that is no tokenizer; a build that cannot read one.
pub fn token_counter(config: &RunConfig) -> Result<Option<Arc<TokenCounter>>> {
    let path = &config.generate.tokenizer;
    (!path.as_os_str().is_empty()).then(|| TokenCounter::load(path).map(Arc::new)).transpose()
}

fn open_cache(config: &RunConfig) -> Result<Option<(Arc<Cache>, CacheMode)>> {
    let g = &config.generate;
    match (g.cache.as_os_str().is_empty(), cache_mode(g.cache_mode)) {
        (true, CacheMode::Only) => {
            Err(Error::request("generate.cache_mode = \"only\" needs generate.cache, which is empty")
                .with_hint("name the file that holds the answers"))
        }
        (true, _) => Ok(None),
        (false, CacheMode::Only) => Ok(Some((Arc::new(Cache::open_existing(&g.cache)?), CacheMode::Only))),
        (false, mode) => Ok(Some((Arc::new(Cache::open(&g.cache)?), mode))),
    }
}

fn settings(config: &RunConfig) -> ClientSettings {
    let g = &config.generate;
    ClientSettings {
        concurrency: if g.concurrency == 0 { config.replay.lag } else { g.concurrency },
        timeout: Duration::from_secs(g.timeout_s.into()),
        retry: RetryPolicy { max_tries: g.max_tries, budget: g.retry_budget.into(), ..RetryPolicy::default() },
        caps: Caps {
            calls: (g.max_calls > 0).then_some(g.max_calls.into()),
            usd: (g.max_usd > 0.0).then_some(g.max_usd),
        },
    }
}

fn profile(profile: config::EndpointProfile) -> Profile {
    match profile {
        config::EndpointProfile::Plain => Profile::Plain,
        config::EndpointProfile::Vllm => Profile::Vllm,
        config::EndpointProfile::Dashscope => Profile::Dashscope,
        config::EndpointProfile::Ollama => Profile::Ollama,
    }
}

fn thinking(thinking: config::Thinking) -> Thinking {
    match thinking {
        config::Thinking::Default => Thinking::Default,
        config::Thinking::On => Thinking::On,
        config::Thinking::Off => Thinking::Off,
    }
}

fn cache_mode(mode: config::CacheMode) -> CacheMode {
    match mode {
        config::CacheMode::Use => CacheMode::Use,
        config::CacheMode::Refresh => CacheMode::Refresh,
        config::CacheMode::Only => CacheMode::Only,
    }
}
