//! The encoder behind an index, as the index needs it: found by name, opened late, told apart by fingerprint.
//!
//! In: `index.encoder`. Out: vectors of texts. [`Encoders`] is where encoders come from; [`ModelEncoders`] takes them from model folders
//! and the hub.

use crate::Result;
use crate::config::BackendKind;
use crate::dataset::texts::TextMeasure;

/// What `index.encoder` says when the dataset decides.
pub const AUTO: &str = "auto";
/// The encoder of a dataset whose files name none: LinearRAG's.
pub const DEFAULT_ENCODER: &str = "sentence-transformers/all-mpnet-base-v2";

/// Vectors of some texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Encoded {
    /// Numbers a vector.
    pub dim: usize,
    /// `[texts, dim]`, row-major, each row of Euclidean length 1.
    pub vectors: Vec<f32>,
    /// Whether a text was longer than the encoder reads.
    pub cut: Vec<bool>,
}

/// Turns texts into vectors; a text's vector depends on the text alone.
pub trait TextEncoder {
    /// Vectors in the order of the texts; `done` hears how many are done.
    ///
    /// # Errors
    /// When the encoder gives no numbers.
    fn encode(&self, texts: &[&str], done: &mut dyn FnMut(usize)) -> Result<Encoded>;
    /// Where it runs, in words.
    fn device(&self) -> String;
}

/// An encoder that is on this machine and not opened.
pub trait FoundEncoder {
    /// A hub id, or the last part of a folder's path.
    fn name(&self) -> &str;
    /// blake3 of its files, hex.
    fn fingerprint(&self) -> &str;
    /// Its tokenizer alone.
    ///
    /// # Errors
    /// When its files do not fit each other.
    fn measure(&self) -> Result<Box<dyn TextMeasure>>;
    /// All of it.
    ///
    /// # Errors
    /// When it is no sentence encoder, or its files do not fit each other.
    fn open(&self) -> Result<Box<dyn TextEncoder>>;
}

/// Where encoders come from.
pub trait Encoders {
    /// Finds an encoder, and fetches it where that is possible.
    ///
    /// # Errors
    /// When it is nowhere; says how to get it.
    fn find(&self, name: &str) -> Result<Box<dyn FoundEncoder>>;
    /// Finds an encoder that is on this machine already; `None` where it is not, or is not whole.
    fn on_machine(&self, name: &str) -> Option<Box<dyn FoundEncoder>>;
}

/// Encoders in model folders, in the hub's cache, and on the hub.
#[derive(Debug, Clone, Copy)]
pub struct ModelEncoders {
    /// Where they run.
    pub device: BackendKind,
}

/// Whether two names can mean one encoder: a hub id, the name alone, and a folder of that name do. Their vectors are compared besides.
pub fn same_name(a: &str, b: &str) -> bool {
    last_part(a) == last_part(b)
}

/// The last part of a hub id or a path.
pub fn last_part(name: &str) -> &str {
    let name = name.trim_end_matches(['/', '\\']);
    name.rsplit(['/', '\\']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_id_a_bare_name_and_a_folder_can_be_one_encoder() {
        for other in ["all-mpnet-base-v2", "/models/all-mpnet-base-v2/", "elsewhere/all-mpnet-base-v2"] {
            assert!(same_name(DEFAULT_ENCODER, other), "{other}");
        }
        assert!(!same_name(DEFAULT_ENCODER, "sentence-transformers/all-MiniLM-L6-v2"));
        assert!(!same_name("a/v2", "a/b-v2"));
    }
}
