//! Containment scores of an answer, spec section 7.
//!
//! In: a prediction and gold answers. Out: hit or miss, or nothing where no gold can be compared.

use crate::text::{contains_at_boundaries, normalize_answer};

/// Contain-match: whether any normalised gold answer is a substring of the normalised prediction.
///
/// An empty prediction misses. A gold that normalises to nothing (`The`, `+`) never hits; when no other is left, `None`.
pub fn contain(prediction: &str, answers: &[String]) -> Option<bool> {
    any_gold(prediction, answers.iter(), |prediction, gold| prediction.contains(gold))
}

/// The strict twin of [`contain`]: the gold must stand at word boundaries, so `no` is not found in `north`; aliases count.
pub fn contain_word(prediction: &str, answers: &[String], aliases: &[String]) -> Option<bool> {
    any_gold(prediction, answers.iter().chain(aliases), contains_at_boundaries)
}

fn any_gold<'a>(
    prediction: &str,
    golds: impl Iterator<Item = &'a String>,
    hits: impl Fn(&str, &str) -> bool,
) -> Option<bool> {
    let prediction = normalize_answer(prediction);
    let usable = golds.map(|gold| normalize_answer(gold)).filter(|gold| !gold.is_empty());
    usable.map(|gold| hits(&prediction, &gold)).reduce(|a, b| a || b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golds(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn containment_ignores_case_punctuation_and_articles() {
        assert_eq!(contain("It was President James K. Polk.", &golds(&["james k polk"])), Some(true));
        assert_eq!(contain("James Polk", &golds(&["President James K. Polk"])), Some(false));
        assert_eq!(contain("In the North.", &golds(&["Rome", "north"])), Some(true));
        assert_eq!(contain("", &golds(&["Rome"])), Some(false));
        assert_eq!(contain_word("", &golds(&["Rome"]), &[]), Some(false));
    }

    #[test]
    fn pitfall_24_short_golds_need_word_boundaries_in_the_twin() {
        for (prediction, gold) in [("In the north", "no"), ("In 2012", "12")] {
            assert_eq!(contain(prediction, &golds(&[gold])), Some(true));
            assert_eq!(contain_word(prediction, &golds(&[gold]), &[]), Some(false));
        }
        assert_eq!(contain_word("No, in the north", &golds(&["no"]), &[]), Some(true));
        assert_eq!(contain_word("12 (2012)", &golds(&["12"]), &[]), Some(true));
    }

    #[test]
    fn pitfall_24_a_gold_that_normalises_to_nothing_never_hits() {
        for gold in ["The", "+", "", " "] {
            assert_eq!(contain("The answer", &golds(&[gold])), None);
            assert_eq!(contain_word("The answer", &golds(&[gold]), &[]), None);
            assert_eq!(contain("The answer", &golds(&[gold, "Rome"])), Some(false));
        }
        assert_eq!(contain("anything", &[]), None);
    }

    #[test]
    fn aliases_count_in_the_twin_only() {
        let (answers, aliases) = (golds(&["United States"]), golds(&["USA", "U.S."]));
        assert_eq!(contain("the U.S.", &answers), Some(false));
        assert_eq!(contain_word("the U.S.", &answers, &aliases), Some(true));
    }
}
