//! Arrival orders of a stream (spec section 5): an order's name and the questions in, a permutation of the stream out.
//!
//! | name | order |
//! |---|---|
//! | `file` | as published |
//! | `reverse` | from the end |
//! | `shuffle:<seed>` | seeded shuffle, the same for ever on every machine |
//! | `clustered` | members of a group one after the other |
//! | `spread` | members of a group as far apart as can be |
//! | `drift` | topics in sequence: group after group, each followed by the one most like it |
//!
//! Groups are the connected components of shared single-hop ids (appendix E) where any question has hop ids, else groups of
//! like questions by the cosine of their vectors.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::Question;
use super::clusters::components;
use super::settings::nearest;
use crate::error::{Error, Result};
use crate::ids::QuestionId;

/// Cosine from which two questions count as alike (ours; groups 97.5 % of the 2wiki stream's questions and 47.5 % of
/// HotpotQA's under all-mpnet-base-v2).
pub const ALIKE: f32 = 0.5;

const NAMES: [&str; 6] = ["file", "reverse", "shuffle:<seed>", "clustered", "spread", "drift"];

/// The order called `spec` of `questions`. `similarity(a, b)` is the cosine of two questions' vectors, where there are any;
/// `drift` calls it, and `clustered` and `spread` do on questions without hop ids.
pub fn order(
    spec: &str,
    questions: &[Question],
    similarity: Option<&dyn Fn(usize, usize) -> f32>,
) -> Result<Vec<QuestionId>> {
    let n = questions.len();
    let places = match spec {
        "file" => (0..n).collect(),
        "reverse" => (0..n).rev().collect(),
        "clustered" => groups(spec, questions, similarity)?.concat(),
        "spread" => spread(groups(spec, questions, similarity)?, n),
        "drift" => {
            let similarity = similarity.ok_or_else(|| without_vectors(spec, "question vectors; here are none"))?;
            drift(groups(spec, questions, Some(similarity))?, similarity).concat()
        }
        _ => match spec.strip_prefix("shuffle:") {
            Some(seed) => shuffle(n, parse_seed(seed)?),
            None => return Err(unknown(spec)),
        },
    };
    Ok(places.into_iter().map(QuestionId::from).collect())
}

fn parse_seed(seed: &str) -> Result<u64> {
    seed.parse().map_err(|_| {
        Error::request(format!("order \"shuffle:{seed}\" has no seed that is a whole number from 0 to {}", u64::MAX))
            .with_hint("for example order = \"shuffle:0\"")
    })
}

fn unknown(spec: &str) -> Error {
    let hint = match nearest(spec, NAMES) {
        Some(near) => format!("did you mean \"{near}\"? The orders are {}", NAMES.join(", ")),
        None => format!("the orders are {}", NAMES.join(", ")),
    };
    Error::request(format!("unknown order \"{spec}\"")).with_hint(hint)
}

/// Fisher–Yates over ChaCha8, fixed for ever:
///
/// key = the seed's 8 bytes, little-endian, then 24 zero bytes; counter and nonce 0. For i = n-1 down to 1: u = the next two
/// 32-bit words, low word first; j = ⌊u · (i+1) / 2^64⌋; exchange places i and j.
fn shuffle(n: usize, seed: u64) -> Vec<usize> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    let mut places: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        let j = (u128::from(rng.next_u64()) * (i as u128 + 1)) >> 64;
        places.swap(i, j as usize);
    }
    places
}

/// Groups in the order of their first question, members ascending; single questions are groups of one.
fn groups(
    spec: &str,
    questions: &[Question],
    similarity: Option<&dyn Fn(usize, usize) -> f32>,
) -> Result<Vec<Vec<usize>>> {
    if questions.is_empty() || questions.iter().any(|q| !q.hops.is_empty()) {
        let hops: Vec<Vec<String>> = questions.iter().map(|q| q.hops.clone()).collect();
        return Ok(components(&hops));
    }
    let similarity = similarity
        .ok_or_else(|| without_vectors(spec, "questions with single-hop ids or question vectors; here are neither"))?;
    Ok(like_groups(questions.len(), similarity))
}

fn without_vectors(spec: &str, what: &str) -> Error {
    Error::request(format!("order \"{spec}\" needs {what}"))
        .with_hint("add embeddings/questions.parquet to the dataset folder, or choose file, reverse or shuffle:<seed>")
}

