//! Verified reasoning experience: what is stored, how it is matched and fused, and how it becomes a scaffold (section 3).
//!
//! Takes activation vectors and knows no retriever.

pub mod fuse;
pub mod record;
pub mod store;
pub mod summary;
pub mod template;
