//! Grounding by natural-language inference: equations 15 and 16 with P(entail) of a cross-encoder.
//!
//! In: candidates. Out: supports, contradictions and GS. All pairs of a batch are one stream; equal pairs are scored once, in memory by
//! [`PairMemo`] and over runs and processes by [`PairCache`]. The model is opened at the first pair that is not kept, so a run whose pairs
//! are all kept loads no weights. Scores are kept as they come, so a killed run loses at most one slice of pairs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::grounding::{
    Candidate, Grounded, GroundingScorer, PairMemo, PairScore, PairsHeard, pair_key, score_pairwise_sharing,
};
use super::pair_cache::{KeptPair, PairCache};
use crate::{Error, Result};

/// Tokens, roughly, that are scored before the scores are kept.
const SLICE_TOKENS: usize = 32_768;
/// Bytes a token, roughly.
const BYTES_PER_TOKEN: usize = 4;

/// What a model makes of pairs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Judged {
    /// One a pair, in order.
    pub scores: Vec<PairScore>,
    /// Whether the pair's premise was cut.
    pub cut: Vec<bool>,
    /// Tokens read.
    pub tokens: u64,
}

/// Judges (premise, hypothesis) pairs. A pair's score depends on the pair alone, never on its neighbours.
pub trait PairModel: Send + Sync {
    /// One score a pair; `done` hears how many are done.
    ///
    /// # Errors
    /// When the model gives no number.
    fn judge(&self, pairs: &[(&str, &str)], done: &mut dyn FnMut(usize)) -> Result<Judged>;
}

/// Which model, as rows and caches name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its name: a hub id, or the last part of a folder's path.
    pub name: String,
    /// blake3 of its files, hex.
    pub fingerprint: String,
    /// Precision of its products.
    pub precision: String,
}

impl Identity {
    /// `<name> <first 12 digits of the fingerprint> <precision>`.
    pub fn short(&self) -> String {
        format!("{} {} {}", self.name, self.fingerprint.get(..12).unwrap_or(&self.fingerprint), self.precision)
    }
}

/// What was done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Done {
    asked: u64,
    cached: u64,
    scored: u64,
    cut: u64,
    tokens: u64,
    us: u64,
}

type Opener = Box<dyn Fn() -> Result<Box<dyn PairModel>> + Send + Sync>;

/// One model with its cache, shared by every run that is checked by it.
pub struct NliModel {
    identity: Identity,
    open: Opener,
    model: Mutex<Option<Box<dyn PairModel>>>,
    /// The cache and the model's number in it.
    cache: Option<(PairCache, i64)>,
    done: Mutex<Done>,
    hear: Mutex<Option<PairsHeard>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NliModel {
    /// A model that `open` loads when it is needed.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub fn new(
        identity: Identity,
        cache: Option<PairCache>,
        open: impl Fn() -> Result<Box<dyn PairModel>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let enter = |cache: PairCache| {
            let number = cache.model(&identity.name, &identity.fingerprint, &identity.precision)?;
            Ok::<_, Error>((cache, number))
        };
        Ok(Self {
            cache: cache.map(enter).transpose()?,
            identity,
            open: Box::new(open),
            model: Mutex::default(),
            done: Mutex::default(),
            hear: Mutex::default(),
        })
    }

