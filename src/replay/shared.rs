//! What the runs of a dataset share while they advance in step, and how much work that saved.
//!
//! In: results with what they depend on as a key. Out: the same result for the next run that asks. A result is kept per question and
//! let go once every run has passed that question, so memory does not grow with the length of the stream, and with runs of one order
//! nothing outlives its block.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::gates::grounding::PairMemo;
use crate::replay::answer::{Claimed, Reply};
use crate::retrieve::Retrieved;

/// 16 bytes of blake3 over everything a result depends on.
pub type Key = [u8; 16];

/// Builds a [`Key`]; every field is written with its length, so that no two lists of fields share their bytes.
#[derive(Default)]
pub struct KeyBuilder(blake3::Hasher);

impl KeyBuilder {
    /// Adds text.
    pub fn text(mut self, text: &str) -> Self {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
        self
    }

    /// Adds numbers.
    pub fn numbers(mut self, numbers: impl ExactSizeIterator<Item = u64>) -> Self {
        self.0.update(&(numbers.len() as u64).to_le_bytes());
        for n in numbers {
            self.0.update(&n.to_le_bytes());
        }
        self
    }

    /// The key.
    pub fn finish(self) -> Key {
        let mut key = Key::default();
        self.0.finalize_xof().fill(&mut key);
        key
    }
}

fn open<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Results by question and key.
pub struct Memo<T>(Mutex<BTreeMap<usize, HashMap<Key, Arc<T>>>>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Memo<T> {
    /// What is known.
    pub fn get(&self, question: usize, key: &Key) -> Option<Arc<T>> {
        open(&self.0).get(&question)?.get(key).map(Arc::clone)
    }

    /// Keeps a result and hands it back.
    pub fn put(&self, question: usize, key: Key, value: T) -> Arc<T> {
        let value = Arc::new(value);
        open(&self.0).entry(question).or_default().insert(key, Arc::clone(&value));
        value
    }

    /// What is kept under the key, or `default` from now on.
    pub fn entry(&self, question: usize, key: Key, default: impl FnOnce() -> T) -> Arc<T> {
        Arc::clone(open(&self.0).entry(question).or_default().entry(key).or_insert_with(|| Arc::new(default())))
    }

    fn release(&self, question: usize) {
        open(&self.0).remove(&question);
    }

    /// Results kept now.
    pub fn len(&self) -> usize {
        open(&self.0).values().map(HashMap::len).sum()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Work that runs asked for, and what of it was done: the distinct part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amount {
    /// What the runs would have done one by one.
    pub asked: u64,
    /// What was computed.
    pub done: u64,
}

/// Counters of one dataset's runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Work {
    /// Queries of runs, each with its row.
    pub queries: u64,
    /// Requests to readers.
    pub requests: Amount,
    /// Graph retrievals: one propagation and one PageRank column each. `done` includes those of `linear` that describe a stream.
    pub retrievals: Amount,
    /// PageRank columns solved.
    pub ppr_columns: u64,
    /// Propagation queries.
    pub propagations: u64,
    /// Scans of a store by a query; a store belongs to one run, so each is distinct.
    pub store_scans: u64,
    /// Candidates whose grounding was scored.
    pub candidates: Amount,
    /// (evidence, claim) pairs scored.
    pub pairs: Amount,
    /// Distinct question–question cosines computed.
    pub question_cosines: u64,
    /// Distinct cosines of masked questions computed.
    pub template_cosines: u64,
    /// Dollars of the requests that were made.
    pub usd: f64,
}

/// What one session's runs share.
#[derive(Default)]
pub struct Shared {
    /// Replies of readers.
    pub replies: Memo<Reply>,
    /// Claims with their evidence and grounding.
    pub claimed: Memo<Claimed>,
    /// Graph retrievals from fused activations.
    pub retrievals: Memo<Retrieved>,
    /// Pairs already scored, by the identity of what scores them.
    pairs: Mutex<BTreeMap<String, Arc<PairMemo>>>,
    work: Mutex<Work>,
}

impl Shared {
    /// The pairs that the scorer of this identity has scored.
    pub fn pairs(&self, entailment: &str) -> Arc<PairMemo> {
        Arc::clone(open(&self.pairs).entry(entailment.to_owned()).or_default())
    }

    /// Adds to the counters.
    pub fn count(&self, add: impl FnOnce(&mut Work)) {
        add(&mut open(&self.work));
    }

    /// The counters that are kept here; [`super::Session::work`] has all.
    pub(super) fn counted(&self) -> Work {
        let mut work = open(&self.work).clone();
        for memo in open(&self.pairs).values() {
            work.pairs.done += memo.scored();
        }
        work
    }

    /// Lets go of everything about a question.
    pub(super) fn release(&self, question: usize) {
        self.replies.release(question);
        self.claimed.release(question);
        self.retrievals.release(question);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_run_into_each_other() {
        let key = |a: &str, b: &str| KeyBuilder::default().text(a).text(b).finish();
        assert_ne!(key("ab", "c"), key("a", "bc"));
        assert_eq!(key("ab", "c"), key("ab", "c"));
        let numbers =
            |a: &[u64], b: &[u64]| KeyBuilder::default().numbers(a.iter().copied()).numbers(b.iter().copied()).finish();
        assert_ne!(numbers(&[1], &[2, 3]), numbers(&[1, 2], &[3]));
    }

    #[test]
    fn a_released_question_is_forgotten() {
        let memo = Memo::default();
        memo.put(3, [1; 16], "x");
        memo.put(3, [2; 16], "y");
        memo.put(4, [1; 16], "z");
        assert_eq!((memo.len(), memo.get(3, &[2; 16]).as_deref()), (3, Some(&"y")));
        memo.release(3);
        assert_eq!((memo.len(), memo.get(3, &[2; 16])), (1, None));
        assert!(!memo.is_empty());
    }
}
