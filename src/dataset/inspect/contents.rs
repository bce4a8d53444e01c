//! What passages, questions and answers look like: the dataset in, summaries and findings out.

use std::collections::{BTreeMap, HashMap};

use super::{AnswerSummary, GoldPairs, Lengths, PassageSummary, QuestionSummary, percent};
use crate::dataset::clusters::{ClusterStats, experience_clusters};
use crate::dataset::{Dataset, Note, Question};
use crate::text::normalize_answer;

/// The corpus.
pub(super) fn passages(dataset: &Dataset, findings: &mut Vec<Note>) -> PassageSummary {
    let passages = &dataset.passages;
    let texts: Vec<&str> = passages.iter().map(|p| p.text.as_str()).collect();
    if passages.is_empty() {
        findings.push(Note {
            code: "no_passages",
            text: "there is no passage, so nothing can be indexed, retrieved or run; add the corpus".into(),
        });
    }
    count(findings, "duplicate_passage", repeats(&texts), texts.len(), |first| {
        format!(
            "passages repeat the text of an earlier one, first passage {first}; each keeps its id, they share a vector"
        )
    });
    let empty = passages.iter().map(|p| p.title.as_ref().map_or(&*p.text, |t| &p.text[t.len()..]).trim().is_empty());
    count(findings, "empty_passage", places(empty), texts.len(), |first| {
        format!("passages hold no text, first passage {first}")
    });
    count(findings, "word_pieces", places(texts.iter().map(|t| has_word_piece(t))), texts.len(), |first| {
        format!(
            "passages hold word pieces of a tokenizer (such as \"##ing\"), first passage {first}; mentions and answers that \
             are cut so are not found as substrings"
        )
    });
    PassageSummary {
        count: passages.len(),
        titled: passages.iter().filter(|p| p.title.is_some()).count(),
        characters: Lengths::of(texts.iter().copied()),
    }
}

/// Warns of texts that already carry the number that the index would put before them.
pub(super) fn prefixed(dataset: &Dataset, passage_prefix: &str, findings: &mut Vec<Note>) {
    let carries = dataset.passages.iter().enumerate().map(|(i, p)| p.text.starts_with(&format!("{i}:")));
    let then = if passage_prefix == "index" {
        "the files beside the dataset were made so"
    } else {
        "index.passage_prefix = \"none\" keeps it once"
    };
    count(findings, "already_prefixed", places(carries), dataset.passages.len(), |first| {
        format!(
            "passages already start with their own number and a colon, first passage {first}; with index.passage_prefix = \
             \"index\" it stands twice: {then}"
        )
    });
}

/// The stream.
pub(super) fn questions(dataset: &Dataset, findings: &mut Vec<Note>) -> QuestionSummary {
    let questions = &dataset.questions;
    let n = questions.len();
    let texts: Vec<&str> = questions.iter().map(|q| q.text.as_str()).collect();
    count(findings, "duplicate_question", repeats(&texts), n, |first| {
        format!("questions repeat the text of an earlier one, first {}", questions[first].id)
    });
    count(findings, "empty_question", places(texts.iter().map(|t| t.trim().is_empty())), n, |first| {
        format!("questions hold no text, first {}", questions[first].id)
    });
    count(findings, "gold_normalises_to_nothing", places(questions.iter().map(gold_vanishes)), n, |first| {
        format!(
            "questions have a gold answer that normalises to nothing, first {} with \"{}\"; it never counts as a hit",
            questions[first].id,
            questions[first].answers.join("\", \"")
        )
    });

    let with_gold = questions.iter().filter(|q| q.gold_passages.is_some()).count();
    let gold_pairs = gold_pairs(dataset);
    if let Some(g) = gold_pairs.filter(|g| g.share > 2.0 * g.by_chance) {
        findings.push(Note {
            code: "corpus_order",
            text: format!(
                "{} of {} pairs of gold passages of one question ({}) are corpus neighbours, where chance would give {:.2} %: \
                 the chain of neighbours (index.adjacent_passages = \"all\") exploits corpus order, \"none\" is its honest twin",
                g.neighbours,
                g.pairs,
                percent(g.neighbours, g.pairs),
                100.0 * g.by_chance
            ),
        });
    } else if with_gold == 0 && !dataset.passages.is_empty() {
        findings.push(Note {
            code: "no_gold",
            text: "the data names no gold passages, so recall cannot be measured, nor how far the chain of neighbours \
                   (index.adjacent_passages = \"all\") exploits corpus order"
                .into(),
        });
    }

    let mut gold_sizes = BTreeMap::new();
    let mut categories: BTreeMap<&str, usize> = BTreeMap::new();
    for question in questions {
        if let Some(gold) = &question.gold_passages {
            *gold_sizes.entry(gold.len()).or_insert(0) += 1;
        }
        if let Some(category) = &question.category {
            *categories.entry(category).or_default() += 1;
        }
    }
    let mut categories: Vec<(String, usize)> = categories.into_iter().map(|(c, n)| (c.to_owned(), n)).collect();
    categories.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let hops: Vec<Vec<String>> = questions.iter().map(|q| q.hops.clone()).collect();
    let has_hops = hops.iter().any(|h| !h.is_empty());
    QuestionSummary {
        count: n,
        characters: Lengths::of(texts.iter().copied()),
        categories,
        with_gold,
        gold_sizes: gold_sizes.into_iter().collect(),
        gold_pairs,
        answers: answers(questions),
        clusters: has_hops.then(|| ClusterStats::of(&experience_clusters(&hops), n)),
    }
}

