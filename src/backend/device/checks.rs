//! What the kernels rely on, checked once when an index is loaded: positions in range, lists that ascend, no loops.
//!
//! A kernel cannot report a bad position; it would read what is not its own.

use crate::backend::RetrievalData;
use crate::math::graph::Csr;
use crate::{Error, Result};

/// Checks the lists of an index.
///
/// # Errors
/// Names the list and the row that is not as it should be.
pub(crate) fn check(data: &RetrievalData) -> Result<()> {
    let graph = &data.graph;
    let (entities, sentences, passages) = (graph.n_entities(), graph.n_sentences(), graph.n_passages());
    ascending("entity → sentences", &graph.entity_sentences, sentences)?;
    ascending("entity → occurrences", &data.occurrences.shape, passages)?;
    ascending("adjacency", &graph.adjacency.shape, graph.n_nodes())?;
    let mut last = vec![usize::MAX; entities];
    for s in 0..sentences {
        for &e in graph.sentence_entities.row(s) {
            match last.get_mut(e as usize) {
                Some(seen) if *seen != s => *seen = s,
                Some(_) => return Err(bad("sentence → entities", s, "names an entity twice")),
                None => return Err(bad("sentence → entities", s, "names an entity that does not exist")),
            }
        }
    }
    match (0..graph.n_nodes()).find(|&i| graph.adjacency.row(i).0.binary_search(&(i as u32)).is_ok()) {
        Some(i) => Err(bad("adjacency", i, "has an edge to itself")),
        None => Ok(()),
    }
}

fn ascending(name: &str, lists: &Csr, columns: usize) -> Result<()> {
    for i in 0..lists.rows() {
        let row = lists.row(i);
        if !row.is_sorted_by(|a, b| a < b) {
            return Err(bad(name, i, "does not ascend"));
        }
        if row.last().is_some_and(|&last| last as usize >= columns) {
            return Err(bad(name, i, "points past the end"));
        }
    }
    Ok(())
}

fn bad(name: &str, row: usize, what: &str) -> Error {
    Error::work(format!("the index's list {name}: row {row} {what}"))
        .with_hint("build the index again with `livingrag index`")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::math::graph::{Graph, WeightedCsr};

    #[test]
    fn every_list_is_looked_at() {
        let good = RetrievalData {
            graph: Graph {
                entity_sentences: Csr::from_rows(&[vec![0, 1], vec![1]]),
                sentence_entities: Csr::from_rows(&[vec![0], vec![1, 0]]),
                passage_entities: Csr::from_rows(&[vec![0, 1]]),
                adjacency: Graph::adjacency_from_edges(3, &[(0, 2, 1.0)]),
            },
            occurrences: WeightedCsr::from_rows(&[vec![(0, 1.0)], vec![]]),
            ..RetrievalData::default()
        };
        check(&good).unwrap();
        let complaint = |change: fn(&mut RetrievalData)| {
            let mut data = good.clone();
            change(&mut data);
            check(&data).unwrap_err().to_string()
        };
        assert!(complaint(|d| d.graph.entity_sentences.indices[0] = 1).contains("row 0 does not ascend"));
        assert!(complaint(|d| d.graph.entity_sentences.indices[2] = 2).contains("row 1 points past the end"));
        assert!(complaint(|d| d.graph.sentence_entities.indices[1] = 0).contains("row 1 names an entity twice"));
        assert!(complaint(|d| d.graph.sentence_entities.indices[0] = 7).contains("does not exist"));
        assert!(complaint(|d| d.occurrences.shape.indices[0] = 1).contains("occurrences: row 0"));
        assert!(complaint(|d| d.graph.adjacency.shape.indices[0] = 0).contains("row 0 has an edge to itself"));
    }
}
