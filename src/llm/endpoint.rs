//! From a configuration to who is asked: the client of a run, its reader, its judge, its prices.
//!
//! In: the sections `[generate]` and `[judge]`. Out: an [`Endpoint`], checked so far that every request can be sent. Reader and judge
//! share cache, caps, ledger and the number of calls at a time, also where they live at two addresses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::judge::{self, Judge, JudgePrompt};
use super::prices::{PriceTable, Quote};
use super::probe::{Probe, probe};
use super::{
    ApiReader, Cache, CacheMode, Caps, ChatRequest, Client, ClientSettings, FailureKind, Message, Profile, RetryPolicy,
    Secret, Spent, Thinking, locked,
};
use crate::config::{self, GeneratorKind, JudgeKind, JudgeProfile, RunConfig};
use crate::generate::Prices;
use crate::{Error, Result};

/// Answer length assumed where the cache holds none of the model, tokens (the order of the paper's table 3).
const ASSUMED_COMPLETION_TOKENS: u64 = 1000;
/// Likewise of a judgement.
const ASSUMED_JUDGEMENT_TOKENS: u64 = 4;

/// Who is asked in a run.
pub struct Endpoint {
    /// The reader, where `generate.kind` is `api`.
    pub reader: Option<Arc<ApiReader>>,
    /// The judge, where `judge.kind` is `api`.
    pub judge: Option<Arc<Judge>>,
    /// The reader's price; `None` when the price list has none, and then costs are null.
    pub prices: Option<Prices>,
    /// Version of the price list.
    pub price_version: String,
    /// Length of the probe's long prompt; 0 is no probe.
    probe_tokens: u32,
    /// Variables that hold the reader's and the judge's key.
    key_names: (String, String),
    /// A client of either; they share everything that is counted.
    client: Arc<Client>,
    /// What was taken by [`Endpoint::take_spent`] so far.
    taken: Mutex<Spent>,
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
    /// The endpoint a checked configuration asks for; `None` when no model is asked.
    ///
    /// # Errors
    /// A key, prompt, price list or cache that cannot be read, an address that is none, a cap in dollars without a price.
    pub fn new(config: &RunConfig) -> Result<Option<Self>> {
        let (g, j) = (&config.generate, &config.judge);
        let (reads, judges) = (g.kind == GeneratorKind::Api, j.kind == JudgeKind::Api);
        if !reads && !judges {
            return Ok(None);
        }
        let table = match g.prices.as_os_str().is_empty() {
            true => PriceTable::built_in()?,
            false => PriceTable::load(&g.prices)?,
        };
        let or = |own: &String, other: &String| if own.is_empty() { other.clone() } else { own.clone() };
        let key_names = (g.api_key_env.clone(), or(&j.api_key_env, &g.api_key_env));
        let template = |base_url: &str, model: &str, max_tokens| {
            let mut template = ChatRequest::new(base_url, model, Vec::new(), max_tokens);
            template.stream = g.stream;
            profile(g.profile).apply(thinking(g.thinking), &mut template)?;
            // Before anything is asked: a request of this form can be sent.
            ChatRequest { messages: vec![Message::user("?")], ..template.clone() }.check()?;
            Ok::<_, Error>(template)
        };
        let reader_template = reads
            .then(|| {
                let mut template = template(&g.base_url, &g.model, g.max_tokens)?;
                template.temperature = g.temperature;
                // At temperature 0 nothing is drawn, and runs of different seeds may share their answers.
                template.seed = (g.temperature > 0.0).then_some(config.seed);
                Ok::<_, Error>(template)
            })
            .transpose()?;
        let judge_parts = judges
            .then(|| {
                let template = template(&or(&j.base_url, &g.base_url), &j.model, j.max_tokens)?;
                let prompt = match (j.prompt.as_os_str().is_empty(), j.profile) {
                    (false, _) => JudgePrompt::load(&j.prompt)?,
                    (true, JudgeProfile::Short) => JudgePrompt::parse(judge::SHORT, "the built-in judge prompt")?,
                    (true, JudgeProfile::Support) => JudgePrompt::parse(judge::SUPPORT, "the built-in judge prompt")?,
                };
                Ok::<_, Error>((template, prompt))
            })
            .transpose()?;
        let cache = match (g.cache.as_os_str().is_empty(), cache_mode(g.cache_mode)) {
            (true, CacheMode::Only) => {
                return Err(Error::request("generate.cache_mode = \"only\" needs generate.cache, which is empty")
                    .with_hint("name the file that holds the answers"));
            }
            (true, _) => None,
            (false, CacheMode::Only) => Some((Arc::new(Cache::open_existing(&g.cache)?), CacheMode::Only)),
            (false, mode) => Some((Arc::new(Cache::open(&g.cache)?), mode)),
        };
        let prices = reads.then(|| table.of(&g.model)).flatten();
        let judge_prices = judges.then(|| table.of(&j.model)).flatten();
        let (first_key, first_price) = if reads { (&key_names.0, prices) } else { (&key_names.1, judge_prices) };
        let client = Arc::new(Client::new(settings(config), Secret::from_env(first_key)?, cache, first_price)?);
        let judge = judge_parts
            .map(|(template, prompt)| {
                let client = match reads {
                    true => Arc::new(client.beside(Secret::from_env(&key_names.1)?, judge_prices)?),
                    false => Arc::clone(&client),
                };
                Ok::<_, Error>(Arc::new(Judge { client, prompt, template, repeats: j.repeats }))
            })
            .transpose()?;
        Ok(Some(Self {
            reader: reader_template.map(|template| Arc::new(ApiReader::new(Arc::clone(&client), template))),
            judge,
            prices,
            price_version: table.version().to_owned(),
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

    /// What was spent since this was last called.
    pub fn take_spent(&self) -> Spent {
        let mut taken = locked(&self.taken);
        let now = self.client.ledger().spent();
        let since = Spent { calls: now.calls.saturating_sub(taken.calls), usd: (now.usd - taken.usd).max(0.0) };
        *taken = now;
        since
    }

    /// Looks at each model before a run: its name and what was found. Nothing where no probe is asked for or nothing may be asked.
    ///
    /// # Errors
    /// When an endpoint refuses the key, or a cap is reached.
    pub fn probe(&self) -> Result<Vec<(String, Probe)>> {
        if self.probe_tokens == 0 || self.asks_nothing() {
            return Ok(Vec::new());
        }
        let reader = self.reader.as_ref().map(|r| (r.client(), r.template(), &self.key_names.0));
        let judge = self.judge.as_ref().map(|j| (j.client.as_ref(), &j.template, &self.key_names.1));
        let same = |a: &ChatRequest, b: &ChatRequest| a.address() == b.address() && a.model == b.model;
        let judge = judge.filter(|(_, t, key)| !reader.is_some_and(|(_, r, k)| same(r, t) && k == *key));
        let mut found = Vec::new();
        for (client, template, key) in reader.into_iter().chain(judge) {
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
        let reads = self.reader.as_ref().map(|r| quote(reads, r.client(), r.template(), ASSUMED_COMPLETION_TOKENS));
        let judges = self.judge.as_ref().map(|j| quote(judges, &j.client, &j.template, ASSUMED_JUDGEMENT_TOKENS));
        let nothing = Quote::new((0, 0), (0, 0), None, None, 1);
        Ok(reads.into_iter().chain(judges).reduce(Quote::and).unwrap_or(nothing))
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
        ..ClientSettings::default()
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