    /// Which model.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    fn kept(&self, keys: &[[u8; 16]]) -> Result<Vec<Option<KeptPair>>> {
        match &self.cache {
            Some((cache, model)) => cache.get(*model, keys),
            None => Ok(vec![None; keys.len()]),
        }
    }

    /// P(entail) and P(contradict) of each pair, kept ones first, the others scored and kept.
    ///
    /// # Errors
    /// When the model cannot be opened or gives no number, or the cache fails. What was scored before is kept.
    pub fn entail(&self, pairs: &[(&str, &str)]) -> Result<Vec<PairScore>> {
        let keys: Vec<[u8; 16]> = pairs.iter().map(|&pair| pair_key(pair)).collect();
        let mut found = self.kept(&keys)?;
        let missing: Vec<usize> = (0..pairs.len()).filter(|&i| found[i].is_none()).collect();
        {
            let mut done = locked(&self.done);
            done.asked += pairs.len() as u64;
            done.cached += (pairs.len() - missing.len()) as u64;
            done.cut += found.iter().flatten().filter(|pair| pair.cut).count() as u64;
        }
        let mut before = 0;
        for slice in slices(pairs, &missing) {
            let new: Vec<(&str, &str)> = slice.iter().map(|&i| pairs[i]).collect();
            let judged = self.judge(&new, &mut |n| {
                if let Some(hear) = locked(&self.hear).as_ref() {
                    hear(before + n, missing.len());
                }
            })?;
            let of_slice: Vec<([u8; 16], KeptPair)> = slice
                .iter()
                .zip(judged.scores.into_iter().zip(judged.cut))
                .map(|(&i, (score, cut))| (keys[i], KeptPair { score, cut }))
                .collect();
            let standing = match &self.cache {
                Some((cache, model)) => cache.put(*model, &of_slice, now())?,
                None => of_slice.into_iter().map(|(_, pair)| pair).collect(),
            };
            for (&i, pair) in slice.iter().zip(standing) {
                found[i] = Some(pair);
            }
            before += slice.len();
        }
        Ok(found.into_iter().map(|pair| pair.map_or(PairScore::from(0.0), |pair| pair.score)).collect())
    }

    /// Has pairs scored by the model, which is opened if it is not yet.
    fn judge(&self, pairs: &[(&str, &str)], heard: &mut dyn FnMut(usize)) -> Result<Judged> {
        let started = Instant::now();
        let mut model = locked(&self.model);
        if model.is_none() {
            *model = Some((self.open)()?);
        }
        let judged = match model.as_ref() {
            Some(model) => model.judge(pairs, heard)?,
            None => Judged::default(),
        };
        if judged.scores.len() != pairs.len() || judged.cut.len() != pairs.len() {
            return Err(Error::work(format!(
                "the grounding model {} gave {} scores for {} pairs",
                self.identity.name,
                judged.scores.len(),
                pairs.len()
            )));
        }
        if let Some((_, claim)) = judged.scores.iter().zip(pairs).find(|(s, _)| !is_score(s)).map(|(_, pair)| pair) {
            // Nothing of the kind may come into the cache.
            return Err(Error::work(format!(
                "the grounding model {} gives no probability for the claim \"{claim}\"",
                self.identity.short()
            ))
            .with_hint("check the model's precision and files"));
        }
        let mut done = locked(&self.done);
        done.scored += pairs.len() as u64;
        done.cut += judged.cut.iter().filter(|cut| **cut).count() as u64;
        done.tokens += judged.tokens;
        done.us += u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(judged)
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let done = *locked(&self.done);
        let named = [
            ("nli_pairs_asked", done.asked),
            ("nli_pairs_cached", done.cached),
            ("nli_pairs_scored", done.scored),
            ("nli_pairs_cut", done.cut),
            ("nli_tokens", done.tokens),
            // Sequences lie end to end in a batch.
            ("nli_padding_tokens", 0),
            ("nli_ms", done.us / 1000),
        ];
        named.into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
    }
}

fn is_score(score: &PairScore) -> bool {
    [Some(score.entailment), score.contradiction].into_iter().flatten().all(|p| (0.0..=1.0).contains(&p))
}

/// The places in `missing`, in order, in runs of about [`SLICE_TOKENS`].
fn slices<'a>(pairs: &[(&str, &str)], missing: &'a [usize]) -> Vec<&'a [usize]> {
    let mut out = Vec::new();
    let (mut start, mut tokens) = (0, 0);
    for (place, &i) in missing.iter().enumerate() {
        let (premise, claim) = pairs[i];
        tokens += (premise.len() + claim.len()) / BYTES_PER_TOKEN + 3;
        if tokens >= SLICE_TOKENS {
            out.push(&missing[start..=place]);
            (start, tokens) = (place + 1, 0);
        }
    }
    if start < missing.len() {
        out.push(&missing[start..]);
    }
    out
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}

/// The entailment scorer.
#[derive(Clone)]
pub struct NliScorer {
    /// The model, which other scorers share.
    pub model: Arc<NliModel>,
    /// τ_nli: support from which on a claim counts.
    pub tau_nli: f64,
}

