//! Chat models behind OpenAI-compatible addresses: ask, remember, judge, count and price.
//!
//! In: [`ChatRequest`]s. Out: one [`ChatOutcome`] each, in the same order, whatever the endpoint did in between.
//! [`Client`] sends and retries, [`Cache`] keeps every completed answer, [`judge`] scores, [`prices`] turns tokens into
//! dollars, [`probe`] looks at an endpoint before a run, [`Endpoint`] puts them together as a configuration asks. The types that readers share ([`LlmStatus`], [`Usage`],
//! [`Judgement`]) are those of [`crate::generate`].

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
pub mod prices;
pub mod probe;
mod profile;
mod reader;
mod reply;
mod retry;
#[cfg_attr(not(feature = "llm"), allow(dead_code, reason = "only the HTTP client needs all of it"))]
mod secret;

pub use crate::generate::{Judgement, LlmStatus, Usage};
pub use cache::{Cache, CacheMode, CacheStats, Entry, Imported, ModelStats, Pruned, Selection, export, import};
pub use chat::{CacheKey, Call, CallError, ChatOutcome, ChatRequest, FailureKind, Message, Role};
pub use client::{Client, ClientSettings, Planned};
pub use clock::{Clock, SystemClock};
pub use date::{http_date, iso_date};
pub use endpoint::{Endpoint, Tally};
pub use gate::Caps;
pub use json_list::{JsonList, json_list};
pub use ledger::{Ledger, Spent};
pub use profile::{Profile, Thinking};
pub use reader::ApiReader;
pub(crate) use reader::response;
pub use retry::RetryPolicy;
pub use secret::Secret;

/// A lock whose holder died is still a lock: every holder leaves its data whole between statements.
fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Rough token count of a text: four bytes a token, as English runs; used for quotes, caps and the look at cut prompts, never
/// as a measurement.
pub fn estimate_tokens(text: &str) -> u32 {
    u32::try_from(text.len().div_ceil(4)).unwrap_or(u32::MAX)
}
