//! Text vectors beside a dataset: `embeddings/<kind>.parquet` with columns `text` and `vector`.

/// A table of distinct texts and their L2-normalised vectors.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorTable {
    /// Encoder name from the schema metadata.
    pub encoder: String,
    /// Where the encoder cut over-long texts, in tokens, if the file says.
    pub truncated_at_tokens: Option<usize>,
    /// Width of a vector.
    pub dim: usize,
    /// Distinct texts, in file order.
    pub texts: Vec<String>,
    /// `texts.len() * dim` numbers, row-major.
    pub data: Vec<f32>,
}
