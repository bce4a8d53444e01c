//! Plain text handling that every stage shares: sentences, words, answer normalisation, token estimates.
//!
//! In: any UTF-8 text, cased prose as well as lower-cased word pieces. Out: byte ranges, words and counts. No language
//! model is asked; every rule is written down where it is applied (spec sections 3 and 7).

pub mod answer;
pub mod lists;
pub mod sentences;
pub mod words;

pub use answer::{contains_at_boundaries, normalize_answer};
pub use lists::strip_list_marker;
pub use words::{contains_tokens, estimate_tokens, is_stop_word, is_word_char, tokens};

/// Where real data lies beside a checkout, for tests only.
#[cfg(test)]
pub(crate) fn shared_data() -> std::path::PathBuf {
    let root = std::env::var_os("LIVINGRAG_SHARED")
        .map_or_else(|| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), Into::into);
    root.join("data")
}
