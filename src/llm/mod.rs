//! Chat models behind OpenAI-compatible addresses: ask, remember, judge, count and price.
//!
//! In: [`ChatRequest`]s. Out: one [`ChatOutcome`] each, in the same order, whatever the endpoint did in between.
//! [`Client`] sends and retries, [`Cache`] keeps every completed answer, [`Recording`] replays answers from a file, [`judge`] scores,
//! [`prices`] turns tokens into dollars, [`probe`] looks at an endpoint before a run, [`Endpoint`] puts them together as a configuration
//! asks. The types that readers share ([`LlmStatus`], [`Usage`], [`Judgement`]) are those of [`crate::generate`].

mod cache;
mod chat;
mod client;
mod clock;
mod date;
mod endpoint;
mod gate;
#[cfg(feature = "llm")]
mod http;
#[cfg(not(feature = "llm"))]
#[path = "http_disabled.rs"]
mod http;
mod json_list;
pub mod judge;
mod ledger;
#[cfg(feature = "gguf")]
mod local;
#[cfg(not(feature = "gguf"))]
#[path = "local_disabled.rs"]
mod local;
mod outcome;
pub mod prices;
pub mod probe;
mod profile;
mod reader;
mod recording;
mod reply;
mod retry;
#[cfg_attr(not(feature = "llm"), allow(dead_code, reason = "only the HTTP client needs all of it"))]
mod secret;
#[cfg(feature = "encoders")]
mod tokens;
#[cfg(not(feature = "encoders"))]
#[path = "tokens_disabled.rs"]
mod tokens;
mod transport;

pub use crate::generate::{Judgement, LlmStatus, Usage};
pub use cache::{
    Cache, CacheMode, CacheStats, Entry, Imported, ModelStats, Pruned, Selection, check_import, export, import,
};
pub use chat::{CacheKey, Call, CallError, ChatOutcome, ChatRequest, FailureKind, Message, Role};
pub use client::{Client, ClientSettings, Planned};
pub use clock::{Clock, SystemClock};
pub use date::{http_date, iso_date};
pub use endpoint::{Endpoint, Tally, recorded_judge, recorded_reader, token_counter};
pub use gate::Caps;
pub use json_list::{JsonList, json_list};
pub use ledger::Ledger;
pub use profile::{Profile, Thinking};
pub use reader::{ChatReader, Source};
pub use recording::{Recorded, Recording, record};
pub use retry::RetryPolicy;
pub use secret::Secret;
pub use tokens::TokenCounter;

/// A lock whose holder died is still a lock: every holder leaves its data whole between statements.
fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Rough token count of a text: four bytes a token, as English runs; used for quotes, caps and the look at cut prompts, never
/// as a measurement.
pub fn estimate_tokens(text: &str) -> u32 {
    u32::try_from(text.len().div_ceil(4)).unwrap_or(u32::MAX)
}