impl GroundingScorer for NliScorer {
    fn name(&self) -> &str {
        "nli"
    }

    fn model(&self) -> String {
        self.model.identity.short()
    }

    fn score(&self, batch: &[Candidate]) -> Result<Vec<Grounded>> {
        self.score_sharing(batch, &PairMemo::default())
    }

    fn score_sharing(&self, batch: &[Candidate], known: &PairMemo) -> Result<Vec<Grounded>> {
        score_pairwise_sharing(batch, self.tau_nli, known, |pairs| self.model.entail(pairs))
    }

    fn rehearsal(&self) -> Option<Arc<dyn GroundingScorer>> {
        Some(Arc::new(KeptScorer(self.clone())))
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        self.model.counters()
    }

    fn watch(&self, hear: PairsHeard) {
        *locked(&self.model.hear) = Some(hear);
    }
}

/// The scorer of a rehearsal: what is kept is told, what is not supports nothing.
struct KeptScorer(NliScorer);

impl GroundingScorer for KeptScorer {
    fn name(&self) -> &str {
        "nli"
    }

    fn score(&self, batch: &[Candidate]) -> Result<Vec<Grounded>> {
        score_pairwise_sharing(batch, self.0.tau_nli, &PairMemo::default(), |pairs| {
            let keys: Vec<[u8; 16]> = pairs.iter().map(|&pair| pair_key(pair)).collect();
            let kept = self.0.model.kept(&keys)?;
            Ok(kept.into_iter().map(|pair| pair.map_or(PairScore::from(0.0), |pair| pair.score)).collect())
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::gates::grounding::tests::candidate;

    /// Entailment is one over the premise's length; a premise of more than 100 bytes is cut. Fails at the claim `stop`.
    struct Lengths(Arc<AtomicUsize>);

    impl PairModel for Lengths {
        fn judge(&self, pairs: &[(&str, &str)], done: &mut dyn FnMut(usize)) -> Result<Judged> {
            if pairs.iter().any(|(_, claim)| *claim == "stop") {
                return Err(Error::work("stopped"));
            }
            self.0.fetch_add(pairs.len(), Ordering::Relaxed);
            done(pairs.len());
            let score = |(premise, claim): &(&str, &str)| PairScore {
                entailment: if *claim == "nan" { f32::NAN } else { 1.0 / premise.len() as f32 },
                contradiction: Some(0.125),
            };
            Ok(Judged {
                scores: pairs.iter().map(score).collect(),
                cut: pairs.iter().map(|(premise, _)| premise.len() > 100).collect(),
                tokens: 7 * pairs.len() as u64,
            })
        }
    }

    fn scorer(cache: Option<&Path>, precision: &str) -> (NliScorer, Arc<AtomicUsize>) {
        let identity =
            Identity { name: "m".into(), fingerprint: "0123456789abcdef".into(), precision: precision.into() };
        let judged = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&judged);
        let cache = cache.map(|path| PairCache::open(path).unwrap());
        let open = move || Ok(Box::new(Lengths(Arc::clone(&counted))) as Box<dyn PairModel>);
        let model = Arc::new(NliModel::new(identity, cache, open).unwrap());
        (NliScorer { model, tau_nli: 0.4 }, judged)
    }

    fn batch() -> [Candidate; 2] {
        let long = Box::leak("x".repeat(101).into_boxed_str());
        [candidate("q1", &[("a", &["xx", "yyy"]), ("b", &["xx"])]), candidate("q2", &[("a", &["xx", long])])]
    }

    #[test]
    fn supports_contradictions_and_scores_go_into_the_result() {
        let (scorer, judged) = scorer(None, "f32");
        let grounded = scorer.score(&batch()).unwrap();
        let claim = &grounded[0].claims[0];
        assert_eq!((claim.support, claim.contradiction), (0.5, Some(0.125)));
        assert_eq!(claim.evidence.as_ref().unwrap().text, "xx");
        assert_eq!((grounded[0].gs, grounded[1].gs), (1.0, 1.0));
        // Five pairs, of which ("xx", "a") comes twice.
        assert_eq!(judged.load(Ordering::Relaxed), 4);
        assert_eq!(scorer.model(), "m 0123456789ab f32");
        let counters = scorer.counters();
        let of = |name: &str| counters[name];
        assert_eq!(
            (of("nli_pairs_asked"), of("nli_pairs_scored"), of("nli_pairs_cut"), of("nli_tokens")),
            (4, 4, 1, 28)
        );
    }

    /// A second process with the same cache scores nothing and says the same; another precision is another model.
    #[test]
    fn what_is_kept_is_not_scored_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nli.sqlite");
        let first = scorer(Some(&path), "f32").0.score(&batch()).unwrap();
        let (again, judged) = scorer(Some(&path), "f32");
        assert_eq!(again.score(&batch()).unwrap(), first);
        assert_eq!(judged.load(Ordering::Relaxed), 0);
        let counters = again.counters();
        assert_eq!((counters["nli_pairs_cached"], counters["nli_pairs_scored"], counters["nli_pairs_cut"]), (4, 0, 1));
        let (other, judged) = scorer(Some(&path), "bf16");
        assert_eq!(other.score(&batch()).unwrap(), first);
        assert_eq!(judged.load(Ordering::Relaxed), 4);
    }

    /// A run that breaks off in the middle has kept every slice before.
    #[test]
    fn a_broken_off_batch_keeps_what_was_scored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nli.sqlite");
        let long = "x".repeat(BYTES_PER_TOKEN * SLICE_TOKENS);
        let pairs = [(long.as_str(), "a"), ("short", "b"), (long.as_str(), "stop")];
        let (broken, _) = scorer(Some(&path), "f32");
        assert_eq!(broken.model.entail(&pairs).unwrap_err().to_string(), "stopped");
        let (resumed, judged) = scorer(Some(&path), "f32");
        assert_eq!(resumed.model.entail(&pairs[..2]).unwrap()[1].entailment, 0.2);
        assert_eq!(judged.load(Ordering::Relaxed), 1, "the first slice is kept, the second is not");
    }

