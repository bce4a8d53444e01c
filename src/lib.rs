//! livingrag replays question streams through Graph-RAG systems that learn from their own verified reasoning, and measures them.
//!
//! The folders are the pipeline; imports go down this list only (see ARCHITECTURE.md):
//! `cli` → `config` → `report` → `analyse` → `sweep` → `replay` → `trace` → `gates` → `llm` → `generate` → `experience`
//! → `retrieve` → `index` → `encode` → `dataset` → `backend` → `math`.

pub mod analyse;
pub mod backend;
pub mod cli;
pub mod config;
pub mod dataset;
#[cfg(feature = "encoders")]
pub mod encode;
pub mod error;
pub mod experience;
pub mod gates;
pub mod generate;
pub mod ids;
pub mod index;
pub mod llm;
pub mod math;
pub mod replay;
pub mod report;
pub mod retrieve;
#[cfg(any(feature = "encoders", feature = "llm"))]
mod sqlite;
pub mod sweep;
pub mod text;
pub mod trace;

pub use error::{Error, ErrorKind, Result};
