//! Under construction.

pub mod summary;
pub mod template;
