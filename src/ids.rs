//! Identities as types, so that a passage can never be taken for an entity.
//!
//! All are dense numbers from 0 in order of first appearance, except [`StreamIndex`], which counts from 1 as the paper does.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// As an index into a slice.
            #[inline]
            pub fn at(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            /// Panics only past 2^32 - 1, which every reader refuses first.
            fn from(n: usize) -> Self {
                debug_assert!(u32::try_from(n).is_ok());
                Self(n as u32)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A passage, by its place in the corpus.
    PassageId
);
id!(
    /// A unique sentence text that carries at least one entity.
    SentenceId
);
id!(
    /// A unique entity surface string.
    EntityId
);
id!(
    /// A question, by its place in the dataset's file.
    QuestionId
);
id!(
    /// A stored experience of one run, by the order of commits.
    ExperienceId
);
id!(
    /// Place t of a query in the stream of one run, from 1.
    StreamIndex
);
