//! Sends many calls and brings every one home.
//!
//! In: [`Call`]s. Out: one [`ChatOutcome`] each, in order. What the cache holds is not sent; equal calls of a batch are sent
//! once; failures that may pass are retried with pauses; a failure that stays is the outcome of its own call and of no other.
//! A whole run stops only where going on would be wrong: at a cap, at a cache that cannot be written, or, when nothing may be
//! asked, at a missing answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::cache::{Cache, CacheMode, Entry};
use super::chat::{CacheKey, Call, CallError, ChatOutcome, ChatRequest, FailureKind};
use super::clock::{Clock, SystemClock};
use super::gate::{Caps, Ended, Gate};
use super::http::Http;
use super::ledger::Ledger;
use super::locked;
use super::outcome::{Came, answered, estimated_usd, failed, most_usd, said, shortened};
use super::reply::{self, Reply};
use super::retry::{self, RetryPolicy};
use super::secret::Secret;
use super::tokens::TokenCounter;
use super::transport::Transport;
use crate::generate::Prices;
use crate::{Error, Result};

/// How a client behaves.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientSettings {
    /// Most calls at a time.
    pub concurrency: u32,
    /// Time for one try, from connecting to the last byte.
    pub timeout: Duration,
    /// When a call is asked again.
    pub retry: RetryPolicy,
    /// Where the client stops.
    pub caps: Caps,
}

impl Default for ClientSettings {
    /// Sixteen calls at a time, two minutes each, no caps.
    fn default() -> Self {
        Self {
            concurrency: 16,
            timeout: Duration::from_secs(120),
            retry: RetryPolicy::default(),
            caps: Caps::default(),
        }
    }
}

/// What a batch would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Planned {
    /// Calls that would go out.
    pub new_calls: u64,
    /// Calls that the cache, or an equal call of the batch, answers.
    pub cached_calls: u64,
    /// Prompt tokens of the new calls, estimated.
    pub prompt_tokens: u64,
    /// Most completion tokens of the new calls.
    pub most_completion_tokens: u64,
}

/// A client of one endpoint.
pub struct Client {
    transport: Box<dyn Transport>,
    gate: Arc<Gate>,
    settings: ClientSettings,
    cache: Option<(Arc<Cache>, CacheMode)>,
    prices: Option<Prices>,
    counter: Option<Arc<TokenCounter>>,
    clock: Arc<dyn Clock>,
    ledger: Arc<Mutex<Ledger>>,
    /// What the first call that was given up heard, for each kind of failure.
    heard: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

/// A call with what is computed from it once.
struct Prepared<'a> {
    call: &'a Call,
    body: String,
    key: CacheKey,
}

/// One try that failed.
struct Failure {
    error: CallError,
    asked_pause: Option<Duration>,
}

impl Client {
    /// A client that sends `key` with every request, keeps answers in `cache` and counts dollars by `prices`.
    ///
    /// # Errors
    /// When this build has no HTTP client, or dollars are capped without a price.
    pub fn new(
        settings: ClientSettings,
        key: Option<Secret>,
        cache: Option<(Arc<Cache>, CacheMode)>,
        prices: Option<Prices>,
    ) -> Result<Self> {
        let http = Http::new(settings.timeout, settings.concurrency, key)?;
        Self::over(Box::new(http), settings, cache, prices)
    }

    /// A client of whatever `transport` leads to.
    pub(super) fn over(
        transport: Box<dyn Transport>,
        settings: ClientSettings,
        cache: Option<(Arc<Cache>, CacheMode)>,
        prices: Option<Prices>,
    ) -> Result<Self> {
        if settings.caps.usd.is_some() && prices.is_none() {
            return Err(no_price());
        }
        let gate = Gate::new(settings.concurrency, settings.caps);
        Ok(Self {
            transport,
            gate: Arc::new(gate),
            settings,
            cache,
            prices,
            counter: None,
            clock: Arc::new(SystemClock::default()),
            ledger: Arc::default(),
            heard: Arc::default(),
        })
    }

