//! The classes of an NLI model, found by name.
//!
//! In: the class names of `config.json`, in the order of the logits. Out: where contradiction, entailment and neutral are. Models differ in
//! that order, and names such as LABEL_0 do not tell it: those are refused.

use super::config::ModelConfig;
use crate::{Error, Result};

/// The classes of an NLI model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    /// Names in the order of the logits.
    pub names: Vec<String>,
    /// Index of contradiction.
    pub contradiction: usize,
    /// Index of entailment.
    pub entailment: usize,
    /// Index of neutral, where the model has it.
    pub neutral: Option<usize>,
}

impl Labels {
    /// Finds the classes by name, whatever their order and case.
    ///
    /// # Errors
    /// Contradiction or entailment is not there, or is there twice.
    pub fn find(config: &ModelConfig) -> Result<Self> {
        let names = &config.id2label;
        let at = |wanted: &str| -> Result<Option<usize>> {
            let mut found = (0..names.len()).filter(|&i| names[i].trim().eq_ignore_ascii_case(wanted));
            match (found.next(), found.next()) {
                (one, None) => Ok(one),
                _ => Err(Error::request(format!("{}: id2label names {wanted} twice", config.path.display()))
                    .with_hint("give each class its own name, in the order of the logits")),
            }
        };
        let missing = |wanted: &str| {
            let there = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            Error::request(format!("{}: id2label names {there}, and no {wanted}", config.path.display())).with_hint(
                "use an NLI model; where it is one, write its class names into id2label in the order of the logits, as its model card gives it, \
                 for example {\"0\": \"contradiction\", \"1\": \"entailment\", \"2\": \"neutral\"}",
            )
        };
        Ok(Self {
            names: names.clone(),
            contradiction: at("contradiction")?.ok_or_else(|| missing("contradiction"))?,
            entailment: at("entailment")?.ok_or_else(|| missing("entailment"))?,
            neutral: at("neutral")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::{bert, parse};
    use super::*;
    use serde_json::{Map, Value, json};

    #[test]
    fn labels_are_found_by_name_in_any_order_and_case() {
        let labels = |names: Value| Labels::find(&parse(json!({"id2label": names}), bert()).unwrap());
        let found = labels(json!({"0": "Entailment", "1": "NEUTRAL", "2": "contradiction"})).unwrap();
        assert_eq!((found.contradiction, found.entailment, found.neutral), (2, 0, Some(1)));
        // Keys are numbers and not text: 10 comes after 9.
        let mut eleven: Map<String, Value> = (0..10).map(|i| (i.to_string(), json!(format!("class {i}")))).collect();
        eleven.insert("10".into(), json!("entailment"));
        eleven.insert("3".into(), json!("contradiction"));
        let found = labels(Value::Object(eleven)).unwrap();
        assert_eq!((found.contradiction, found.entailment, found.neutral), (3, 10, None));
        for (names, says) in [
            (
                json!({"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}),
                "names LABEL_0, LABEL_1, LABEL_2, and no contradiction",
            ),
            (json!({"0": "contradiction", "1": "not_entailment"}), "and no entailment"),
            (json!({"0": "entailment", "1": "Entailment", "2": "contradiction"}), "names entailment twice"),
            (json!({}), "names nothing"),
        ] {
            let error = labels(names).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert!(error.hint().is_some());
        }
    }
}
