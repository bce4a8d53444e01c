//! From annotated passages to the graph of spec 2.1.
//!
//! In: prefixed passage texts, titles and their annotations. Out: entity and sentence texts in order of first appearance, and the
//! matrices that propagation and PageRank walk on.

use std::collections::HashMap;

use crate::config::{AdjacentPassages, EntityText};
use crate::dataset::annotations::{CodePoints, PassageAnnotation, Span};
use crate::math::graph::{Csr, Graph};

/// The graph with the texts of its nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TextGraph {
    /// Entity surface strings by entity id.
    pub entities: Vec<String>,
    /// Sentence texts by sentence id.
    pub sentences: Vec<String>,
    /// The matrices.
    pub graph: Graph,
}

/// Numbers texts by first appearance. Looked up only, never iterated.
#[derive(Default)]
struct Numbering<'a> {
    ids: HashMap<&'a str, u32>,
    texts: Vec<&'a str>,
}

impl<'a> Numbering<'a> {
    fn id(&mut self, text: &'a str) -> u32 {
        *self.ids.entry(text).or_insert_with(|| {
            self.texts.push(text);
            (self.texts.len() - 1) as u32
        })
    }
}

/// A mention's entity text under the option; `None` for dropped labels and blanks.
pub fn entity_text(mention: &Span, option: EntityText) -> Option<&str> {
    if !mention.is_entity() || mention.text.trim().is_empty() {
        return None;
    }
    Some(match option {
        EntityText::Exact => &mention.text,
        EntityText::Trim => mention.text.trim(),
    })
}

/// Builds the graph; `annotations` is empty for a graph without entities, else one a passage.
pub fn build(
    texts: &[String],
    titles: &[Option<&str>],
    annotations: &[PassageAnnotation],
    adjacent: AdjacentPassages,
    entity_option: EntityText,
) -> TextGraph {
    let n_passages = texts.len();
    let mut entities = Numbering::default();
    let mut sentences = Numbering::default();
    let mut sentence_entities: Vec<Vec<u32>> = Vec::new();
    let mut passage_entities: Vec<Vec<u32>> = vec![Vec::new(); n_passages];
    for ((text, annotation), of_passage) in texts.iter().zip(annotations).zip(&mut passage_entities) {
        let points = CodePoints::new(text);
        for sentence in &annotation.sentences {
            let mut found: Vec<u32> = Vec::new();
            for span in &sentence.entities {
                if let Some(surface) = entity_text(span, entity_option) {
                    push_new(&mut found, entities.id(surface));
                }
            }
            if found.is_empty() {
                continue;
            }
            // Annotations were checked against the text on reading.
            let Some(sentence) = points.slice(sentence.start, sentence.end) else { continue };
            let id = sentences.id(sentence) as usize;
            sentence_entities.resize(sentence_entities.len().max(id + 1), Vec::new());
            for &e in &found {
                push_new(&mut sentence_entities[id], e);
                push_new(of_passage, e);
            }
        }
    }

    let n_entities = entities.texts.len();
    let mut entity_sentences: Vec<Vec<u32>> = vec![Vec::new(); n_entities];
    for (s, of_sentence) in sentence_entities.iter().enumerate() {
        for &e in of_sentence {
            entity_sentences[e as usize].push(s as u32);
        }
    }

    let node = |passage: usize| (n_entities + passage) as u32;
    let mut edges: Vec<(u32, u32, f64)> = Vec::new();
    for (p, of_passage) in passage_entities.iter().enumerate() {
        let counts: Vec<usize> =
            of_passage.iter().map(|&e| texts[p].matches(entities.texts[e as usize]).count()).collect();
        let total: usize = counts.iter().sum();
        for (&e, &count) in of_passage.iter().zip(&counts) {
            if count > 0 {
                edges.push((e, node(p), count as f64 / total as f64));
            }
        }
    }
    for p in 1..n_passages {
        let joined = match adjacent {
            AdjacentPassages::All => true,
            AdjacentPassages::SameDocument => titles[p].is_some() && titles[p] == titles[p - 1],
            AdjacentPassages::None => false,
        };
        if joined {
            edges.push((node(p - 1), node(p), 1.0));
        }
    }

    TextGraph {
        entities: entities.texts.iter().map(|&t| t.to_owned()).collect(),
        sentences: sentences.texts.iter().map(|&t| t.to_owned()).collect(),
        graph: Graph {
            entity_sentences: Csr::from_rows(&entity_sentences),
            sentence_entities: Csr::from_rows(&sentence_entities),
            passage_entities: Csr::from_rows(&passage_entities),
            adjacency: Graph::adjacency_from_edges(n_entities + n_passages, &edges),
        },
    }
}