    /// pitfall 36: what is no number is an error and never kept.
    #[test]
    fn pitfall_36_no_nan_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nli.sqlite");
        let (scorer, _) = scorer(Some(&path), "f32");
        let error = scorer.score(&[candidate("q", &[("nan", &["x"])])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the grounding model m 0123456789ab f32 gives no probability for the claim \"nan\""
        );
        assert!(PairCache::open(&path).unwrap().stats().unwrap().is_empty());
    }

    #[test]
    fn a_model_that_cannot_be_opened_is_an_error_only_where_it_is_needed() {
        let identity = Identity { name: "m".into(), fingerprint: "f".into(), precision: "f32".into() };
        let model = NliModel::new(identity, None, || Err(Error::request("no weights"))).unwrap();
        assert!(model.entail(&[]).unwrap().is_empty());
        assert_eq!(model.entail(&[("x", "a")]).unwrap_err().to_string(), "no weights");
    }

    #[test]
    fn a_rehearsal_scores_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nli.sqlite");
        let (scorer, judged) = scorer(Some(&path), "f32");
        let rehearsal = scorer.rehearsal().unwrap();
        assert_eq!(rehearsal.score(&batch()).unwrap()[0].gs, 0.0);
        assert_eq!(judged.load(Ordering::Relaxed), 0);
        let real = scorer.score(&batch()).unwrap();
        assert_eq!(rehearsal.score(&batch()).unwrap(), real);
    }

    #[test]
    fn progress_is_heard_over_all_slices() {
        let (scorer, _) = scorer(None, "f32");
        let heard: Arc<Mutex<Vec<(usize, usize)>>> = Arc::default();
        let ear = Arc::clone(&heard);
        scorer.watch(Box::new(move |done, of| ear.lock().unwrap().push((done, of))));
        let long = "x".repeat(BYTES_PER_TOKEN * SLICE_TOKENS);
        scorer.model.entail(&[(long.as_str(), "a"), ("b", "b"), ("c", "c")]).unwrap();
        assert_eq!(*heard.lock().unwrap(), [(1, 3), (3, 3)]);
    }
}
