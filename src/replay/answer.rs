//! The answer: context (equation 14), reader, parsing and scoring.

use std::sync::Arc;

use crate::Result;
use crate::generate::{
    Generator, Judgement, Oracle, Parsed, PromptPassage, Request, Response, assemble_context, contain, contain_word,
    parse_answer,
};
use crate::ids::PassageId;
use crate::replay::matching::Step;
use crate::replay::run::Run;
use crate::replay::session::Session;

/// A step with its answer.
pub struct Answered {
    /// The step.
    pub step: Step,
    /// Passages given to the reader.
    pub passages: Vec<PromptPassage>,
    /// What came back.
    pub response: Response,
    /// Prediction and explanation.
    pub parsed: Parsed,
    /// spec 7: gold in the prediction.
    pub contain: Option<bool>,
    /// Its twin at token boundaries.
    pub contain_word: Option<bool>,
    /// Dollars, where tokens and price are known.
    pub cost_usd: Option<f64>,
    /// What the judge said; `NotRun` until it is asked.
    pub judge: Judgement,
    /// Time of its calls, microseconds.
    pub judge_us: Option<u64>,
}

fn request(session: &Session, run: &Run, step: &Step) -> Request {
    let question = &session.dataset.questions[step.question];
    let passages: Vec<PromptPassage> = step
        .retrieved
        .ranking
        .iter()
        .take(run.plan.config.retrieve.top_k as usize)
        .map(|&(p, _)| PromptPassage { id: PassageId(p), text: session.dataset.passages[p as usize].text.clone() })
        .collect();
    let scaffold = step.scaffold.map(|(id, _)| run.store.all()[id as usize].summary.clone());
    let prompt = assemble_context(&run.parts.prompt, &passages, scaffold.as_deref(), &question.text);
    Request {
        query_id: question.id.clone(),
        question: question.text.clone(),
        passages,
        scaffold,
        prompt,
        oracle: Oracle { answers: question.answers.clone(), gold_passages: question.gold_passages.clone() },
    }
}

/// Asks every run's reader; runs that share a reader are asked as one batch. Answers keep the order of the steps.
pub fn answer(session: &Session, runs: &[Run], steps: Vec<Step>) -> Result<Vec<Answered>> {
    let mut requests: Vec<Option<Request>> =
        steps.iter().map(|step| Some(request(session, &runs[step.run], step))).collect();
    let mut done: Vec<Option<(Vec<PromptPassage>, Response)>> = steps.iter().map(|_| None).collect();
    let same = |a: &Arc<dyn Generator>, b: &Arc<dyn Generator>| Arc::ptr_eq(a, b);
    for first in 0..steps.len() {
        if requests[first].is_none() {
            continue;
        }
        let reader = &runs[steps[first].run].parts.reader;
        let members: Vec<usize> = (first..steps.len())
            .filter(|&i| requests[i].is_some() && same(&runs[steps[i].run].parts.reader, reader))
            .collect();
        let batch: Vec<Request> = members.iter().filter_map(|&i| requests[i].take()).collect();
        let responses = reader.generate(&batch)?;
        for ((i, request), response) in members.into_iter().zip(batch).zip(responses) {
            done[i] = Some((request.passages, response));
        }
    }
    let answered = steps.into_iter().zip(done).filter_map(|(step, done)| {
        let (passages, response) = done?;
        let parts = &runs[step.run].parts;
        let question = &session.dataset.questions[step.question];
        let parsed = parse_answer(&response.raw, parts.marker);
        Some(Answered {
            contain: contain(&parsed.prediction, &question.answers),
            contain_word: contain_word(&parsed.prediction, &question.answers, &question.aliases),
            cost_usd: parts.cost(&response),
            judge: Judgement::NotRun,
            judge_us: None,
            passages,
            response,
            parsed,
            step,
        })
    });
    Ok(answered.collect())
}
