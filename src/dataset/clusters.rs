//! Experience clusters (appendix E): single-hop ids of each question in, groups of questions that share one out.

use std::collections::BTreeMap;

use serde::Serialize;

/// Connected components of at least two questions, where two questions are linked when they share a single-hop id.
///
/// `hops[q]` are the ids of question q; a question without any is in no cluster. Members ascend, clusters are in the order
/// of their first member.
pub fn experience_clusters(hops: &[Vec<String>]) -> Vec<Vec<usize>> {
    let mut groups = components(hops);
    groups.retain(|group| group.len() >= 2);
    groups
}

/// All connected components, single questions included, in the order of their first member.
pub(crate) fn components(hops: &[Vec<String>]) -> Vec<Vec<usize>> {
    // The root of a component is its smallest member, so components come out in the order of their first member.
    let mut parent: Vec<usize> = (0..hops.len()).collect();
    let mut first_with: BTreeMap<&str, usize> = BTreeMap::new();
    for (question, ids) in hops.iter().enumerate() {
        for id in ids {
            let other = *first_with.entry(id).or_insert(question);
            let (a, b) = (root(&mut parent, question), root(&mut parent, other));
            parent[a.max(b)] = a.min(b);
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for question in 0..hops.len() {
        groups.entry(root(&mut parent, question)).or_default().push(question);
    }
    groups.into_values().collect()
}

/// The component's smallest member; halves the path on the way.
fn root(parent: &mut [usize], mut x: usize) -> usize {
    while parent[x] != x {
        parent[x] = parent[parent[x]];
        x = parent[x];
    }
    x
}

/// The columns of table 8.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClusterStats {
    /// Number of clusters.
    pub clusters: usize,
    /// Share of all questions that are in a cluster, 0 to 1.
    pub coverage: f64,
    /// Mean questions a cluster; 0 without clusters.
    pub mean_size: f64,
    /// Questions of the largest cluster.
    pub max_size: usize,
}

impl ClusterStats {
    /// Statistics of `clusters` among `questions` questions.
    pub fn of(clusters: &[Vec<usize>], questions: usize) -> Self {
        let covered: usize = clusters.iter().map(Vec::len).sum();
        let share = |a: usize, b: usize| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        Self {
            clusters: clusters.len(),
            coverage: share(covered, questions),
            mean_size: share(covered, clusters.len()),
            max_size: clusters.iter().map(Vec::len).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hops(ids: &[&[&str]]) -> Vec<Vec<String>> {
        ids.iter().map(|q| q.iter().map(|id| (*id).to_owned()).collect()).collect()
    }

    #[test]
    fn questions_are_linked_through_shared_hops() {
        // 0-3 by "a", 3-4 by "c", 1 alone, 2 and 5 by "d", 6 without hops.
        let hops = hops(&[&["a", "b"], &["x"], &["d"], &["a", "c"], &["c"], &["d", "e"], &[]]);
        let clusters = experience_clusters(&hops);
        assert_eq!(clusters, [vec![0, 3, 4], vec![2, 5]]);
        assert_eq!(
            ClusterStats::of(&clusters, 7),
            ClusterStats { clusters: 2, coverage: 5.0 / 7.0, mean_size: 2.5, max_size: 3 }
        );
        assert_eq!(experience_clusters(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(ClusterStats::of(&[], 0), ClusterStats { clusters: 0, coverage: 0.0, mean_size: 0.0, max_size: 0 });
    }

    proptest! {
        /// Against the definition: two questions are in one component iff a walk over shared ids joins them.
        #[test]
        fn components_are_reachability(ids in proptest::collection::vec(proptest::collection::vec(0_u8..12, 0..3), 0..14)) {
            let hops: Vec<Vec<String>> = ids.iter().map(|q| q.iter().map(u8::to_string).collect()).collect();
            let n = ids.len();
            let mut reach = vec![vec![false; n]; n];
            for a in 0..n {
                for b in 0..n {
                    reach[a][b] = a == b || ids[a].iter().any(|id| ids[b].contains(id));
                }
            }
            for k in 0..n {
                for a in 0..n {
                    for b in 0..n {
                        reach[a][b] |= reach[a][k] && reach[k][b];
                    }
                }
            }
            let groups = components(&hops);
            let mut group_of = vec![usize::MAX; n];
            for (g, members) in groups.iter().enumerate() {
                prop_assert!(members.is_sorted());
                for &q in members {
                    group_of[q] = g;
                }
            }
            for a in 0..n {
                for b in 0..n {
                    prop_assert_eq!(reach[a][b], group_of[a] == group_of[b]);
                }
            }
            prop_assert!(groups.windows(2).all(|w| w[0][0] < w[1][0]));
        }
    }
}
