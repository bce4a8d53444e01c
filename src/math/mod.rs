//! Under construction.

pub mod tfidf;
