//! The fields that all publishers' questions share: one JSON record in, a [`Question`] without gold passages out.

use std::collections::BTreeSet;

use serde_json::Value;

use super::record::Record;
use super::{Note, Question};
use crate::error::Result;

/// Reads id, question, answers, type and hops of the question at `index` (from 0).
///
/// - id: `id`, else `_id`, else `q<index>`; a number is taken as its digits.
/// - answers: `answer`, a string or a list whose first entry is the main answer and whose others are aliases;
///   `answer_aliases` follow. Empty answers are kept.
/// - category: `question_type`, else `type`, else the first part of a MuSiQue id (`3hop1`).
/// - hops: ids of `question_decomposition`, else the numbers in a MuSiQue id.
pub(crate) fn read(record: &Record<'_>, index: usize) -> Result<Question> {
    let id = match record.get("id").or_else(|| record.get("_id")) {
        None | Some(Value::Null) => format!("q{index}"),
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        Some(other) => return Err(record.wrong("id", other, "a string")),
    };
    let text = record.string(&["question"])?.to_owned();

    let (mut answers, mut aliases) = match record.require(&["answer"])?.1 {
        Value::String(answer) => (vec![answer.clone()], Vec::new()),
        list @ Value::Array(_) => {
            let mut all = record.strings("answer", list)?;
            let rest = all.split_off(all.len().min(1));
            (all, rest)
        }
        other => return Err(record.wrong("answer", other, "a string or a list of strings")),
    };
    aliases.extend(record.optional_strings("answer_aliases")?);
    answers.truncate(1);
    let mut seen: BTreeSet<String> = answers.iter().cloned().collect();
    aliases.retain(|alias| seen.insert(alias.clone()));

    let from_id = musique_id(&id);
    let category = match record.optional_string("question_type")? {
        Some(category) => Some(category.to_owned()),
        None => record
            .optional_string("type")?
            .map(str::to_owned)
            .or_else(|| from_id.as_ref().map(|(composition, _)| (*composition).to_owned())),
    };
    let hops = match record.get("question_decomposition") {
        None | Some(Value::Null) => from_id.map(|(_, hops)| hops).unwrap_or_default(),
        Some(_) => decomposition(record)?,
    };
    Ok(Question { id, text, answers, aliases, gold_passages: None, category, hops })
}

fn decomposition(record: &Record<'_>) -> Result<Vec<String>> {
    record
        .list("question_decomposition")?
        .iter()
        .enumerate()
        .map(|(i, hop)| {
            let hop = record.inner(&format!("hop {}", i + 1), hop)?;
            match hop.require(&["id"])?.1 {
                Value::String(id) => Ok(id.clone()),
                Value::Number(id) => Ok(id.to_string()),
                other => Err(hop.wrong("id", other, "a number or a string")),
            }
        })
        .collect()
}

/// `2hop__13548_13529` taken apart: the composition (`2hop`) and the single-hop ids.
fn musique_id(id: &str) -> Option<(&str, Vec<String>)> {
    let (composition, hops) = id.split_once("__")?;
    let (count, shape) = composition.split_once("hop")?;
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let hops: Vec<String> = hops.split('_').map(str::to_owned).collect();
    let well_formed = digits(count) && (shape.is_empty() || digits(shape)) && hops.iter().all(|h| digits(h));
    well_formed.then_some((composition, hops))
}

/// Makes ids unique by appending `#2`, `#3`, … to later ones, and says so.
pub(crate) fn make_ids_unique(questions: &mut [Question], file: &str) -> Option<Note> {
    let mut taken: BTreeSet<String> = questions.iter().map(|q| q.id.clone()).collect();
    if taken.len() == questions.len() {
        return None;
    }
    let mut seen = BTreeSet::new();
    let mut renamed = Vec::new();
    for question in questions.iter_mut() {
        if seen.insert(question.id.clone()) {
            continue;
        }
        let mut n = 2_usize;
        while taken.contains(&format!("{}#{n}", question.id)) {
            n += 1;
        }
        let id = format!("{}#{n}", question.id);
        taken.insert(id.clone());
        renamed.push(id.clone());
        question.id = id;
    }
    Some(Note {
        code: "duplicate_id",
        text: format!(
            "{file}: {} of {} questions repeat the id of an earlier one and were renamed, first \"{}\"",
            renamed.len(),
            questions.len(),
            renamed[0]
        ),
    })
}

