//! Reuse opportunities of a stream (section 3.1): what an earlier query could have lent to a later one.
//!
//! In: per query its seed keys, retrieved passages and context entities under `linear`, and its masked question. Out: three flags a
//! query, `None` for the first, which has no earlier one. These describe the stream, not a run: every run of an order has the same.

use rayon::prelude::*;

/// Jaccard threshold of graph-neighbourhood reuse (section 3.1).
pub const GRAPH_JACCARD: f64 = 0.05;
/// TF-IDF cosine threshold of template reuse (section 3.1).
pub const TEMPLATE_COSINE: f64 = 0.35;

/// What is compared of one query. Lists ascend without repeats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traits {
    /// Seed entities.
    pub seeds: Vec<u32>,
    /// Passages given to the reader under `linear`.
    pub passages: Vec<u32>,
    /// Filtered context entities: entities of those passages that propagation left active (the paper does not say how it filters;
    /// this is ours).
    pub context: Vec<u32>,
}

/// Whether some earlier query shares a seed, a graph neighbourhood, or only the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opportunity {
    /// A seed entity is shared.
    pub entity: bool,
    /// Jaccard of passages or of context entities is at least [`GRAPH_JACCARD`].
    pub graph: bool,
    /// No seed is shared and the masked questions' TF-IDF cosine is at least [`TEMPLATE_COSINE`].
    pub template: bool,
}

/// |a ∩ b| of ascending lists.
fn overlap(a: &[u32], b: &[u32]) -> usize {
    let (mut i, mut j, mut n) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        match a[i].cmp(&b[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                n += 1;
                i += 1;
                j += 1;
            }
        }
    }
    n
}

/// |a ∩ b| / |a ∪ b|, 0 for two empty sets.
pub fn jaccard(a: &[u32], b: &[u32]) -> f64 {
    let shared = overlap(a, b);
    let union = a.len() + b.len() - shared;
    if union == 0 { 0.0 } else { shared as f64 / union as f64 }
}

/// Entity reuse of section 3.1.
pub fn entity_reuse(a: &Traits, b: &Traits) -> bool {
    overlap(&a.seeds, &b.seeds) > 0
}

/// Graph-neighbourhood reuse of section 3.1.
pub fn graph_neighborhood_reuse(a: &Traits, b: &Traits) -> bool {
    jaccard(&a.passages, &b.passages) >= GRAPH_JACCARD || jaccard(&a.context, &b.context) >= GRAPH_JACCARD
}

/// Template reuse of section 3.1, given the TF-IDF cosine of the masked questions.
pub fn template_reuse(a: &Traits, b: &Traits, tfidf_cosine: f64) -> bool {
    tfidf_cosine >= TEMPLATE_COSINE && !entity_reuse(a, b)
}

/// The flags of every query of a stream; `cosine(a, b)` is the TF-IDF cosine of the masked questions at stream places a and b, from 0.
pub fn opportunities(stream: &[&Traits], cosine: impl Fn(usize, usize) -> f64 + Sync) -> Vec<Option<Opportunity>> {
    (0..stream.len())
        .into_par_iter()
        .map(|t| {
            let mut found = Opportunity::default();
            for s in (0..t).rev() {
                let (now, earlier) = (stream[t], stream[s]);
                found.entity = found.entity || entity_reuse(now, earlier);
                found.graph = found.graph || graph_neighborhood_reuse(now, earlier);
                found.template = found.template || (!entity_reuse(now, earlier) && cosine(t, s) >= TEMPLATE_COSINE);
                if found.entity && found.graph && found.template {
                    break;
                }
            }
            (t > 0).then_some(found)
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn traits(seeds: &[u32], passages: &[u32]) -> Traits {
        Traits { seeds: seeds.into(), passages: passages.into(), context: Vec::new() }
    }

    #[test]
    fn jaccard_by_hand() {
        assert!((jaccard(&[1, 2, 3, 4, 5], &[5, 6, 7, 8, 9]) - 1.0 / 9.0).abs() < 1e-15);
        assert_eq!((jaccard(&[], &[]), jaccard(&[1], &[])), (0.0, 0.0));
    }

    /// The third query shares a seed with the first and only the template with the second.
    #[test]
    fn each_signal_has_its_own_rule() {
        let stream = [traits(&[1], &[1]), traits(&[2], &[2]), traits(&[1], &[3])];
        let views: Vec<&Traits> = stream.iter().collect();
        let found = opportunities(&views, |a, b| if (a, b) == (2, 1) { 0.35 } else { 0.0 });
        assert_eq!(found[0], None);
        assert_eq!(found[1], Some(Opportunity::default()));
        assert_eq!(found[2], Some(Opportunity { entity: true, graph: false, template: true }));
        // A shared seed rules the template out for that pair.
        let same = opportunities(&views[..1].iter().copied().chain([views[2]]).collect::<Vec<_>>(), |_, _| 1.0);
        assert_eq!(same[1].unwrap(), Opportunity { entity: true, graph: false, template: false });
    }
}