/// Appends unless it is there; a sentence or passage has few entities.
fn push_new(list: &mut Vec<u32>, id: u32) {
    if !list.contains(&id) {
        list.push(id);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::dataset::annotations::SentenceSpan;

    fn annotate(text: &str, sentences: &[(&str, &[&str])]) -> PassageAnnotation {
        let chars = |bytes: usize| text[..bytes].chars().count();
        PassageAnnotation {
            sentences: sentences
                .iter()
                .map(|(sentence, entities)| {
                    let start = text.find(sentence).unwrap();
                    SentenceSpan {
                        start: chars(start),
                        end: chars(start + sentence.len()),
                        entities: entities
                            .iter()
                            .map(|e| {
                                let at = start + sentence.find(e).unwrap();
                                let (start, end) = (chars(at), chars(at + e.len()));
                                Span { text: (*e).into(), label: "PERSON".into(), start, end }
                            })
                            .collect(),
                    }
                })
                .collect(),
        }
    }

    fn built(texts: &[&str], annotations: &[PassageAnnotation]) -> TextGraph {
        let texts: Vec<String> = texts.iter().map(|t| (*t).to_owned()).collect();
        build(&texts, &vec![None; texts.len()], annotations, AdjacentPassages::All, EntityText::Exact)
    }

    /// Counts by hand: "Ann" occurs twice ("Ann met Ann Lee"), "Ann Lee" once, so the weights are 2/3 and 1/3.
    #[test]
    fn weights_count_substrings_and_sum_to_one_per_passage() {
        let text = "Ann met Ann Lee.";
        let g = built(&[text], &[annotate(text, &[(text, &["Ann", "Ann Lee"])])]);
        assert_eq!(g.entities, ["Ann", "Ann Lee"]);
        assert_eq!(g.graph.adjacency.row(2), (&[0, 1][..], &[2.0 / 3.0, 1.0 / 3.0][..]));
    }

    #[test]
    fn a_sentence_seen_twice_is_one_node_with_the_union_of_its_entities() {
        let g = built(
            &["Ann met Bo.", "Ann met Bo."],
            &[
                annotate("Ann met Bo.", &[("Ann met Bo.", &["Ann"])]),
                annotate("Ann met Bo.", &[("Ann met Bo.", &["Bo"])]),
            ],
        );
        assert_eq!(g.sentences.len(), 1);
        assert_eq!(g.graph.sentence_entities.row(0), [0, 1]);
        assert_eq!(g.graph.n_edges(), 3);
    }

    /// pitfall 1: the same passages indexed twice in a row give the same graph; building has no memory.
    #[test]
    fn building_is_idempotent() {
        let texts = ["Ann met Bo.", "Bo left."];
        let annotations =
            [annotate(texts[0], &[(texts[0], &["Ann", "Bo"])]), annotate(texts[1], &[(texts[1], &["Bo"])])];
        assert_eq!(built(&texts, &annotations), built(&texts, &annotations));
    }

    /// pitfall 3 and 4: no entity at all, and one passage without entities among others.
    #[test]
    fn passages_without_entities_stay_nodes() {
        let texts = ["it rained. then it stopped.", "Ann left."];
        let none = built(&texts, &[PassageAnnotation::default(), PassageAnnotation::default()]);
        assert_eq!((none.graph.n_entities(), none.graph.n_passages(), none.graph.n_nodes()), (0, 2, 2));
        let one = built(&texts, &[PassageAnnotation::default(), annotate(texts[1], &[(texts[1], &["Ann"])])]);
        assert_eq!((one.graph.n_entities(), one.graph.n_nodes(), one.graph.n_edges()), (1, 3, 2));
    }

    #[test]
    fn labels_and_options() {
        let of = |text: &str, label: &str, option| {
            entity_text(&Span { text: text.into(), label: label.into(), start: 0, end: 0 }, option).map(str::to_owned)
        };
        assert_eq!(of("7", "CARDINAL", EntityText::Exact), None);
        assert_eq!(of(" \n ", "ORG", EntityText::Exact), None);
        assert_eq!(of("Ann\n", "ORG", EntityText::Exact).as_deref(), Some("Ann\n"));
        assert_eq!(of("Ann\n", "ORG", EntityText::Trim).as_deref(), Some("Ann"));
        let texts: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let titles = [Some("A"), Some("A"), None];
        for (adjacent, edges) in
            [(AdjacentPassages::All, 2), (AdjacentPassages::SameDocument, 1), (AdjacentPassages::None, 0)]
        {
            assert_eq!(build(&texts, &titles, &[], adjacent, EntityText::Exact).graph.n_edges(), edges);
        }
    }
}
