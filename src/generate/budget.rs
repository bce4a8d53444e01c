//! The passage budget: as much of the passages as a context has room for, the best ranked first.
//!
//! In: passages in rank order, a number of tokens, and something that counts them. Out: the passages that fit, the last of them perhaps
//! shortened, and how many were shortened or left out.

use std::sync::Arc;

use super::PromptPassage;

/// Counts and cuts a text by tokens.
pub trait CutTokens: Send + Sync {
    /// The longest beginning of `text` that has at most `most` tokens, and their number.
    fn cut<'a>(&self, text: &'a str, most: u32) -> (&'a str, u32);
}

/// Four bytes a token, as English runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct FourBytes;

impl CutTokens for FourBytes {
    fn cut<'a>(&self, text: &'a str, most: u32) -> (&'a str, u32) {
        let kept = &text[..text.floor_char_boundary((most as usize).saturating_mul(4))];
        (kept, u32::try_from(kept.len().div_ceil(4)).unwrap_or(u32::MAX))
    }
}

/// A number of tokens and what counts them.
#[derive(Clone)]
pub struct PassageBudget {
    /// Most tokens of all passages of a prompt together.
    pub tokens: u32,
    /// What counts them.
    pub cutter: Arc<dyn CutTokens>,
}

impl PassageBudget {
    /// The passages that fit, and how many of them all were shortened or left out.
    ///
    /// A passage that does not fit whole is cut at a word where it can be; those behind it are left out. What is cut depends on
    /// the passages before it alone.
    pub fn fit(&self, passages: Vec<PromptPassage>) -> (Vec<PromptPassage>, u32) {
        let (mut left, mut whole, all) = (self.tokens, 0, passages.len());
        let mut kept = Vec::with_capacity(all);
        for mut passage in passages {
            let (beginning, tokens) = self.cutter.cut(&passage.text, left);
            let fits = beginning.len() == passage.text.len();
            if !fits {
                let beginning = at_a_word(beginning, &passage.text).trim_end();
                if !beginning.is_empty() {
                    passage.text = beginning.to_owned();
                    kept.push(passage);
                }
                break;
            }
            left -= tokens.min(left);
            whole += 1;
            kept.push(passage);
        }
        (kept, u32::try_from(all - whole).unwrap_or(u32::MAX))
    }
}

/// `beginning` of `text` without a word that was cut in two, unless it is one word.
fn at_a_word<'a>(beginning: &'a str, text: &str) -> &'a str {
    let inside = text[beginning.len()..].starts_with(|c: char| !c.is_whitespace());
    match beginning.rfind(char::is_whitespace) {
        Some(at) if inside && !beginning.ends_with(char::is_whitespace) => &beginning[..at],
        _ => beginning,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::ids::PassageId;

    fn fit(tokens: u32, texts: &[&str]) -> (Vec<String>, u32) {
        let passages = texts
            .iter()
            .enumerate()
            .map(|(i, t)| PromptPassage { id: PassageId::from(i), text: (*t).into() })
            .collect();
        let (kept, cut) = PassageBudget { tokens, cutter: Arc::new(FourBytes) }.fit(passages);
        (kept.into_iter().map(|p| p.text).collect(), cut)
    }

    #[test]
    fn the_best_ranked_come_first_and_the_last_is_cut_at_a_word() {
        // 16, 12 and 9 bytes: 4, 3 and 3 tokens.
        let texts = ["Oslo is in Norwa", "Rome is old.", "Bern too."];
        let all = |n: usize| texts[..n].iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        assert_eq!(fit(10, &texts), (all(3), 0));
        assert_eq!(fit(9, &texts), ([all(2), vec!["Bern".into()]].concat(), 1));
        assert_eq!(fit(7, &texts), (all(2), 1));
        assert_eq!(fit(6, &texts), (vec![texts[0].into(), "Rome is".into()], 2));
        assert_eq!(fit(3, &texts), (vec!["Oslo is in".into()], 3));
        assert_eq!(fit(0, &texts), (vec![], 3));
        assert_eq!(fit(1, &["Ærøskøbing"]), (vec!["Ær".into()], 1), "a single word is cut at a character");
    }

    proptest::proptest! {
        #[test]
        fn no_more_than_the_budget_and_nothing_made_up(tokens in 0..40_u32, texts in proptest::collection::vec("[a-zæ ]{0,30}", 0..6)) {
            let views: Vec<&str> = texts.iter().map(String::as_str).collect();
            let (kept, cut) = fit(tokens, &views);
            let sum: u32 = kept.iter().map(|t| FourBytes.cut(t, u32::MAX).1).sum();
            proptest::prop_assert!(sum <= tokens);
            proptest::prop_assert!(kept.iter().zip(&texts).all(|(kept, text)| text.starts_with(kept.as_str())));
            let whole = kept.iter().zip(&texts).filter(|(kept, text)| kept == text).count();
            proptest::prop_assert!(whole >= texts.len() - cut as usize);
        }
    }
}
