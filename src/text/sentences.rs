//! A rule-based sentence splitter for prose, cased or as lower-cased word pieces (`he left . she stayed .`).
//!
//! In: any text. Out: byte ranges of its sentences, in text order, without surrounding white space; together they hold
//! every visible character. Used for key sentences (equation 6), claims and evidence (equation 15).
//!
//! A line break always ends a sentence. `!`, `?` and their kin end one; a full stop does unless it belongs to an
//! abbreviation, an initial, a decimal, an ellipsis or a list marker, or the text goes on in lower case. A text without
//! a single capital is read as word pieces, where case decides nothing. Closing quotes and brackets stay with the
//! sentence they close. Where a rule is unsure it does not split: a long sentence is evidence, half a name is not.

use std::ops::Range;

/// The sentences of `text` as byte ranges.
pub fn split(text: &str) -> Vec<Range<usize>> {
    Splitter::new(text).run(false)
}

/// The sentences of `text`, further split after semicolons that stand outside brackets.
pub fn split_clauses(text: &str) -> Vec<Range<usize>> {
    Splitter::new(text).run(true)
}

/// Abbreviations that a name or number follows: their full stop never ends a sentence.
#[rustfmt::skip]
const NEVER_FINAL: &[&str] = &[
    "adm", "approx", "brig", "ca", "capt", "cf", "cmdr", "col", "cpl", "dr", "e.g", "eq", "fig", "gov", "hon", "i.e",
    "lt", "maj", "messrs", "mlle", "mme", "mr", "mrs", "ms", "prof", "pvt", "rep", "rev", "sen", "sgt", "supt", "viz",
    "vs",
];

/// Abbreviations that may also stand last: they end a sentence only before a word that usually opens one.
#[rustfmt::skip]
const MAYBE_FINAL: &[&str] = &[
    "al", "bros", "co", "corp", "dept", "esq", "est", "etc", "fr", "ft", "gen", "inc", "jr", "ltd", "mt", "ph.d",
    "pres", "sr", "st", "ste", "univ",
];

/// Abbreviations only before a number: `No. 5`, `Oct. 3`.
#[rustfmt::skip]
const BEFORE_NUMBER: &[&str] = &[
    "apr", "art", "aug", "c", "ch", "dec", "feb", "jan", "jul", "jun", "mar", "no", "nos", "nov", "oct", "p", "pp",
    "sept", "vol",
];

/// Words that usually open a sentence rather than continue a name, in cased text.
#[rustfmt::skip]
const OPENERS: &[&str] = &[
    "a", "after", "although", "an", "and", "as", "at", "because", "but", "during", "finally", "for", "from", "he",
    "hence", "her", "his", "however", "if", "in", "it", "its", "later", "on", "she", "since", "so", "that", "the",
    "their", "there", "therefore", "these", "they", "this", "those", "thus", "we", "when", "while",
];

/// The openers that are safe where case tells nothing.
const LOWER_OPENERS: &[&str] = &["he", "however", "it", "she", "therefore", "they", "this"];

const OPENING: &[char] = &['"', '\'', '“', '‘', '«', '„', '(', '[', '{', '`'];
const CLOSING: &[char] = &['"', '\'', '”', '’', '»', ')', ']', '}'];

/// One pass over the text's characters.
struct Splitter<'a> {
    text: &'a str,
    /// Byte offset and character, in order.
    chars: Vec<(usize, char)>,
    /// False for word pieces: no capital in the whole text.
    cased: bool,
}

