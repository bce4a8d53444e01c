//! Where the texts of a packed batch start and end.

use std::sync::Arc;

/// Start rows of the texts of a packed batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segments {
    offsets: Arc<[u32]>,
    max_len: usize,
}

impl Segments {
    /// Texts of these lengths, in tokens, one after the other.
    ///
    /// A batch holds far fewer than 2³² tokens; what would pass that is cut off there, and no tensor has as many rows.
    pub fn new(lengths: &[usize]) -> Self {
        let mut end = 0u32;
        let ends = lengths.iter().map(|&len| {
            end = end.saturating_add(u32::try_from(len).unwrap_or(u32::MAX));
            end
        });
        let offsets = std::iter::once(0).chain(ends).collect();
        Self { offsets, max_len: lengths.iter().copied().max().unwrap_or(0) }
    }

    /// Start row of each text and, last, the number of rows: `[n + 1]`.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// No text at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tokens of all texts.
    pub fn total(&self) -> usize {
        self.offsets[self.len()] as usize
    }

    /// Tokens of the longest text.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// Rows of text `i`.
    pub fn rows(&self, i: usize) -> std::ops::Range<usize> {
        self.offsets[i] as usize..self.offsets[i + 1] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_by_hand() {
        let segments = Segments::new(&[3, 0, 5]);
        assert_eq!(segments.offsets(), &[0, 3, 3, 8]);
        assert_eq!((segments.len(), segments.total(), segments.max_len()), (3, 8, 5));
        assert_eq!(segments.rows(2), 3..8);
        assert!(Segments::new(&[]).is_empty());
    }
}
