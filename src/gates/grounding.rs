//! Factual grounding, equations 15 and 16, over a whole batch of candidates at once.
//!
//! In: candidates with claims and, per claim, its evidence sentences. Out: a support per claim and GS per candidate. What
//! computes entailment stands behind [`GroundingScorer`]; [`score_pairwise`] turns any function over (premise, hypothesis)
//! pairs into one, with a single call for the batch.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::evidence::Evidence;
use crate::ids::StreamIndex;
use crate::{Error, Result};

/// What a scorer is given for one query.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The question's id.
    pub query_id: String,
    /// Place t in the stream.
    pub stream_index: StreamIndex,
    /// Atomic claims cl_1 … cl_M.
    pub claims: Vec<String>,
    /// Evidence sentences of each claim, best first; as many lists as claims.
    pub evidence: Vec<Vec<Evidence>>,
}

/// One claim and how far it is supported.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimSupport {
    /// The claim.
    pub text: String,
    /// g_i of equation 15, in [0, 1].
    pub support: f32,
    /// P(contradict) of the pair that gave the support; `None` from a scorer that knows no contradiction.
    pub contradiction: Option<f32>,
    /// The evidence that gave it; `None` when there was none to look at.
    pub evidence: Option<Evidence>,
}

/// A candidate's grounding.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Grounded {
    /// GS of equation 16, in [0, 1].
    pub gs: f64,
    /// The claims that were checked, in order; empty for a scorer that looks at none.
    pub claims: Vec<ClaimSupport>,
}

/// Computes GS. A result must depend on its candidate alone, never on its neighbours in the batch.
pub trait GroundingScorer: Send + Sync {
    /// What kind it is, for example `lexical`.
    fn name(&self) -> &str;
    /// What computes GS, for the column `grounding_model`: where a model does, with its fingerprint and precision.
    fn model(&self) -> String {
        self.name().to_owned()
    }
    /// One result a candidate, in order.
    ///
    /// # Errors
    /// When the run must stop, for example because a model gives no number.
    fn score(&self, batch: &[Candidate]) -> Result<Vec<Grounded>>;
    /// As [`Self::score`], with the same results; a scorer of pairs takes those that `known` holds from there and adds the others.
    ///
    /// # Errors
    /// As [`Self::score`].
    fn score_sharing(&self, batch: &[Candidate], known: &PairMemo) -> Result<Vec<Grounded>> {
        let _ = known;
        self.score(batch)
    }
    /// A scorer for a rehearsal, which is quick and need not be right; `None` where this one is quick itself.
    fn rehearsal(&self) -> Option<Arc<dyn GroundingScorer>> {
        None
    }
    /// What it did so far, for all runs that share it, by name.
    fn counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
    /// Lets `hear` be told how many of how many pairs are scored, while they are.
    fn watch(&self, hear: PairsHeard) {
        drop(hear);
    }
}

/// Hears (pairs scored, pairs to score) of the batch in work.
pub type PairsHeard = Box<dyn Fn(usize, usize) + Send + Sync>;

/// What is known of one (premise, hypothesis) pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairScore {
    /// P(entail), in [0, 1].
    pub entailment: f32,
    /// P(contradict), in [0, 1], where the scorer knows one.
    pub contradiction: Option<f32>,
}

impl From<f32> for PairScore {
    fn from(entailment: f32) -> Self {
        Self { entailment, contradiction: None }
    }
}

/// Identity of a pair: the first 16 bytes of blake3 over both texts.
pub fn pair_key((premise, claim): (&str, &str)) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(premise.len() as u64).to_le_bytes());
    hasher.update(premise.as_bytes());
    hasher.update(claim.as_bytes());
    let mut key = [0; 16];
    hasher.finalize_xof().fill(&mut key);
    key
}

