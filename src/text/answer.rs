//! Normalised answers, spec section 7: what containment is measured on.
//!
//! In: a prediction or a gold answer. Out: the text SQuAD's evaluation would compare, and where it stands in another.

use super::words::is_word_char;

/// Lower case, then ASCII punctuation deleted, then the words a, an, the deleted, then white space collapsed: SQuAD's order.
///
/// Punctuation is deleted, not replaced, so `U.S.` becomes `us`; a word is bounded as by Python's `\b`.
pub fn normalize_answer(text: &str) -> String {
    let bare: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let mut without_articles = String::with_capacity(bare.len());
    let mut rest = bare.as_str();
    while !rest.is_empty() {
        let word_end = rest.find(|c| !is_word_char(c)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(word_end);
        without_articles.push_str(if matches!(word, "a" | "an" | "the") { " " } else { word });
        let gap_end = tail.find(is_word_char).unwrap_or(tail.len());
        without_articles.push_str(&tail[..gap_end]);
        rest = &tail[gap_end..];
    }
    let mut out = String::with_capacity(without_articles.len());
    for word in without_articles.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// Whether `needle` stands in `haystack` without cutting a word at either end. An empty needle stands nowhere.
pub fn contains_at_boundaries(haystack: &str, needle: &str) -> bool {
    let (Some(first), Some(last)) = (needle.chars().next(), needle.chars().next_back()) else { return false };
    // Every start is tried, overlapping ones too, since an early hit inside a word must not hide a later one.
    haystack.char_indices().any(|(start, _)| {
        haystack[start..].starts_with(needle)
            && !(is_word_char(first) && haystack[..start].chars().next_back().is_some_and(is_word_char))
            && !(is_word_char(last) && haystack[start + needle.len()..].chars().next().is_some_and(is_word_char))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    /// Expected values from SQuAD's `normalize_answer`, run as published (Python 3.11):
    /// `' '.join(re.sub(r'\b(a|an|the)\b', ' ', ''.join(c for c in s.lower() if c not in string.punctuation)).split())`.
    #[test]
    fn agrees_with_squad() {
        for (text, expected) in [
            ("The U.S. Army", "us army"),
            ("President James K. Polk", "president james k polk"),
            ("an  apple\tand\u{a0}the pear ", "apple and pear"),
            ("``general welfare clause ''and the`` necessary", "general welfare clause and necessary"),
            ("A-team", "ateam"),
            ("the", ""),
            ("The", ""),
            ("+", ""),
            ("Vitamin A", "vitamin"),
            ("“The” end–the end", "“ ” end– end"),
            ("Ångström, 1,000 %", "ångström 1000"),
            ("_the_", ""),
            ("theatre an", "theatre"),
        ] {
            assert_eq!(normalize_answer(text), expected, "{text:?}");
        }
    }

    #[test]
    fn boundaries_are_kept() {
        assert!(contains_at_boundaries("north or no", "no"));
        assert!(!contains_at_boundaries("north", "no"));
        assert!(!contains_at_boundaries("piano", "no"));
        assert!(!contains_at_boundaries("in 2012", "12"));
        assert!(contains_at_boundaries("no–one", "no"));
        assert!(contains_at_boundaries("ångström", "ångström"));
        assert!(!contains_at_boundaries("anything", ""));
        assert!(!contains_at_boundaries("", "x"));
    }
}
