//! A list of strings out of what a model says when asked for one.
//!
//! In: an answer with JSON somewhere: bare, in prose, in a fence, an array or an object. Out: its strings, and how many items
//! were none.

use serde_json::Value;

/// Strings found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JsonList {
    /// The strings in order, trimmed, none empty.
    pub items: Vec<String>,
    /// Items that were no string: null, numbers, objects, blanks.
    pub dropped: usize,
}

/// The first JSON array or object in `text` that holds a string, else the first at all; `None` when there is none.
///
/// An array gives its strings. An object gives its values: strings, and the strings of arrays.
pub fn json_list(text: &str) -> Option<JsonList> {
    let mut first = None;
    let mut at = 0;
    while let Some(found) = text.get(at..)?.find(['[', '{']) {
        at += found;
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                let list = strings_of(&value);
                if !list.items.is_empty() {
                    return Some(list);
                }
                first = first.or(Some(list));
                at += values.byte_offset();
            }
            // A bracket of the prose.
            _ => at += 1,
        }
    }
    first
}

fn strings_of(value: &Value) -> JsonList {
    let mut list = JsonList::default();
    let mut take = |item: &Value| match item.as_str().map(str::trim).filter(|s| !s.is_empty()) {
        Some(text) => list.items.push(text.to_owned()),
        None => list.dropped += 1,
    };
    match value {
        Value::Array(items) => items.iter().for_each(take),
        Value::Object(fields) => {
            for field in fields.values() {
                match field {
                    Value::Array(items) => items.iter().for_each(&mut take),
                    other => take(other),
                }
            }
        }
        _ => {}
    }
    list
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> Option<(Vec<String>, usize)> {
        json_list(text).map(|l| (l.items, l.dropped))
    }

    /// Pitfall 14: prose, a fence, an object, nulls.
    #[test]
    fn pitfall_14_a_list_is_found_wherever_it_is() {
        let lisbon = |dropped| Some((vec!["Lisbon".to_owned()], dropped));
        assert_eq!(list("Sure! ```json\n{\"e\":\"Lisbon\"}\n```"), lisbon(0));
        assert_eq!(list(r#"["Lisbon", null, {"x": 1}]"#), lisbon(2));
        assert_eq!(list(r#"{"entities": [" Lisbon ", "", 7]}"#), lisbon(2));
        assert_eq!(list(r#"As in [1] and {so}: ["Lisbon"] and ["Porto"]"#), lisbon(0));
        assert_eq!(list("[]"), Some((vec![], 0)));
        assert_eq!(list("[null]"), Some((vec![], 1)));
        for nothing in ["", "none", "[Lisbon, Porto]", "[\"Lis"] {
            assert_eq!(list(nothing), None, "{nothing}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".*") {
            let _ = json_list(&text);
        }

        #[test]
        fn any_list_in_prose_is_found(items in prop::collection::vec("[a-z\\[\\]{}\" é]{0,5}[a-z]", 1..5)) {
            let text = format!("é here: ```\n{}\n``` done", serde_json::to_string(&items).unwrap());
            let expected: Vec<_> = items.iter().map(|s| s.trim().to_owned()).collect();
            prop_assert_eq!(json_list(&text), Some(JsonList { items: expected, dropped: 0 }));
        }
    }
}