    /// A client with another key and price that shares all else: cache, caps, calls at a time and ledger. For a second model of
    /// the same run.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn beside(&self, key: Option<Secret>, prices: Option<Prices>) -> Result<Self> {
        let http = Http::new(self.settings.timeout, self.settings.concurrency, key)?;
        self.beside_over(Box::new(http), prices)
    }

    /// As [`Client::beside`], of whatever `transport` leads to.
    pub(super) fn beside_over(&self, transport: Box<dyn Transport>, prices: Option<Prices>) -> Result<Self> {
        if self.settings.caps.usd.is_some() && prices.is_none() {
            return Err(no_price());
        }
        Ok(Self {
            transport,
            gate: Arc::clone(&self.gate),
            settings: self.settings.clone(),
            cache: self.cache.clone(),
            prices,
            counter: None,
            clock: Arc::clone(&self.clock),
            ledger: Arc::clone(&self.ledger),
            heard: Arc::clone(&self.heard),
        })
    }

    /// Goes on from what an earlier part of a resumed run did: it counts against caps and retries, and in the ledger.
    pub fn add_before(&self, before: &Ledger) {
        self.gate.add_before(before.sent, before.usd);
        locked(&self.ledger).add(before);
    }

    /// Tokens of prompts and answers are counted with the model's own vocabulary where the endpoint does not.
    #[must_use]
    pub fn with_counter(self, counter: Option<Arc<TokenCounter>>) -> Self {
        Self { counter, ..self }
    }

    /// The vocabulary it counts with.
    pub fn counter(&self) -> Option<&TokenCounter> {
        self.counter.as_deref()
    }

    /// The prices it counts by.
    pub fn prices(&self) -> Option<Prices> {
        self.prices
    }

    /// Most calls at a time.
    pub fn concurrency(&self) -> u32 {
        self.settings.concurrency
    }

    /// The cache and what it is for.
    pub fn cache(&self) -> Option<(&Cache, CacheMode)> {
        self.cache.as_ref().map(|(cache, mode)| (cache.as_ref(), *mode))
    }

    /// What the cache holds for each call, where it may be used; nothing is asked and nothing is counted.
    ///
    /// # Errors
    /// When a request cannot be sent, or the cache not be read.
    pub fn kept_outcomes(&self, calls: &[Call]) -> Result<Vec<Option<ChatOutcome>>> {
        let (prepared, _) = prepare(calls)?;
        prepared.iter().map(|p| self.kept(&p.key)?.map(|entry| self.outcome(p, entry, true)).transpose()).collect()
    }

    /// The same client with another clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// What was done so far.
    pub fn ledger(&self) -> Ledger {
        locked(&self.ledger).clone()
    }

    /// Of each kind of failure in this process, what the first call that was given up heard.
    pub fn heard(&self) -> BTreeMap<&'static str, String> {
        locked(&self.heard).clone()
    }

    /// What `calls` would take, without asking anything.
    ///
    /// # Errors
    /// When a request cannot be sent, or the cache not be read.
    pub fn plan(&self, calls: &[Call]) -> Result<Planned> {
        let (prepared, first) = prepare(calls)?;
        let mut planned = Planned { cached_calls: (calls.len() - first.len()) as u64, ..Planned::default() };
        for &at in first.values() {
            if self.kept(&prepared[at].key)?.is_some() {
                planned.cached_calls += 1;
            } else {
                planned.new_calls += 1;
                planned.prompt_tokens += u64::from(calls[at].request.estimated_prompt_tokens());
                planned.most_completion_tokens += u64::from(calls[at].request.max_tokens);
            }
        }
        Ok(planned)
    }

    /// One outcome a call, in the order of the calls.
    ///
    /// # Errors
    /// At a request that can never be sent (before any is), at a cap, at a cache that fails, and in the mode `only` at a missing
    /// answer, naming its question. Answers that came before are in the cache.
    pub fn complete(&self, calls: &[Call]) -> Result<Vec<ChatOutcome>> {
        let (prepared, first) = prepare(calls)?;
        let mut outcomes: Vec<Option<ChatOutcome>> = Vec::new();
        outcomes.resize_with(calls.len(), || None);
        let mut missing = Vec::new();
        for &at in first.values() {
            match self.kept(&prepared[at].key)? {
                Some(entry) => outcomes[at] = Some(self.outcome(&prepared[at], entry, true)?),
                None => missing.push(at),
            }
        }
        // Sent in the order of the calls, so that an interrupted run is complete up to somewhere.
        missing.sort_unstable();
        let cached = (first.len() - missing.len()) as u64;
        if let (Some((cache, CacheMode::Only)), Some(&at)) = (&self.cache, missing.first()) {
            return Err(Error::work(format!(
                "no answer is kept for the question {:?} ({}; {} of {} are missing in {})",
                calls[at].question,
                calls[at].request.model,
                missing.len(),
                first.len(),
                cache.path().display()
            ))
            .with_hint(
                "nothing may be asked in the cache mode \"only\": import the answers, or use the mode \"use\"",
            ));
        }
        {
            let mut ledger = locked(&self.ledger);
            ledger.cached += cached;
            ledger.shared += (calls.len() - first.len()) as u64;
        }
        for (at, outcome) in self.ask_all(&prepared, &missing)? {
            outcomes[at] = Some(outcome);
        }
        let shared: Vec<_> = prepared.iter().map(|p| first.get(&p.key).copied()).collect();
        shared
            .into_iter()
            .map(|at| {
                at.and_then(|at| outcomes[at].clone()).ok_or_else(|| Error::work("a call came back without an outcome"))
            })
            .collect()
    }

    /// Asks one request past the cache; counted and capped like any other.
    ///
    /// # Errors
    /// As [`Client::complete`].
    pub fn ask(&self, request: ChatRequest) -> Result<ChatOutcome> {
        let call = Call { question: String::new(), attempt: 0, request };
        let (prepared, _) = prepare(std::slice::from_ref(&call))?;
        self.send(&prepared[0], None, &AtomicBool::new(false))
    }

    /// What the cache holds for a key, where it may be used.
    fn kept(&self, key: &CacheKey) -> Result<Option<Entry>> {
        match &self.cache {
            Some((cache, CacheMode::Use | CacheMode::Only)) => cache.get(key),
            Some((_, CacheMode::Refresh)) | None => Ok(None),
        }
    }

    /// The outcome that a kept body stands for: the same whether it just came or came years ago.
    fn outcome(&self, prepared: &Prepared<'_>, entry: Entry, cached: bool) -> Result<ChatOutcome> {
        let reply = reply::parse(&entry.body).map_err(|text| {
            Error::work(format!("the kept answer for the question {:?} cannot be read: {text}", prepared.call.question))
                .with_hint("use the cache mode \"refresh\" to ask again")
        })?;
        let came = Came { elapsed_us: entry.elapsed_us, tries: entry.tries, cached };
        Ok(answered(reply, &prepared.call.request, self.counter(), came))
    }

    /// Sends the calls at `missing`, several at a time.
    fn ask_all(&self, prepared: &[Prepared<'_>], missing: &[usize]) -> Result<Vec<(usize, ChatOutcome)>> {
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let done = Mutex::new(Vec::with_capacity(missing.len()));
        let failed = Mutex::new(None);
        let work = || {
            while !stop.load(Ordering::Relaxed)
                && let Some(&at) = missing.get(next.fetch_add(1, Ordering::Relaxed))
            {
                match self.send(&prepared[at], self.cache.as_ref(), &stop) {
                    Ok(outcome) => locked(&done).push((at, outcome)),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        locked(&failed).get_or_insert(error);
                    }
                }
            }
        };
        let workers = missing.len().min(self.settings.concurrency.max(1) as usize);
        std::thread::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(work);
            }
            work();
        });
        let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        failed.map_or_else(|| Ok(done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)), Err)
    }

    /// Sends one call until it is answered or given up.
    fn send(
        &self,
        prepared: &Prepared<'_>,
        cache: Option<&(Arc<Cache>, CacheMode)>,
        stop: &AtomicBool,
    ) -> Result<ChatOutcome> {
        let request = &prepared.call.request;
        let url = request.url();
        let worst = self.prices.map_or(0.0, |prices| most_usd(&prices, request));
        let mut tries = 0;
        loop {
            let permit = self.gate.enter(worst)?;
            tries += 1;
            locked(&self.ledger).sent += 1;
            let started = self.clock.now();
            let tried = self.try_once(&url, &prepared.body);
            let elapsed_us = u64::try_from((self.clock.now().saturating_sub(started)).as_micros()).unwrap_or(u64::MAX);
            let failure = match tried {
                Ok((body, reply)) => {
                    let usd = self.prices.map_or(0.0, |prices| estimated_usd(&prices, request, &reply));
                    self.gate.leave(permit, Ended::Success, usd);
                    let entry = Entry {
                        key: prepared.key,
                        base_url: request.address().to_owned(),
                        model: request.model.clone(),
                        settings: request.settings(),
                        attempt: prepared.call.attempt,
                        question: prepared.call.question.clone(),
                        body,
                        usage: reply.usage,
                        elapsed_us,
                        tries,
                        created: self.clock.unix_seconds(),
                    };
                    // First on disk, then into anyone's hands.
                    let entry = match cache {
                        Some((cache, mode)) => cache.put(entry, *mode == CacheMode::Refresh)?,
                        None => entry,
                    };
                    let outcome = self.outcome(prepared, entry, false)?;
                    self.count(&outcome, usd);
                    return Ok(outcome);
                }
                Err(failure) => failure,
            };
            let kind = failure.error.kind;
            let ended = if kind == FailureKind::RateLimited { Ended::RateLimited } else { Ended::Otherwise };
            let slowed = self.gate.leave(permit, ended, 0.0);
            let mut ledger = locked(&self.ledger);
            ledger.slowed += u64::from(slowed);
            let budget_left = ledger.retried() < self.settings.retry.budget;
            if !kind.is_retried()
                || tries >= self.settings.retry.max_tries
                || !budget_left
                || stop.load(Ordering::Relaxed)
            {
                ledger.count_failure(kind);
                locked(&self.heard).entry(kind.as_str()).or_insert_with(|| failure.error.text.clone());
                let mut error = failure.error;
                if kind.is_retried() && !budget_left {
                    error.text =
                        format!("{} (the retry budget of {} is spent)", error.text, self.settings.retry.budget);
                }
                return Ok(failed(error, elapsed_us, tries));
            }
            let pause = self.settings.retry.pause(&prepared.key, tries, failure.asked_pause);
            ledger.count_retry(kind);
            ledger.paused_ms += u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            drop(ledger);
            self.clock.sleep(pause);
        }
    }

    /// Sends once; the body and what it says, or what went wrong.
    fn try_once(&self, url: &str, body: &str) -> std::result::Result<(String, Reply), Failure> {
        let failure = |kind, http_status, text: &str, asked_pause| Failure {
            error: CallError { kind, http_status, text: shortened(&self.transport.redact(text)) },
            asked_pause,
        };
        let got = self.transport.post(url, body).map_err(|(kind, text)| failure(kind, None, &text, None))?;
        if !(200..300).contains(&got.status) {
            let asked = retry::asked_pause(
                got.retry_after.as_deref(),
                got.retry_after_ms.as_deref(),
                self.clock.unix_seconds(),
            );
            let said = said(&got.body);
            let text = format!("HTTP {}{}{said}", got.status, if said.is_empty() { "" } else { ": " });
            return Err(failure(FailureKind::of_status(got.status), Some(got.status), &text, asked));
        }
        match reply::parse(&got.body) {
            Ok(reply) => Ok(self.without_key(got.body, reply)),
            Err(text) => Err(failure(FailureKind::InvalidReply, Some(got.status), &text, None)),
        }
    }

    /// A key that came back in pieces of a stream or with escapes is seen only in what the reply says: then a body is kept that says the
    /// same without it.
    fn without_key(&self, body: String, mut reply: Reply) -> (String, Reply) {
        let holds_key = |text: &str| self.transport.holds_key(text);
        if !holds_key(&reply.content) && !holds_key(&reply.reasoning) && !reply::any_string(&body, &holds_key) {
            return (body, reply);
        }
        reply.content = self.transport.redact(&reply.content);
        reply.reasoning = self.transport.redact(&reply.reasoning);
        reply.finish_reason = reply.finish_reason.map(|reason| self.transport.redact(&reason));
        (reply.body(), reply)
    }

    fn count(&self, outcome: &ChatOutcome, usd: f64) {
        let mut ledger = locked(&self.ledger);
        ledger.count_answer(outcome.status);
        ledger.prompts_maybe_cut += u64::from(outcome.prompt_maybe_cut);
        ledger.without_usage += u64::from(outcome.usage.completion_tokens.is_none());
        ledger.usd += usd;
    }
}

fn no_price() -> Error {
    Error::request("a cap in dollars needs the model's price, and the price list has none")
        .with_hint("add the model to the list that generate.prices names, or cap the calls with generate.max_calls")
}

/// Checks every request, and finds the first call of each key.
fn prepare(calls: &[Call]) -> Result<(Vec<Prepared<'_>>, BTreeMap<CacheKey, usize>)> {
    let mut prepared = Vec::with_capacity(calls.len());
    let mut first = BTreeMap::new();
    for (at, call) in calls.iter().enumerate() {
        call.request.check()?;
        let body = call.request.body();
        let key = CacheKey::of(call, &body);
        first.entry(key).or_insert(at);
        prepared.push(Prepared { call, body, key });
    }
    Ok((prepared, first))
}