/// Leader clustering: in file order, each question joins the group whose first question is most like it (ties: the earlier
/// group) if their cosine is at least [`ALIKE`], else it begins a group.
pub(super) fn like_groups(n: usize, similarity: &dyn Fn(usize, usize) -> f32) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for question in 0..n {
        let mut best = (ALIKE, None);
        for (g, group) in groups.iter().enumerate() {
            let s = similarity(question, group[0]);
            if s > best.0 || (s == ALIKE && best.1.is_none()) {
                best = (s, Some(g));
            }
        }
        match best.1 {
            Some(g) => groups[g].push(question),
            None => groups.push(vec![question]),
        }
    }
    groups
}

/// Largest group first (ties: earlier first question), each group takes places evenly from those still free: member k of s
/// takes free place ⌊k·m/s⌋ of m. The largest group is so as far apart as it can be, single questions fill what is left.
fn spread(mut groups: Vec<Vec<usize>>, n: usize) -> Vec<usize> {
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    let mut places = vec![0; n];
    let mut free: Vec<usize> = (0..n).collect();
    for group in groups {
        let (m, s) = (free.len(), group.len());
        let mut taken = (0..s).map(|k| k * m / s).peekable();
        let mut members = group.into_iter();
        let mut left = Vec::with_capacity(m - s);
        for (i, place) in free.into_iter().enumerate() {
            match taken.next_if_eq(&i).and_then(|_| members.next()) {
                Some(member) => places[place] = member,
                None => left.push(place),
            }
        }
        free = left;
    }
    places
}