impl<'a> Splitter<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, chars: text.char_indices().collect(), cased: text.chars().any(char::is_uppercase) }
    }

    fn run(&self, at_semicolons: bool) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        let (mut start, mut i, mut depth) = (0, 0, 0_usize);
        while i < self.chars.len() {
            let c = self.chars[i].1;
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            let end = match c {
                '\n' | '\r' | '\u{2028}' | '\u{2029}' => Some(i + 1),
                '。' | '！' | '？' => Some(self.after_closers(i + 1, start)),
                '.' | '!' | '?' | '…' => self.end_of_sentence(i, start),
                ';' if at_semicolons && depth == 0 && self.space_at(i + 1) => Some(i + 1),
                _ => None,
            };
            match end {
                Some(end) => {
                    self.push(&mut ranges, start, end);
                    (start, i, depth) = (end, end, 0);
                }
                None => {
                    i += 1;
                    // A run of marks is judged once, at its first.
                    while is_mark(c) && self.at(i).is_some_and(is_mark) {
                        i += 1;
                    }
                }
            }
        }
        self.push(&mut ranges, start, self.chars.len());
        ranges
    }

    /// Adds characters `start..end` without surrounding white space; nothing when only that is left.
    fn push(&self, ranges: &mut Vec<Range<usize>>, start: usize, end: usize) {
        let from = self.byte(start);
        let piece = &self.text[from..self.byte(end)];
        let trimmed = piece.trim();
        if !trimmed.is_empty() {
            let from = from + (piece.len() - piece.trim_start().len());
            ranges.push(from..from + trimmed.len());
        }
    }

    /// Where the sentence ends if the terminator at `i` ends it.
    fn end_of_sentence(&self, i: usize, start: usize) -> Option<usize> {
        let mut end = i;
        while self.at(end).is_some_and(is_mark) {
            end += 1;
        }
        let closed = self.after_closers(end, start);
        if closed < self.chars.len() && !self.space_at(closed) && !self.lacks_a_blank(i, start) {
            return None;
        }
        let quoted = closed > end;
        let Some(next) = self.next_visible(closed) else { return Some(closed) };
        let ends = match self.chars[i..end] {
            [(_, '.')] => self.full_stop_ends(i, start, next, quoted),
            // `Yahoo! is …` and `"Who goes there?" he asked` go on; in word pieces a closed title does: `" what is god? " first …`.
            [.., (_, '!' | '?')] if self.cased => !self.goes_on_in_lower_case(next),
            [.., (_, '!' | '?')] => !quoted,
            // An ellipsis pauses more often than it ends.
            _ => self.cased && !self.goes_on_in_lower_case(next),
        };
        ends.then_some(closed)
    }

    /// Whether the single full stop at `i` ends the sentence that began at `start`; `next` is the next visible character.
    fn full_stop_ends(&self, i: usize, start: usize, next: usize, quoted: bool) -> bool {
        if self.cased && self.goes_on_in_lower_case(next) {
            return false;
        }
        let word = self.word_before(i, start);
        // `. . .` of word pieces is an ellipsis.
        if is_mark(self.chars[next].1) || self.detached(i) && word.ends_with(is_mark) {
            return false;
        }
        let lower = word.to_lowercase();
        let next_is_digit = self.chars[next].1.is_ascii_digit();
        let number = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        if number && word.len() <= 3 && (self.is_list_marker(i, start) || self.detached(i) && next_is_digit) {
            return false;
        }
        if quoted {
            return true;
        }
        if NEVER_FINAL.contains(&lower.as_str()) || BEFORE_NUMBER.contains(&lower.as_str()) && next_is_digit {
            return false;
        }
        if MAYBE_FINAL.contains(&lower.as_str()) || is_initials(&lower) {
            return self.opens_sentence(next);
        }
        true
    }

    /// The characters before the full stop at `i`, back to white space or a bracket; word pieces may stand off by a space.
    fn word_before(&self, i: usize, start: usize) -> &'a str {
        let mut to = i;
        while to > start && self.chars[to - 1].1 == ' ' {
            to -= 1;
        }
        let mut from = to;
        while from > start && !self.chars[from - 1].1.is_whitespace() && !OPENING.contains(&self.chars[from - 1].1) {
            from -= 1;
        }
        self.text[self.byte(from)..self.byte(to)].rsplit(['-', '–', '—', '/']).next().unwrap_or_default()
    }

    /// Whether the full stop at `i` ends a sentence whose blank was forgotten: `the runway.The plans`.
    fn lacks_a_blank(&self, i: usize, start: usize) -> bool {
        let is = |at: usize, test: fn(char) -> bool| self.at(at).is_some_and(test);
        let long = |part: &str| part.chars().count() > 2;
        i > start
            && is(i - 1, char::is_lowercase)
            && is(i + 1, char::is_uppercase)
            && is(i + 2, char::is_lowercase)
            && long(self.word_before(i, start))
    }

    /// Whether the number before the full stop at `i` opens its sentence, or a list after a colon.
    fn is_list_marker(&self, i: usize, start: usize) -> bool {
        let before: String = self.chars[start..i].iter().map(|&(_, c)| c).collect();
        let before = before.trim_end().trim_end_matches(|c: char| c.is_ascii_digit()).trim_end();
        before.is_empty() || before.ends_with([':', ';', '-', '*'])
    }

    /// Whether the character at `i` stands between blanks, as punctuation of word pieces does.
    fn detached(&self, i: usize) -> bool {
        i > 0 && self.space_at(i - 1) && self.space_at(i + 1)
    }

    /// Past the closing quotes and brackets that follow at `i`; of word pieces also past a detached quote that closes one.
    fn after_closers(&self, mut i: usize, start: usize) -> usize {
        while self.at(i).is_some_and(|c| CLOSING.contains(&c)) {
            i += 1;
        }
        if self.at(i) == Some(' ') && self.at(i + 1) == Some('"') && self.at(i + 2).is_none_or(char::is_whitespace) {
            let open = self.chars[start..i].iter().filter(|&&(_, c)| c == '"').count() % 2 == 1;
            if open {
                i += 2;
            }
        }
        i
    }

    /// Whether the text from `next` on continues in lower case, behind an opening quote or bracket as well.
    fn goes_on_in_lower_case(&self, next: usize) -> bool {
        self.chars[next..].iter().map(|&(_, c)| c).find(|c| !OPENING.contains(c)).is_some_and(char::is_lowercase)
    }

    /// Whether the word at `next` usually opens a sentence.
    fn opens_sentence(&self, next: usize) -> bool {
        let word: String = self.chars[next..]
            .iter()
            .map(|&(_, c)| c)
            .skip_while(|c| OPENING.contains(c))
            .take_while(|c| c.is_alphabetic())
            .collect();
        let openers = if self.cased { OPENERS } else { LOWER_OPENERS };
        openers.contains(&word.to_lowercase().as_str())
    }

    /// The next character on the same line that is not white space.
    fn next_visible(&self, i: usize) -> Option<usize> {
        let line = self.chars[i..].iter().take_while(|&&(_, c)| c != '\n' && c != '\r');
        line.enumerate().find(|(_, (_, c))| !c.is_whitespace()).map(|(skipped, _)| i + skipped)
    }

    fn at(&self, i: usize) -> Option<char> {
        self.chars.get(i).map(|&(_, c)| c)
    }

    fn space_at(&self, i: usize) -> bool {
        self.at(i).is_some_and(char::is_whitespace)
    }

    fn byte(&self, i: usize) -> usize {
        self.chars.get(i).map_or(self.text.len(), |&(byte, _)| byte)
    }
}

