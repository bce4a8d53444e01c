//! The writable store of one run: append-only, in stream order (equation 3).
//!
//! In: accepted experiences. Out: what a query at t may see, and inverted lists for the sparse part of a scan.

use std::collections::HashMap;

use crate::backend::{ActivationStore, StoreId};
use crate::experience::record::Experience;
use crate::ids::{ExperienceId, StreamIndex};
use crate::math::sparse::SparseVector;

/// Experiences in order of commit.
#[derive(Debug, Clone, Default)]
pub struct ExperienceStore {
    id: StoreId,
    experiences: Vec<Experience>,
    /// Entity → (experience, ã). Looked up only, never iterated.
    postings: HashMap<u32, Vec<(u32, f64)>>,
    norms: Vec<f64>,
}

impl ExperienceStore {
    /// Number of experiences.
    pub fn len(&self) -> usize {
        self.experiences.len()
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.experiences.is_empty()
    }

    /// All experiences in order of commit.
    pub fn all(&self) -> &[Experience] {
        &self.experiences
    }

    /// Equation 3: appends an accepted experience. Stream indices must ascend.
    pub fn append(&mut self, experience: Experience) -> ExperienceId {
        debug_assert!(self.experiences.last().is_none_or(|last| last.stream_index < experience.stream_index));
        let id = ExperienceId::from(self.experiences.len());
        for (entity, value) in experience.activation.iter() {
            self.postings.entry(entity).or_default().push((id.0, value));
        }
        self.norms.push(experience.activation.norm());
        self.experiences.push(experience);
        id
    }

    /// How many experiences query t may see with lag W: those accepted from queries s <= t - W. They are a prefix.
    pub fn visible(&self, t: StreamIndex, lag: u32) -> usize {
        self.experiences.partition_point(|e| u64::from(e.stream_index.0) + u64::from(lag) <= u64::from(t.0))
    }

    /// Bytes the store takes, equation 26 without the vectors, which the index holds.
    pub fn bytes(&self) -> usize {
        let of = |e: &Experience| {
            size_of::<Experience>() + e.activation.len() * (12 + 16) + e.summary.len() + e.answer.len()
        };
        self.experiences.iter().map(of).sum()
    }
}

impl ActivationStore for ExperienceStore {
    fn id(&self) -> &StoreId {
        &self.id
    }

    fn count(&self) -> usize {
        self.experiences.len()
    }

    fn map(&self, experience: usize) -> &SparseVector {
        &self.experiences[experience].activation
    }

    fn postings(&self, entity: u32) -> &[(u32, f64)] {
        self.postings.get(&entity).map_or(&[], Vec::as_slice)
    }

    fn norm(&self, experience: usize) -> f64 {
        self.norms[experience]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::QuestionId;

    fn at(t: u32) -> Experience {
        Experience {
            question: QuestionId(t - 1),
            stream_index: StreamIndex(t),
            activation: SparseVector::from_assignments([(t, 1.0)]),
            summary: String::new(),
            answer: String::new(),
            confidence: 1.0,
        }
    }

    /// spec 4.1: with W = 16 the 17th query sees exactly the first query's experience; with W = 1 the 2nd does.
    #[test]
    fn visibility_is_lagged() {
        let mut store = ExperienceStore::default();
        for t in [1, 2, 5] {
            store.append(at(t));
        }
        let seen = |lag| (1..=25).map(|t| store.visible(StreamIndex(t), lag)).collect::<Vec<_>>();
        assert_eq!(&seen(16)[14..22], [0, 0, 1, 2, 2, 2, 3, 3]);
        assert_eq!(&seen(1)[..6], [0, 1, 2, 2, 2, 3]);
    }
}
