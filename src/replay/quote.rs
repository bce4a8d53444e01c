//! What a run will ask, before it asks: a rehearsal with the answers that are kept.
//!
//! In: a run. Out: how many calls of reader and judge are new and how many the cache answers. The run is gone through once without a
//! journal; an answer that is not kept counts as new and leaves no experience behind, so that counts are exact as far as answers are
//! kept and an estimate beyond.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;
use crate::generate::{Generator, LlmStatus, Request, Response, Usage};
use crate::llm::{self, Call, ChatReader, Client, Tally};
use crate::replay::driver;
use crate::replay::run::Run;
use crate::replay::session::Session;
use crate::replay::shared::Work;

/// Prompt tokens of a judgement whose answer is not known yet.
const ASSUMED_JUDGE_PROMPT_TOKENS: u64 = 250;

/// What a run will ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Planned {
    /// Of the reader.
    pub reader: Tally,
    /// Of the judge.
    pub judge: Tally,
}

impl Planned {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (sum, one) in [(&mut self.reader, &other.reader), (&mut self.judge, &other.judge)] {
            sum.new_calls += one.new_calls;
            sum.cached_calls += one.cached_calls;
            sum.prompt_tokens += one.prompt_tokens;
        }
    }

    /// Calls that would go out.
    pub fn new_calls(&self) -> u64 {
        self.reader.new_calls + self.judge.new_calls
    }
}

/// A reader that gives what is kept and counts what is not.
pub struct Rehearsal {
    reader: Option<Arc<ChatReader>>,
    planned: Mutex<Planned>,
}

fn count(tally: &mut Tally, client: &Client, calls: &[Call]) -> Result<Vec<Option<llm::ChatOutcome>>> {
    let kept = client.kept_outcomes(calls)?;
    for (call, kept) in calls.iter().zip(&kept) {
        match kept {
            Some(_) => tally.cached_calls += 1,
            None => {
                tally.new_calls += 1;
                tally.prompt_tokens += u64::from(call.request.estimated_prompt_tokens());
            }
        }
    }
    Ok(kept)
}

impl Rehearsal {
    fn planned(&self) -> std::sync::MutexGuard<'_, Planned> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts calls of the judge.
    pub(super) fn count_judge_calls(&self, client: &Client, calls: &[Call]) -> Result<()> {
        count(&mut self.planned().judge, client, calls).map(drop)
    }
}

impl Generator for Rehearsal {
    fn name(&self) -> &str {
        "rehearsal"
    }

    fn generate(&self, batch: &[Request]) -> Result<Vec<Response>> {
        let asked = self.reader.as_ref().and_then(|reader| Some((reader, reader.client()?)));
        let Some((reader, client)) = asked else { return Ok(Vec::new()) };
        let calls: Vec<Call> = batch.iter().map(|request| reader.call(request)).collect();
        let kept = count(&mut self.planned().reader, client, &calls)?;
        let missing = || Response {
            raw: String::new(),
            status: LlmStatus::Error,
            usage: Usage::default(),
            tokens_estimated: false,
            prompt_cut: false,
            elapsed_us: 0,
        };
        Ok(calls.iter().zip(kept).map(|(call, kept)| kept.map_or_else(missing, |k| reader.response(call, k))).collect())
    }
}

/// What is left of a run, rehearsed; `None` when it asks no endpoint.
///
/// # Errors
/// When the cache cannot be read.
pub fn rehearse(session: &Session, run: &Run) -> Result<Option<Planned>> {
    let Some(endpoint) = &run.parts.endpoint else { return Ok(None) };
    let rehearsal = Arc::new(Rehearsal { reader: endpoint.reader.clone(), planned: Mutex::default() });
    let mut parts = run.parts.clone();
    if endpoint.reader.is_some() {
        parts.reader = Arc::clone(&rehearsal) as Arc<dyn Generator>;
    }
    // A rehearsal's answers are its own: no run may take them for replies.
    parts.reader_key = format!("rehearsal {}", parts.reader_key);
    parts.rehearsal = Some(Arc::clone(&rehearsal));
    if let Some(quick) = parts.grounding.rehearsal() {
        parts.grounding = quick;
        parts.grounding_key = format!("rehearsal {}", parts.grounding_key);
        parts.entailment_key = format!("rehearsal {}", parts.entailment_key);
    }
    let mut counted = Work::default();
    session.shared.count(|work| counted = work.clone());
    let mut copy = [run.rehearsal(parts)];
    while driver::advance(session, &mut copy)?.is_some() {}
    session.shared.count(|work| *work = counted);
    let mut planned = *rehearsal.planned();
    if let Some(judge) = &endpoint.judge {
        // An answer that is not there yet will be judged as well.
        let calls = planned.reader.new_calls * u64::from(judge.repeats);
        planned.judge.new_calls += calls;
        planned.judge.prompt_tokens += calls * ASSUMED_JUDGE_PROMPT_TOKENS;
    }
    Ok(Some(planned))
}
