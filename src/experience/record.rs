//! A verified experience, equation 4: e = (query, v, ã, summary, answer, ts, conf).

use crate::ids::{QuestionId, StreamIndex};
use crate::math::sparse::SparseVector;

/// One stored experience. `v` is the question's row of the index, so it is not kept twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Experience {
    /// The source query; its vector v is the index's row.
    pub question: QuestionId,
    /// ts: place in the stream.
    pub stream_index: StreamIndex,
    /// ã, equation 5. Values are `f32` numbers, so that a journal or a Parquet file restores the same bits.
    pub activation: SparseVector,
    /// Summary, equation 6: what becomes a scaffold.
    pub summary: String,
    /// The final answer.
    pub answer: String,
    /// conf = GS of the candidate, an `f32` number.
    pub confidence: f32,
}
