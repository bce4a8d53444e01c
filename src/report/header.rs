//! What a reader must know before any number: what was simulated, what was switched off, which form was used, what is odd.
//!
//! In: runs and their manifests. Out: sentences. Equal statements of many runs are said once, with the methods or runs they hold for.

use std::collections::BTreeMap;

use super::labels::datasets;
use crate::analyse::alarms;
use crate::generate::LlmStatus;
use crate::trace::manifest::{Manifest, Status};
use crate::trace::reader::Run;

/// Whether the run was answered without a model.
pub fn is_simulated(run: &Run) -> bool {
    run.manifest.as_ref().is_some_and(|m| m.generator.simulated)
        || run.rows.iter().any(|r| r.llm_status == LlmStatus::Simulated)
}

/// What ran and under which form, a sentence each.
pub fn statements(runs: &[&Run]) -> Vec<String> {
    let mut out = Vec::new();
    out.extend(simulated(runs));
    out.extend(grounding(runs));
    out.extend(propagation(runs));
    out.extend(template_similarity(runs));
    out.extend(adjacent_passages(runs));
    out.extend(notes(runs));
    out
}

/// What is plainly wrong or not whole, a sentence each.
pub fn warnings(runs: &[&Run]) -> Vec<String> {
    let mut out: Vec<String> = runs.iter().flat_map(|run| alarms::alarms(run)).collect();
    for run in runs {
        let whole = run.manifest.as_ref().is_some_and(|m| m.status == Status::Complete);
        if !whole {
            out.push(format!(
                "{}: the run is not finished; its {} rows are the beginning of the stream, not the whole",
                run.head().run_id,
                run.rows.len()
            ));
        }
    }
    for dataset in datasets(runs) {
        let prints = by_value(runs, |m| (m.dataset.name == dataset).then(|| m.dataset.fingerprint.clone()));
        if prints.len() > 1 {
            out.push(format!(
                "{dataset}: its files differ between the runs ({} fingerprints); rows are not comparable",
                prints.len()
            ));
        }
    }
    out
}

fn simulated(runs: &[&Run]) -> Option<String> {
    let count = runs.iter().filter(|r| is_simulated(r)).count();
    (count > 0).then(|| {
        format!(
            "**Simulated reader** in {count} of {} runs: no model was asked. Its answers are made from the gold data, so accuracies, \
             tokens and costs of these runs say nothing about a language model.",
            runs.len()
        )
    })
}

fn grounding(runs: &[&Run]) -> Vec<String> {
    let kinds = by_value(runs, |m| m.grounding.as_ref().map(|g| (g.name.clone(), g.model.clone())));
    let meaning = |kind: &str, model: &str| match kind {
        "bernoulli" => {
            " is a seeded coin, not a measurement: GS passes at a set rate whatever the answer says".to_owned()
        }
        "lexical" => " is token and number containment: no model read the evidence and nothing was entailed".to_owned(),
        _ if model.is_empty() => " scored the claims".to_owned(),
        _ => format!(" scored the claims by the model {model}"),
    };
    let said = |((kind, model), of): ((String, String), Vec<&Manifest>)| {
        format!("Grounding `{kind}`{} ({}).", meaning(&kind, &model), methods(&of))
    };
    kinds.into_iter().map(said).collect()
}

fn propagation(runs: &[&Run]) -> Vec<String> {
    let forms = by_value(runs, |m| m.propagation.clone());
    let one = forms.len() == 1;
    let said = |(form, of): (String, Vec<&Manifest>)| format!("Propagation form `{form}` ({}).", methods(&of));
    let mut out: Vec<String> = forms.into_iter().map(said).collect();
    if !one && !out.is_empty() {
        out.push(
            "The two propagation forms are different algorithms; runs of different form are not comparable.".into(),
        );
    }
    out
}

fn template_similarity(runs: &[&Run]) -> Vec<String> {
    let kinds = by_value(runs, |m| m.template_similarity.clone());
    kinds
        .into_iter()
        .map(|(kind, of)| match kind.as_str() {
            "embedding" => format!("Scaffolds: templates compared by embedding, as in the paper ({}).", methods(&of)),
            "tokens" => {
                format!("Scaffolds: templates compared by token counts, without an encoder ({}).", methods(&of))
            }
            _ => format!("Scaffolds: templates compared by `{kind}` ({}).", methods(&of)),
        })
        .collect()
}

fn adjacent_passages(runs: &[&Run]) -> Option<String> {
    let of: Vec<&Manifest> =
        manifests(runs).filter(|m| m.index.adjacent_passages == "all" && m.method != "vanilla").collect();
    (!of.is_empty()).then(|| {
        format!(
            "`adjacent_passages = \"all\"` joins neighbours in the corpus file, as the reference does, and so exploits corpus order: \
             neighbours often come from one question. `\"none\"` is the honest twin ({}).",
            methods(&of)
        )
    })
}

/// The manifests' own notes.
fn notes(runs: &[&Run]) -> Vec<String> {
    let mut by_text: Vec<(&str, Vec<&str>)> = Vec::new();
    for manifest in manifests(runs) {
        for note in &manifest.notes {
            match by_text.iter_mut().find(|(text, _)| text == note) {
                Some((_, ids)) => ids.push(&manifest.run_id),
                None => by_text.push((note, vec![&manifest.run_id])),
            }
        }
    }
    let all = runs.len();
    by_text
        .into_iter()
        .map(|(text, ids)| if ids.len() == all { text.to_string() } else { format!("{text} ({})", ids.join(", ")) })
        .collect()
}

fn manifests<'r>(runs: &[&'r Run]) -> impl Iterator<Item = &'r Manifest> {
    runs.iter().filter_map(|r| r.manifest.as_ref())
}

/// The manifests by a value of theirs, sorted by it; those without it are left out.
fn by_value<'r, K: Ord>(runs: &[&'r Run], value: impl Fn(&Manifest) -> Option<K>) -> BTreeMap<K, Vec<&'r Manifest>> {
    let mut out: BTreeMap<K, Vec<&Manifest>> = BTreeMap::new();
    for manifest in manifests(runs) {
        if let Some(value) = value(manifest) {
            out.entry(value).or_default().push(manifest);
        }
    }
    out
}

/// The methods of these manifests, each once: `linear, living`.
fn methods(of: &[&Manifest]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for manifest in of {
        if !names.contains(&manifest.method.as_str()) {
            names.push(&manifest.method);
        }
    }
    names.join(", ")
}
