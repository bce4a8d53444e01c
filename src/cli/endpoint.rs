//! Before a run asks an endpoint: what it will take, and whether the endpoint is what it should be.
//!
//! In: runs that are about to start. Out: a quote and findings on standard error, or an error before anything is asked.

use std::sync::Arc;

use super::{Global, output};
use crate::llm::Endpoint;
use crate::replay::quote::{Planned, rehearse};
use crate::replay::{Run, Session};
use crate::{Error, Result};

/// Quotes the runs and, unless only a quote is wanted, probes each endpoint that will be asked anything new. What a probe found is
/// noted in its runs.
pub fn prepare(session: &Session, runs: &mut [Run], only_quote: bool, global: &Global) -> Result<()> {
    let mut endpoints: Vec<(Arc<Endpoint>, Planned)> = Vec::new();
    for run in runs.iter() {
        let Some(endpoint) = &run.parts.endpoint else { continue };
        // Where nothing may be asked there is nothing to quote; what is missing is named when it is needed.
        if endpoint.asks_nothing() {
            continue;
        }
        let Some(planned) = rehearse(session, run)? else { continue };
        match endpoints.iter_mut().find(|(known, _)| Arc::ptr_eq(known, endpoint)) {
            Some((_, sum)) => sum.add(&planned),
            None => endpoints.push((Arc::clone(endpoint), planned)),
        }
    }
    for (endpoint, planned) in endpoints {
        let asks = planned.new_calls() > 0 && !only_quote;
        let found = if asks { endpoint.probe()? } else { Vec::new() };
        let seconds = found.first().map(|(_, probe)| probe.answer.elapsed_us as f64 / 1e6);
        let quote = endpoint.quote(planned.reader, planned.judge, seconds)?;
        output::note(global.quiet, &format!("quote: {quote}"));
        for (model, probe) in found {
            let text = format!("probe of {model}: {probe}");
            output::note(global.quiet, &text);
            if let Some(error) = &probe.answer.error {
                return Err(Error::work(format!("the endpoint of {model} gives no answer: {}", error.text)).with_hint(
                    "see that the server runs and that generate.base_url is its address; generate.probe_tokens = 0 leaves the probe out",
                ));
            }
            for warning in probe.warnings() {
                output::warning(&format!("{model}: {warning}"));
            }
            for run in runs.iter_mut().filter(|r| r.parts.endpoint.as_ref().is_some_and(|e| Arc::ptr_eq(e, &endpoint)))
            {
                // What an endpoint answers today changes no row; where times are switched off it is left out with them.
                if run.plan.config.replay.timings {
                    run.notes.push(text.clone());
                }
            }
        }
    }
    Ok(())
}

/// What a user should hear when runs have ended.
pub fn after(runs: &[Run]) {
    let mut told: Vec<&Arc<Endpoint>> = Vec::new();
    for endpoint in runs.iter().filter_map(|run| run.parts.endpoint.as_ref()) {
        if told.iter().any(|e| Arc::ptr_eq(e, endpoint)) {
            continue;
        }
        told.push(endpoint);
        let ledger = endpoint.client().ledger();
        let failed: u64 = ledger.failures.values().sum();
        if failed > 0 {
            output::warning(&format!(
                "{failed} calls got no answer ({}); their rows say so",
                ledger.failures.iter().map(|(kind, n)| format!("{kind} {n}")).collect::<Vec<_>>().join(", ")
            ));
            for (kind, heard) in endpoint.client().heard() {
                output::warning(&format!("the first {kind} call heard \"{heard}\""));
            }
        }
        if ledger.prompts_maybe_cut > 0 {
            output::warning(&format!(
                "{} prompts were probably cut by the endpoint: it counted far fewer tokens than were sent",
                ledger.prompts_maybe_cut
            ));
        }
    }
}