fn answers(questions: &[Question]) -> AnswerSummary {
    let main = |q: &Question| q.answers.first().map_or("", |a| a.trim()).to_lowercase();
    AnswerSummary {
        characters: Lengths::of(questions.iter().filter_map(|q| q.answers.first()).map(String::as_str)),
        empty: questions.iter().filter(|q| q.answers.iter().all(|a| a.trim().is_empty())).count(),
        yes_no: questions.iter().filter(|q| matches!(main(q).as_str(), "yes" | "no")).count(),
        with_aliases: questions.iter().filter(|q| !q.aliases.is_empty()).count(),
    }
}

/// Pairs of gold passages of one question; `None` where there are none.
fn gold_pairs(dataset: &Dataset) -> Option<GoldPairs> {
    let (mut pairs, mut neighbours) = (0, 0);
    for gold in dataset.questions.iter().filter_map(|q| q.gold_passages.as_ref()) {
        pairs += gold.len() * gold.len().saturating_sub(1) / 2;
        // Gold passages ascend and are distinct, so neighbours stand side by side.
        neighbours += gold.windows(2).filter(|w| w[1].0 - w[0].0 == 1).count();
    }
    (pairs > 0).then(|| GoldPairs {
        pairs,
        neighbours,
        share: neighbours as f64 / pairs as f64,
        by_chance: 2.0 / dataset.passages.len() as f64,
    })
}

/// Whether a gold answer with text has nothing left when it is normalised (spec section 7).
fn gold_vanishes(question: &Question) -> bool {
    question.answers.iter().any(|answer| !answer.trim().is_empty() && normalize_answer(answer).is_empty())
}

/// Whether `##` stands before a letter or digit and not behind one or another `#`: "play ##ing", "12:##ing".
fn has_word_piece(text: &str) -> bool {
    text.match_indices("##").any(|(at, marks)| {
        let before = text[..at].chars().next_back();
        let after = text[at + marks.len()..].chars().next();
        after.is_some_and(char::is_alphanumeric) && !before.is_some_and(|c| c.is_alphanumeric() || c == '#')
    })
}

/// Places whose text occurs earlier.
fn repeats(texts: &[&str]) -> Vec<usize> {
    let mut first = HashMap::with_capacity(texts.len());
    places(texts.iter().enumerate().map(|(i, text)| *first.entry(*text).or_insert(i) != i))
}

fn places(flags: impl Iterator<Item = bool>) -> Vec<usize> {
    flags.enumerate().filter_map(|(i, flag)| flag.then_some(i)).collect()
}

/// A finding about `places` of `whole`, unless there are none; `what` goes on the sentence and gets the first place.
fn count(
    findings: &mut Vec<Note>,
    code: &'static str,
    places: Vec<usize>,
    whole: usize,
    what: impl FnOnce(usize) -> String,
) {
    if let Some(&first) = places.first() {
        findings.push(Note { code, text: format!("{} of {whole} {}", places.len(), what(first)) });
    }
}