/// A walk through the groups that never jumps further than it must: from the group of the file's first question always on to
/// the group, among those left, whose first question is most like the present one's (ties: the earlier group).
fn drift(mut left: Vec<Vec<usize>>, similarity: &dyn Fn(usize, usize) -> f32) -> Vec<Vec<usize>> {
    let mut walk: Vec<Vec<usize>> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let mut next = 0;
        if let Some(here) = walk.last() {
            let to = |group: &[usize]| similarity(here[0], group[0]);
            for g in 1..left.len() {
                if to(&left[g]) > to(&left[next]) {
                    next = g;
                }
            }
        }
        walk.push(left.remove(next));
    }
    walk
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn questions(hops: &[&[&str]]) -> Vec<Question> {
        hops.iter()
            .enumerate()
            .map(|(i, hops)| Question {
                id: format!("q{i}"),
                text: String::new(),
                answers: Vec::new(),
                aliases: Vec::new(),
                gold_passages: None,
                category: None,
                hops: hops.iter().map(|h| (*h).to_owned()).collect(),
            })
            .collect()
    }

    fn places(spec: &str, questions: &[Question], similarity: Option<&dyn Fn(usize, usize) -> f32>) -> Vec<u32> {
        order(spec, questions, similarity).unwrap().into_iter().map(|q| q.0).collect()
    }

    #[test]
    fn file_and_reverse() {
        let q = questions(&[&[], &[], &[]]);
        assert_eq!(places("file", &q, None), [0, 1, 2]);
        assert_eq!(places("reverse", &q, None), [2, 1, 0]);
        assert_eq!(places("shuffle:3", &[], None), Vec::<u32>::new());
    }

    /// Expected orders are from a ChaCha8 and shuffle written in Python from their descriptions, whose 20-round form gives
    /// the published first block of the zero key (76 b8 e0 ad …).
    #[test]
    fn shuffle_is_the_documented_algorithm() {
        assert_eq!(shuffle(12, 0), [5, 3, 7, 4, 8, 11, 0, 9, 1, 2, 6, 10]);
        assert_eq!(shuffle(12, 7), [4, 1, 7, 10, 11, 6, 8, 3, 2, 0, 5, 9]);
        let long = shuffle(1000, 1);
        assert_eq!(long[..8], [352, 922, 262, 129, 703, 2, 389, 634]);
        assert_eq!(long[997..], [796, 294, 381]);
    }

    #[test]
    fn clustered_and_spread_by_hops() {
        // Groups: {0, 2, 5, 6} by a and b, {1, 4} by c, {3}, {7}.
        let q = questions(&[&["a"], &["c"], &["a", "b"], &["x"], &["c"], &["b"], &["b"], &[]]);
        assert_eq!(places("clustered", &q, None), [0, 2, 5, 6, 1, 4, 3, 7]);
        // The group of four takes places 0, 2, 4, 6; the pair the first and third of the free 1, 3, 5, 7; then 3 and 7.
        assert_eq!(places("spread", &q, None), [0, 1, 2, 3, 5, 4, 6, 7]);
    }

    #[test]
    fn without_hops_the_vectors_decide() {
        let q = questions(&[&[], &[], &[], &[]]);
        // 2 is alike 0, 3 is more alike 1 than 0, 1 is unlike 0.
        let cosines = [[1.0, 0.4, 0.5, 0.6], [0.4, 1.0, 0.4, 0.7], [0.5, 0.4, 1.0, 0.9], [0.6, 0.7, 0.9, 1.0]];
        let similarity = |a: usize, b: usize| cosines[a][b];
        assert_eq!(places("clustered", &q, Some(&similarity)), [0, 2, 1, 3]);
        assert_eq!(places("spread", &q, Some(&similarity)), [0, 1, 2, 3]);
        let error = order("clustered", &q, None).unwrap_err();
        assert!(error.to_string().starts_with("order \"clustered\" needs questions with single-hop ids"), "{error}");
    }

    /// By hand: groups {0, 4} by a, {1}, {2, 5} by b, {3}, led by 0, 1, 2, 3. From 0 the nearest is 2 (.8), from 2 it is 3 (.7), then 1.
    #[test]
    fn drift_goes_to_the_most_similar_group() {
        let q = questions(&[&["a"], &["x"], &["b"], &["y"], &["a"], &["b"]]);
        let cosines = [[1.0, 0.3, 0.8, 0.2], [0.3, 1.0, 0.6, 0.5], [0.8, 0.6, 1.0, 0.7], [0.2, 0.5, 0.7, 1.0]];
        let similarity = |a: usize, b: usize| cosines[a][b];
        assert_eq!(places("drift", &q, Some(&similarity)), [0, 4, 2, 5, 3, 1]);
        // All alike: ties go to the earlier group.
        assert_eq!(places("drift", &q, Some(&|_, _| 0.5)), [0, 4, 1, 2, 5, 3]);
        assert_eq!(
            order("drift", &q, None).unwrap_err().to_string(),
            "order \"drift\" needs question vectors; here are none"
        );
    }

    #[test]
    fn an_unknown_order_names_the_legal_ones() {
        let error = order("clusterd", &[], None).unwrap_err();
        assert_eq!(error.to_string(), "unknown order \"clusterd\"");
        assert_eq!(
            error.hint(),
            Some("did you mean \"clustered\"? The orders are file, reverse, shuffle:<seed>, clustered, spread, drift")
        );
        assert!(order("shuffle:x", &[], None).unwrap_err().to_string().contains("shuffle:x"));
    }

    proptest! {
        #[test]
        fn every_order_is_a_permutation(ids in proptest::collection::vec(0_u8..9, 0..40), seed in any::<u64>()) {
            let ids: Vec<String> = ids.iter().map(u8::to_string).collect();
            let hops: Vec<Vec<&str>> = ids.iter().map(|id| vec![id.as_str()]).collect();
            let hops: Vec<&[&str]> = hops.iter().map(Vec::as_slice).collect();
            let q = questions(&hops);
            for spec in ["file", "reverse", "clustered", "spread", "drift", &format!("shuffle:{seed}")] {
                let mut places = places(spec, &q, Some(&|a, b| (a * 7 + b * 7) as f32 % 1.3));
                places.sort_unstable();
                prop_assert!(places.iter().enumerate().all(|(i, &p)| i == p as usize), "{}", spec);
            }
        }

        /// Neighbouring members of the largest group are at least ⌊n/s⌋ places apart, which no order can better.
        #[test]
        fn spread_keeps_the_largest_group_apart(ids in proptest::collection::vec(0_u8..5, 1..60)) {
            let n = ids.len();
            let groups = components(&ids.iter().map(|id| vec![id.to_string()]).collect::<Vec<_>>());
            let largest = groups.iter().max_by_key(|g| (g.len(), std::cmp::Reverse(g[0]))).unwrap().clone();
            let places = spread(groups, n);
            let at: Vec<usize> = (0..n).filter(|&p| largest.contains(&places[p])).collect();
            prop_assert!(at.windows(2).all(|w| w[1] - w[0] >= n / largest.len()));
        }
    }
}
