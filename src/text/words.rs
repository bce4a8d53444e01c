//! Words of a text, the closed-class words among them, and an estimate of language-model tokens.
//!
//! In: any text. Out: lower-cased words in text order. The same words serve entity mentions, evidence selection and the
//! lexical grounding scorer, so that all of them read cased prose and lower-cased word pieces (`al - qaeda`) alike.

/// Whether `c` belongs to a word: a letter or a digit of any script, or `_` (Python's `\w`).
#[inline]
pub fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The words of `text`, lower-cased, in text order: maximal runs of letters and digits.
///
/// A number stays one word with its separators where they stand between digits: `3.14` keeps its point, and a comma
/// that groups three digits is dropped, so `1,000` and `1000` are the same word. Everything else separates words.
pub fn tokens(text: &str) -> Vec<String> {
    if text.is_ascii() {
        let bytes = text.as_bytes();
        return split(
            bytes.len(),
            |i| bytes.get(i).map(|&b| char::from(b)),
            |word, c| word.push(c.to_ascii_lowercase()),
        );
    }
    let chars: Vec<char> = text.chars().collect();
    split(chars.len(), |i| chars.get(i).copied(), |word, c| word.extend(c.to_lowercase()))
}

/// [`tokens`] of a text of n characters, given its i-th character and how one is added to a word.
#[inline]
fn split(n: usize, at: impl Fn(usize) -> Option<char>, add: impl Fn(&mut String, char)) -> Vec<String> {
    let digit = |i: usize| at(i).is_some_and(|c| c.is_ascii_digit());
    let mut words = Vec::new();
    let mut word = String::new();
    for (i, c) in (0..n).filter_map(|i| Some((i, at(i)?))) {
        let inside_number = i > 0 && digit(i - 1) && digit(i + 1);
        if c.is_alphanumeric() {
            add(&mut word, c);
        } else if c == '.' && inside_number {
            word.push('.');
        } else if c == ',' && inside_number && (i + 1..i + 4).all(digit) && !digit(i + 4) {
            // A thousands separator: the number goes on without it.
        } else if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Whether the words `needle` stand side by side somewhere in `haystack`. An empty needle stands nowhere.
pub fn contains_tokens(haystack: &[String], needle: &[String]) -> bool {
    !needle.is_empty() && haystack.windows(needle.len()).any(|window| window == needle)
}

/// English words that carry no content of their own: articles, pronouns, auxiliaries, prepositions, conjunctions,
/// connectives of reasoning, and the letters that an apostrophe leaves behind. Sorted, for binary search.
#[rustfmt::skip]
const STOP_WORDS: &[&str] = &[
    "a", "about", "after", "again", "all", "also", "although", "am", "an", "and", "any", "are", "as", "at", "be",
    "because", "been", "before", "being", "both", "but", "by", "can", "cannot", "could", "d", "did", "do", "does",
    "doing", "during", "each", "either", "finally", "first", "for", "from", "further", "had", "has", "have", "having",
    "he", "hence", "her", "here", "hers", "him", "his", "how", "however", "i", "if", "in", "into", "is", "it", "its",
    "just", "ll", "m", "may", "me", "might", "moreover", "must", "my", "neither", "next", "no", "nor", "not", "now",
    "of", "ok", "okay", "on", "only", "or", "other", "our", "out", "over", "own", "re", "s", "same", "shall", "she",
    "should", "since", "so", "some", "such", "sure", "t", "than", "that", "the", "their", "theirs", "them", "then",
    "there", "therefore", "these", "they", "this", "those", "thus", "to", "too", "under", "until", "up", "us", "ve",
    "very", "was", "we", "well", "were", "what", "when", "where", "whether", "which", "while", "who", "whom", "whose",
    "why", "will", "with", "would", "yes", "you", "your", "yours",
];

/// Whether a lower-cased word is one of the closed-class words that carry no content of their own.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// An estimate, never a count, of how many language-model tokens `text` takes.
///
/// Rule: a run of letters takes one token for every 7 begun characters, a run of digits one for every 3 begun, any
/// other visible character one, white space none. On encyclopedic English that is 4.2 to 4.4 characters a token, where
/// BERT's WordPiece has 4.4 to 4.7. Rows built on it carry `tokens_estimated = true`.
pub fn estimate_tokens(text: &str) -> u32 {
    const LETTERS_PER_TOKEN: usize = 7;
    const DIGITS_PER_TOKEN: usize = 3;
    let (mut letters, mut digits, mut total) = (0_usize, 0_usize, 0_usize);
    for c in text.chars() {
        // Most characters are ASCII letters, and asking for those first is quick.
        if c.is_ascii_alphabetic() {
            total += digits.div_ceil(DIGITS_PER_TOKEN);
            digits = 0;
            letters += 1;
        } else if c.is_numeric() {
            total += letters.div_ceil(LETTERS_PER_TOKEN);
            letters = 0;
            digits += 1;
        } else if c.is_alphabetic() {
            total += digits.div_ceil(DIGITS_PER_TOKEN);
            digits = 0;
            letters += 1;
        } else {
            total += letters.div_ceil(LETTERS_PER_TOKEN) + digits.div_ceil(DIGITS_PER_TOKEN);
            (letters, digits) = (0, 0);
            total += usize::from(!c.is_whitespace());
        }
    }
    total += letters.div_ceil(LETTERS_PER_TOKEN) + digits.div_ceil(DIGITS_PER_TOKEN);
    u32::try_from(total).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// A letter that is not ASCII at the end sends the same text through the other path.
        #[test]
        fn ascii_is_split_like_any_text(text in "[ -~]{0,60}") {
            let mut other = tokens(&format!("{text} é"));
            proptest::prop_assert_eq!(other.pop(), Some("é".to_owned()));
            proptest::prop_assert_eq!(tokens(&text), other);
        }
    }

    #[test]
    fn words_are_lower_cased_runs() {
        assert_eq!(tokens("Lothair II's mother, Ermengarde"), ["lothair", "ii", "s", "mother", "ermengarde"]);
        assert_eq!(tokens("Aldri Annet Enn BRÅK; Ångström"), ["aldri", "annet", "enn", "bråk", "ångström"]);
        assert_eq!(tokens("al - qaeda"), tokens("al-Qaeda"));
        assert_eq!(tokens(" … "), Vec::<String>::new());
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!(tokens("1,000 of 30,700,000 cost $3.14."), ["1000", "of", "30700000", "cost", "3.14"]);
        assert_eq!(tokens("in 1990, 20 left"), ["in", "1990", "20", "left"]);
        assert_eq!(tokens("chapters 1,2 and 12,3456"), ["chapters", "1", "2", "and", "12", "3456"]);
        assert_eq!(tokens("1.e4 end5."), ["1", "e4", "end5"]);
    }

    #[test]
    fn runs_of_words_are_found_at_their_boundaries() {
        let text = tokens("Anna Banana sang in the north");
        assert!(contains_tokens(&text, &tokens("BANANA sang")));
        assert!(!contains_tokens(&text, &tokens("nor")));
        assert!(!contains_tokens(&text, &[]));
    }

    #[test]
    fn stop_words_are_sorted() {
        assert!(STOP_WORDS.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(is_stop_word("the") && is_stop_word("s") && !is_stop_word("oslo"));
    }

    #[test]
    fn estimate_follows_its_rule() {
        // 4 letters: 1; 14 letters: 2; "1990": 2; "," and ".": 1 each.
        assert_eq!(estimate_tokens("Oslo internationaly 1990, ."), 1 + 2 + 2 + 1 + 1);
        assert_eq!(estimate_tokens(""), 0);
        assert_eq!(estimate_tokens("  \n "), 0);
        assert_eq!(estimate_tokens("abc123"), 2);
    }
}