/// Scores of pairs that were scored before, 28 bytes a pair. One memo belongs to one entailment function.
#[derive(Debug, Default)]
pub struct PairMemo {
    /// By [`pair_key`]. Looked up only, never iterated.
    known: Mutex<HashMap<[u8; 16], PairScore>>,
}

impl PairMemo {
    /// Distinct pairs scored.
    pub fn scored(&self) -> u64 {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}

/// g_i = max_j P(entail | p_j, cl_i), equation 15, with the place of the evidence that reaches it first; `None` without any.
pub fn claim_support(entailment: &[f32]) -> Option<(usize, f32)> {
    entailment.iter().copied().enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// GS = (1/M) Σ 1\[g_i >= τ_nli\], equation 16, over the M claims' supports. No claims: 0.
pub fn grounding_score(supports: &[f32], tau_nli: f64) -> f64 {
    if supports.is_empty() {
        return 0.0;
    }
    let supported = supports.iter().filter(|&&g| f64::from(g) >= tau_nli).count();
    supported as f64 / supports.len() as f64
}

/// Scores a batch with one call of `entail`, which gets the batch's distinct (premise, hypothesis) pairs, by first
/// appearance, and returns the probability in [0, 1] that each premise entails its hypothesis.
///
/// A claim without evidence has support 0.
///
/// # Errors
/// When `entail` fails, returns another number of values, or one that is no probability; when a candidate's evidence does
/// not match its claims.
pub fn score_pairwise(
    batch: &[Candidate],
    tau_nli: f64,
    entail: impl FnOnce(&[(&str, &str)]) -> Result<Vec<f32>>,
) -> Result<Vec<Grounded>> {
    score_pairwise_sharing(batch, tau_nli, &PairMemo::default(), entail)
}

/// As [`score_pairwise`]; `entail` gets only the pairs that `memo` does not hold yet, and may say more of a pair than its entailment.
///
/// # Errors
/// As [`score_pairwise`].
pub fn score_pairwise_sharing<S: Into<PairScore>>(
    batch: &[Candidate],
    tau_nli: f64,
    memo: &PairMemo,
    entail: impl FnOnce(&[(&str, &str)]) -> Result<Vec<S>>,
) -> Result<Vec<Grounded>> {
    let mut known = memo.known.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    let mut place: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for candidate in batch {
        if candidate.claims.len() != candidate.evidence.len() {
            return Err(Error::work(format!(
                "question {} has {} claims and evidence for {}",
                candidate.query_id,
                candidate.claims.len(),
                candidate.evidence.len()
            )));
        }
        for (claim, evidence) in candidate.claims.iter().zip(&candidate.evidence) {
            for premise in evidence {
                let pair = (premise.premise.as_str(), claim.as_str());
                place.entry(pair).or_insert_with(|| {
                    pairs.push(pair);
                    pairs.len() - 1
                });
            }
        }
    }
    let keys: Vec<[u8; 16]> = pairs.iter().map(|&pair| pair_key(pair)).collect();
    let missing: Vec<usize> = (0..pairs.len()).filter(|&i| !known.contains_key(&keys[i])).collect();
    let new: Vec<(&str, &str)> = missing.iter().map(|&i| pairs[i]).collect();
    let scored: Vec<PairScore> =
        if new.is_empty() { Vec::new() } else { entail(&new)?.into_iter().map(Into::into).collect() };
    check(&new, &scored)?;
    for (&i, &score) in missing.iter().zip(&scored) {
        known.insert(keys[i], score);
    }
    let scores: Vec<PairScore> =
        keys.iter().map(|key| known.get(key).copied().unwrap_or(PairScore::from(0.0))).collect();

    let support_of = |claim: &String, evidence: &Vec<Evidence>| {
        let of_claim: Vec<PairScore> =
            evidence.iter().map(|e| scores[place[&(e.premise.as_str(), claim.as_str())]]).collect();
        let entailment: Vec<f32> = of_claim.iter().map(|score| score.entailment).collect();
        let best = claim_support(&entailment);
        ClaimSupport {
            text: claim.clone(),
            support: best.map_or(0.0, |(_, g)| g),
            contradiction: best.and_then(|(j, _)| of_claim[j].contradiction),
            evidence: best.map(|(j, _)| evidence[j].clone()),
        }
    };
    Ok(batch
        .iter()
        .map(|candidate| {
            let claims: Vec<ClaimSupport> = candidate
                .claims
                .iter()
                .zip(&candidate.evidence)
                .map(|(claim, evidence)| support_of(claim, evidence))
                .collect();
            let supports: Vec<f32> = claims.iter().map(|claim| claim.support).collect();
            Grounded { gs: grounding_score(&supports, tau_nli), claims }
        })
        .collect())
}

/// Probabilities for each pair, or the error that says what came instead.
fn check(pairs: &[(&str, &str)], scores: &[PairScore]) -> Result<()> {
    if pairs.len() != scores.len() {
        return Err(Error::work(format!("the grounding model gave {} scores for {} pairs", scores.len(), pairs.len())));
    }
    let is_probability = |p: f32| (0.0..=1.0).contains(&p);
    let wrong = |score: &PairScore| {
        [Some(score.entailment), score.contradiction].into_iter().flatten().find(|&p| !is_probability(p))
    };
    match pairs.iter().zip(scores).find_map(|((_, claim), score)| Some((claim, wrong(score)?))) {
        None => Ok(()),
        Some((claim, p)) => Err(Error::work(format!("the grounding model gave {p} for the claim \"{claim}\""))
            .with_hint("a support is a probability between 0 and 1; check the model's precision and files")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
pub(super) mod tests {
    use super::*;
    use crate::ids::PassageId;

    pub fn candidate(query_id: &str, claims: &[(&str, &[&str])]) -> Candidate {
        Candidate {
            query_id: query_id.into(),
            stream_index: StreamIndex(1),
            claims: claims.iter().map(|(claim, _)| (*claim).to_owned()).collect(),
            evidence: claims
                .iter()
                .map(|(_, evidence)| {
                    let evidence = evidence.iter().zip(0..);
                    let evidence_of = |(text, i): (&&str, u32)| Evidence {
                        passage: PassageId(i),
                        text: (*text).to_owned(),
                        premise: (*text).to_owned(),
                    };
                    evidence.map(evidence_of).collect()
                })
                .collect(),
        }
    }

    #[test]
    fn support_is_the_first_maximum() {
        assert_eq!(claim_support(&[0.2, 0.9, 0.9, 0.1]), Some((1, 0.9)));
        assert_eq!(claim_support(&[]), None);
    }

    #[test]
    fn gs_is_the_share_of_supported_claims() {
        assert_eq!(grounding_score(&[0.5, 0.49, 0.9, 0.0], 0.5), 0.5);
        assert_eq!(grounding_score(&[], 0.5), 0.0);
        // Table 7 has 0.368: 7 of 19.
        let supports: Vec<f32> = (0..19_u8).map(|i| if i < 7 { 1.0 } else { 0.0 }).collect();
        assert!((grounding_score(&supports, 0.5) - 0.368).abs() < 5e-4);
    }

    #[test]
    fn a_batch_is_one_call_of_distinct_pairs() {
        let batch = [
            candidate("q1", &[("a", &["x", "y"]), ("b", &["x"])]),
            candidate("q2", &[]),
            candidate("q3", &[("a", &["y"]), ("c", &[])]),
        ];
        let mut calls = 0;
        let grounded = score_pairwise(&batch, 0.5, |pairs| {
            calls += 1;
            assert_eq!(pairs, [("x", "a"), ("y", "a"), ("x", "b")]);
            Ok(vec![0.3, 0.8, 0.1])
        })
        .unwrap();
        assert_eq!(calls, 1);
        let gs: Vec<f64> = grounded.iter().map(|g| g.gs).collect();
        assert_eq!(gs, [0.5, 0.0, 0.5]);
        let first = &grounded[0].claims[0];
        assert_eq!((first.support, first.evidence.as_ref().unwrap().text.as_str()), (0.8, "y"));
        assert_eq!(
            grounded[2].claims[1],
            ClaimSupport { text: "c".into(), support: 0.0, contradiction: None, evidence: None }
        );
    }

    /// The contradiction is that of the pair that supports most, not the largest one; the premise is what is scored.
    #[test]
    fn contradiction_goes_with_the_pair_that_supports_most() {
        let mut one = candidate("q1", &[("a", &["x", "y"])]);
        one.evidence[0][1].premise = "x y z".into();
        let grounded = score_pairwise_sharing(&[one], 0.5, &PairMemo::default(), |pairs| {
            assert_eq!(pairs, [("x", "a"), ("x y z", "a")]);
            let score = |entailment, contradiction| PairScore { entailment, contradiction: Some(contradiction) };
            Ok(vec![score(0.1, 0.8), score(0.7, 0.2)])
        })
        .unwrap();
        let claim = &grounded[0].claims[0];
        assert_eq!((claim.support, claim.contradiction), (0.7, Some(0.2)));
        assert_eq!(claim.evidence.as_ref().unwrap().text, "y");
    }

    #[test]
    fn a_pair_is_scored_once_over_batches() {
        let memo = PairMemo::default();
        let first = [candidate("q1", &[("a", &["x", "y"])]), candidate("q2", &[("a", &["x"])])];
        let second = [candidate("q3", &[("a", &["y", "z"])])];
        let score = |batch: &[Candidate], expected: &[(&str, &str)]| {
            score_pairwise_sharing(batch, 0.5, &memo, |pairs| {
                assert_eq!(pairs, expected);
                Ok(pairs.iter().map(|(p, _)| if *p == "y" { 0.75 } else { 0.25 }).collect())
            })
        };
        score(&first, &[("x", "a"), ("y", "a")]).unwrap();
        let found = score(&second, &[("z", "a")]).unwrap();
        assert_eq!(found[0].claims[0].support, 0.75, "the known pair's support stands");
        score(&second, &[]).unwrap();
        assert_eq!(memo.scored(), 3);
    }

    #[test]
    fn alone_equals_in_a_batch() {
        let batch = [candidate("q1", &[("a", &["xx", "y"])]), candidate("q2", &[("bb", &["xx"]), ("a", &["y"])])];
        let entail = |pairs: &[(&str, &str)]| {
            Ok(pairs.iter().map(|(p, h)| if p.len() == h.len() { 0.75 } else { 0.25 }).collect())
        };
        let together = score_pairwise(&batch, 0.5, entail).unwrap();
        for (one, expected) in batch.iter().zip(&together) {
            assert_eq!(&score_pairwise(std::slice::from_ref(one), 0.5, entail).unwrap()[0], expected);
        }
    }

    #[test]
    fn what_is_no_probability_stops() {
        let batch = [candidate("q1", &[("a", &["x"])])];
        for scores in [vec![], vec![f32::NAN], vec![1.5], vec![0.1, 0.2]] {
            assert!(score_pairwise(&batch, 0.5, |_| Ok(scores.clone())).is_err(), "{scores:?}");
        }
        let nan = |_: &[(&str, &str)]| Ok(vec![PairScore { entailment: 0.5, contradiction: Some(f32::NAN) }]);
        assert!(score_pairwise_sharing(&batch, 0.5, &PairMemo::default(), nan).is_err());
        let mut odd = batch[0].clone();
        odd.evidence.clear();
        assert!(score_pairwise(&[odd], 0.5, |_| Ok(vec![])).unwrap_err().report().contains("q1"));
        assert!(score_pairwise(&[], 0.5, |_| panic!("nothing to score")).unwrap().is_empty());
    }
}