/// Marks that may end a sentence, alone or as a run.
fn is_mark(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '…')
}

/// One letter, or letters with full stops between them: `j`, `u.s`, `d.c`, `a.m`.
fn is_initials(lower: &str) -> bool {
    !lower.is_empty()
        && lower.split('.').all(|part| {
            let mut chars = part.chars();
            chars.next().is_some_and(char::is_alphabetic) && chars.next().is_none()
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sentences(text: &str) -> Vec<&str> {
        split(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn pitfall_13_titles_and_initials_do_not_end_a_sentence() {
        let text = "Dr. J. R. Smith Jr. of St. Ives left.";
        assert_eq!(sentences(text), [text]);
        let word_pieces = "dr. j. r. smith jr. of st. ives left.";
        assert_eq!(sentences(word_pieces), [word_pieces]);
        let detached = "dr . j . r . smith jr . of st . ives left . he slept .";
        assert_eq!(sentences(detached), ["dr . j . r . smith jr . of st . ives left .", "he slept ."]);
        assert_eq!(sentences(""), [""; 0]);
        assert_eq!(sentences(" \n "), [""; 0]);
    }

    #[test]
    fn prose_is_split_at_its_ends() {
        assert_eq!(
            sentences("He left. She stayed! Why? No one knows"),
            ["He left.", "She stayed!", "Why?", "No one knows"]
        );
        assert_eq!(
            sentences("It cost 3.14 dollars in 1989. Then 2.5 more."),
            ["It cost 3.14 dollars in 1989.", "Then 2.5 more."]
        );
        assert_eq!(
            sentences("The U.S. Army left the U.S. The war ended."),
            ["The U.S. Army left the U.S.", "The war ended."]
        );
        assert_eq!(
            sentences("Apple Inc. grew. See No. 5, p. 7 and e.g. Oslo. No. He went."),
            ["Apple Inc. grew.", "See No. 5, p. 7 and e.g. Oslo.", "No.", "He went."]
        );
        assert_eq!(
            sentences("Yahoo! is a company. Visit example.com today."),
            ["Yahoo! is a company.", "Visit example.com today."]
        );
        assert_eq!(
            sentences("Well... maybe. Well... Maybe… not. End…"),
            ["Well... maybe.", "Well...", "Maybe… not.", "End…"]
        );
        assert_eq!(
            sentences("They extend the runway.The plans stay. St.Louis won."),
            ["They extend the runway.", "The plans stay.", "St.Louis won."]
        );
        assert_eq!(sentences("What?! Really?"), ["What?!", "Really?"]);
        assert_eq!(sentences("東京は首都です。人口は多い。"), ["東京は首都です。", "人口は多い。"]);
    }

    #[test]
    fn quotes_stay_with_their_sentence() {
        assert_eq!(sentences("He said \"Go.\" She went."), ["He said \"Go.\"", "She went."]);
        assert_eq!(
            sentences("“Who goes there?” he asked. “I.” (It was he.) Night fell."),
            ["“Who goes there?” he asked.", "“I.”", "(It was he.)", "Night fell."]
        );
        assert_eq!(sentences("He left. \"Go,\" she said."), ["He left.", "\"Go,\" she said."]);
    }

    #[test]
    fn word_pieces_are_split_without_case() {
        assert_eq!(
            sentences(
                "0:teutberga ( died 11 november 875 ) was a queen. she was a sister of hucbert, the lay - abbot of st. maurice's abbey."
            ),
            [
                "0:teutberga ( died 11 november 875 ) was a queen.",
                "she was a sister of hucbert, the lay - abbot of st. maurice's abbey."
            ]
        );
        assert_eq!(
            sentences(
                "his book \" what is god? \" first published in 1989. he said \" go. \" it sold 3 . 5 copies . 12 left"
            ),
            [
                "his book \" what is god? \" first published in 1989.",
                "he said \" go. \"",
                "it sold 3 . 5 copies .",
                "12 left"
            ]
        );
        assert_eq!(sentences("wait . . . then go . bye"), ["wait . . . then go .", "bye"]);
    }

    #[test]
    fn lines_and_list_items_are_sentences() {
        assert_eq!(
            sentences("Iowa\nIt is a state.\r\n1. Open it. Wait.\n2. Close it"),
            ["Iowa", "It is a state.", "1. Open it.", "Wait.", "2. Close it"]
        );
        assert_eq!(sentences("Steps: 1. Open it. 2. Click on."), ["Steps: 1. Open it.", "2. Click on."]);
    }

    #[test]
    fn semicolons_split_only_where_asked() {
        let text = "Iowa grows corn; Ohio (iron; coal) does not; 3;4.";
        assert_eq!(sentences(text), [text]);
        let clauses: Vec<&str> = split_clauses(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(clauses, ["Iowa grows corn;", "Ohio (iron; coal) does not;", "3;4."]);
    }

    /// spaCy's parser (en_core_web_sm 3.8) is no truth either, but two independent splitters should mostly agree.
    #[test]
    fn agrees_with_spacy_on_real_passages() {
        let folder = crate::text::shared_data();
        let (Ok(corpus), Ok(annotations)) = (
            std::fs::read_to_string(folder.join("hotpotqa_train/hotpotqa_train_corpus.json")),
            std::fs::read_to_string(folder.join("hotpotqa_train/annotations.jsonl")),
        ) else {
            eprintln!("skipped: no ../shared");
            return;
        };
        let corpus: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&corpus).unwrap();
        let (mut ours, mut theirs, mut both) = (0, 0, 0);
        for ((title, body), line) in corpus.iter().zip(annotations.lines()) {
            let body: String = body.as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
            let annotation: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = format!("{}:{title}\n{body}", annotation["passage"]);
            // The title's line has no full stop; only the body's boundaries are compared.
            let body_start = text.chars().position(|c| c == '\n').unwrap_or(0) + 1;
            let found: std::collections::BTreeSet<usize> = split(&text)
                .into_iter()
                .map(|range| text[..range.start].chars().count())
                .filter(|&start| start > body_start)
                .collect();
            let expected: std::collections::BTreeSet<usize> = annotation["sentences"]
                .as_array()
                .unwrap()
                .iter()
                .map(|s| s["start"].as_u64().unwrap() as usize)
                .filter(|&start| start > body_start)
                .collect();
            ours += found.len();
            theirs += expected.len();
            both += found.intersection(&expected).count();
        }
        eprintln!("ours {ours}, spaCy {theirs}, shared {both}");
        let f1 = 2.0 * both as f64 / (ours + theirs) as f64;
        assert!(f1 > 0.9, "sentence starts: F1 {f1:.3}");
    }

    proptest! {
        #[test]
        fn ranges_hold_every_visible_character(text in "[a-cA-C0-9 .!?…;\"'“”()。\n-]{0,60}") {
            for ranges in [split(&text), split_clauses(&text)] {
                let mut end = 0;
                for range in &ranges {
                    prop_assert!(range.start >= end && range.start < range.end);
                    prop_assert!(text[end..range.start].trim().is_empty());
                    prop_assert_eq!(text[range.clone()].trim(), &text[range.clone()]);
                    end = range.end;
                }
                prop_assert!(text[end..].trim().is_empty());
            }
        }

        #[test]
        fn any_text_is_split_without_panic(text in any::<String>()) {
            for range in split_clauses(&text) {
                prop_assert!(text.get(range).is_some());
            }
        }
    }
}