/// Questions whose every answer is empty or missing.
pub(crate) fn empty_answers(questions: &[Question], file: &str) -> Option<Note> {
    let empty: Vec<&Question> = questions.iter().filter(|q| q.answers.iter().all(|a| a.trim().is_empty())).collect();
    let first = empty.first()?;
    Some(Note {
        code: "empty_answer",
        text: format!(
            "{file}: {} of {} questions have an empty gold answer, which nothing can hit, first \"{}\"",
            empty.len(),
            questions.len(),
            first.id
        ),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::dataset::source::{Layout, Source};

    fn question(json: &str) -> Result<Question> {
        let source = Source {
            path: "q.json".into(),
            layout: Layout::Json,
            text: String::new(),
            hash: blake3::hash(b""),
            notes: Vec::new(),
        };
        let value: Value = serde_json::from_str(json).unwrap();
        read(&Record::new(&source, 4, &value)?, 3)
    }

    #[test]
    fn answers_and_aliases() {
        let q = question(r#"{"question": "?", "answer": ["a", "b", "a"], "answer_aliases": ["c", "b"]}"#).unwrap();
        assert_eq!((q.id.as_str(), q.answers, q.aliases), ("q3", vec!["a".into()], vec!["b".to_owned(), "c".into()]));
        let q = question(r#"{"id": 7, "question": "?", "answer": []}"#).unwrap();
        assert_eq!((q.id.as_str(), q.answers.len()), ("7", 0));
        assert!(empty_answers(&[q], "q.json").unwrap().text.starts_with("q.json: 1 of 1 questions"));
    }

    #[test]
    fn hops_and_category_come_from_the_decomposition_or_the_id() {
        let q = question(r#"{"id": "3hop1__1_22_333", "question": "?", "answer": ""}"#).unwrap();
        assert_eq!((q.hops, q.category.as_deref()), (vec!["1".into(), "22".into(), "333".into()], Some("3hop1")));
        let q = question(
            r#"{"id": "2hop__1_2", "question": "?", "answer": "", "type": "x", "question_decomposition": [{"id": 9}]}"#,
        )
        .unwrap();
        assert_eq!((q.hops, q.category.as_deref()), (vec!["9".to_owned()], Some("x")));
        for id in ["a__1_2", "2hop_1_2", "hop__1", "2hop__1_x", "2hop__1_"] {
            assert_eq!(musique_id(id), None, "{id}");
        }
    }

    #[test]
    fn a_missing_field_names_file_record_and_field() {
        let error = question(r#"{"_id": "x", "answer": "a"}"#).unwrap_err();
        assert_eq!(error.to_string(), "q.json: record 4 (id \"x\") has no field \"question\"");
        assert_eq!(error.hint(), Some("its fields are _id, answer"));
        let error = question(r#"{"question": "?", "answer": 3}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "q.json: record 4 has a number in \"answer\" where a string or a list of strings belongs"
        );
    }

    #[test]
    fn repeated_ids_become_unique() {
        let mut questions: Vec<Question> = ["a", "a", "a#2", "a"]
            .iter()
            .map(|id| question(&format!(r#"{{"id": "{id}", "question": "?", "answer": "x"}}"#)).unwrap())
            .collect();
        let note = make_ids_unique(&mut questions, "q.json").unwrap();
        assert_eq!(questions.iter().map(|q| q.id.as_str()).collect::<Vec<_>>(), ["a", "a#3", "a#2", "a#4"]);
        assert_eq!(
            note.text,
            "q.json: 2 of 4 questions repeat the id of an earlier one and were renamed, first \"a#3\""
        );
    }
}
