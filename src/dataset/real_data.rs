//! The readers on the publishers' real files, where `../shared` (or `LIVINGRAG_SHARED`) has them.
//!
//! Counts are those of the data's own README, of table 8, or of a few lines of Python over the same JSON files.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::clusters::{ClusterStats, experience_clusters};
use super::texts::{TextKind, index_texts};
use super::*;

/// The folder of a real dataset, or `None` with a word when it is not there.
fn real(name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("LIVINGRAG_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")), PathBuf::from);
    let folder = shared.join("data").join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    #[allow(clippy::print_stderr)]
    {
        eprintln!("skipped: no ../shared");
    }
    None
}

fn open(name: &str) -> Option<Dataset> {
    real(name).map(|folder| Dataset::open(&folder).unwrap())
}

fn codes(notes: &[Note]) -> Vec<&str> {
    notes.iter().map(|n| n.code).collect()
}

#[test]
fn counts_of_questions_passages_and_gold() {
    type Row = (&'static str, Kind, usize, usize, usize, &'static [&'static str]);
    let expected: [Row; 7] = [
        ("hotpotqa_train", Kind::HippoRag, 100, 994, 100, &[]),
        ("musique_train", Kind::HippoRag, 100, 1890, 100, &[]),
        ("2wiki", Kind::LinearRag, 1000, 658, 0, &[]),
        ("hotpotqa_1000", Kind::HippoRag, 1000, 5919, 955, &["gold_incomplete"]),
        ("musique_1000", Kind::HippoRag, 1000, 5728, 0, &[]),
        ("musique_full", Kind::MuSiQue, 2417, 0, 0, &["no_paragraphs"]),
        ("medical", Kind::LinearRag, 2062, 225, 0, &[]),
    ];
    for (name, kind, questions, passages, gold, notes) in expected {
        let Some(d) = open(name) else { return };
        let with_gold = d.questions.iter().filter(|q| q.gold_passages.is_some()).count();
        assert_eq!(
            (d.kind, d.questions.len(), d.passages.len(), with_gold),
            (kind, questions, passages, gold),
            "{name}"
        );
        assert_eq!(codes(&d.notes), notes, "{name}");
        assert_eq!(d.name, name);
    }
}

/// Python: `Counter(sum(p["is_supporting"] for p in q["paragraphs"]) for q in questions)` gives 2: 68, 3: 27, 4: 5.
#[test]
fn musique_has_as_many_gold_passages_as_supporting_paragraphs() {
    let Some(d) = open("musique_train") else { return };
    let sizes = |n| d.questions.iter().filter(|q| q.gold_passages.as_ref().is_some_and(|g| g.len() == n)).count();
    assert_eq!([sizes(2), sizes(3), sizes(4)], [68, 27, 5]);
    assert!(d.questions.iter().all(|q| q.gold_passages.as_ref().unwrap().is_sorted()));
    assert_eq!(d.questions[0].aliases, ["Stanley Hall"]);
    assert_eq!(d.questions[0].hops, ["150763", "14904"]);
}

/// The texts that an index needs are exactly those that the vector files hold; distinct numbers by Python.
#[test]
fn index_texts_are_the_texts_of_the_vector_files() {
    let expected: [(&str, [usize; 5]); 3] = [
        ("hotpotqa_train", [994, 3846, 8186, 100, 227]),
        ("musique_train", [1890, 6467, 13287, 100, 147]),
        ("2wiki", [658, 18524, 22730, 1000, 1316]),
    ];
    for (name, counts) in expected {
        let Some(d) = open(name) else { return };
        let (passages, questions) = (d.passage_texts(true), d.question_texts());
        let (annotations, notes) = annotations::read_passages(&d.folder.join(ANNOTATIONS_FILE), &passages).unwrap();
        assert!(notes.is_empty());
        let (question_entities, notes) =
            annotations::read_questions(&d.folder.join(QUESTION_ENTITIES_FILE), &questions).unwrap();
        assert!(notes.is_empty());
        let texts = index_texts(&passages, &annotations, &questions, &question_entities, false);
        for (kind, count) in TextKind::ALL.into_iter().zip(counts) {
            let needed: Vec<&str> = texts.iter().filter(|(k, _)| *k == kind).map(|(_, t)| t.as_str()).collect();
            assert_eq!(needed.len(), count, "{name} {}", kind.as_str());
            let path = kind.vector_file(&d.folder);
            if !path.exists() {
                continue;
            }
            let table = vectors::read(&path).unwrap();
            assert_eq!(
                (table.dim, table.encoder.as_str(), table.truncated_at_tokens),
                (768, "sentence-transformers/all-mpnet-base-v2", Some(384))
            );
            let there: BTreeSet<&str> = table.texts.iter().map(String::as_str).collect();
            assert_eq!(needed.iter().copied().collect::<BTreeSet<_>>(), there, "{name} {}", kind.as_str());
            assert!(!table.is_constant());
        }
    }
}

/// Table 8: clusters, coverage in %, mean size, largest.
#[test]
fn experience_clusters_are_those_of_table_8() {
    for (name, expected) in [("musique_1000", (178, "79.2", "4.4", 21)), ("musique_full", (300, "89.9", "7.2", 58))] {
        let Some(d) = open(name) else { return };
        let hops: Vec<Vec<String>> = d.questions.iter().map(|q| q.hops.clone()).collect();
        let s = ClusterStats::of(&experience_clusters(&hops), d.questions.len());
        let found = (s.clusters, format!("{:.1}", 100.0 * s.coverage), format!("{:.1}", s.mean_size), s.max_size);
        assert_eq!((found.0, found.1.as_str(), found.2.as_str(), found.3), expected, "{name}");
    }
}

#[test]
fn orders_of_real_streams() {
    let Some(d) = open("musique_full") else { return };
    let hops: Vec<Vec<String>> = d.questions.iter().map(|q| q.hops.clone()).collect();
    let largest = experience_clusters(&hops).into_iter().max_by_key(Vec::len).unwrap();
    let gaps = |spec: &str| -> Vec<usize> {
        let order = orders::order(spec, &d.questions, None).unwrap();
        let at: Vec<usize> = (0..order.len()).filter(|&t| largest.contains(&order[t].at())).collect();
        at.windows(2).map(|w| w[1] - w[0]).collect()
    };
    assert!(gaps("clustered").iter().all(|&g| g == 1));
    // 2,417 questions, the largest cluster has 58: 41.67 apart.
    assert!(gaps("spread").iter().all(|&g| g == 41 || g == 42));
}

/// The leader groups of the 2wiki stream; counts by numpy over the same vectors: 115 groups, the largest of 145.
#[test]
fn orders_by_question_vectors() {
    let Some(d) = open("2wiki") else { return };
    let table = vectors::read(&TextKind::Questions.vector_file(&d.folder)).unwrap();
    let index = table.index();
    let rows: Vec<&[f32]> = d.questions.iter().map(|q| index.vector(&q.text).unwrap()).collect();
    let cosine = |a: usize, b: usize| rows[a].iter().zip(rows[b]).map(|(x, y)| x * y).sum::<f32>();
    let groups = orders::like_groups(rows.len(), &cosine);
    assert_eq!((groups.len(), groups.iter().map(Vec::len).max()), (115, Some(145)));
    let order = orders::order("clustered", &d.questions, Some(&cosine)).unwrap();
    assert!(order.iter().map(|q| q.at()).eq(groups.concat()));
}

#[test]
fn inspection_of_real_datasets() {
    let inspect = |name: &str| open(name).map(|d| inspect::inspect(&d).unwrap());
    let Some(two_wiki) = inspect("2wiki") else { return };
    let text = two_wiki.to_string();
    assert!(text.contains("already_prefixed: 658 of 658 passages"), "{text}");
    assert!(text.contains("word_pieces: 72 of 658 passages"), "{text}");
    // All 658 chunks are longer than 384 tokens, by bert-base-uncased's tokenizer as well.
    assert!(
        text.contains("text_cut: embeddings/passages.parquet: about 658 of 658 texts (100.0 %, estimated)"),
        "{text}"
    );
    assert_eq!(two_wiki.passage_prefix, "index");

    let Some(hotpotqa) = inspect("hotpotqa_train") else { return };
    assert_eq!(hotpotqa.questions.gold_sizes, [(2, 100)]);
    assert!(hotpotqa.vectors.iter().all(|v| v.missing == 0 && v.needed == Some(v.rows)), "{hotpotqa}");
    let passages = &hotpotqa.vectors[0];
    // bert-base-uncased's tokenizer cuts 11.
    assert!(passages.cut_estimated.is_some_and(|n| n.abs_diff(11) <= 3), "{hotpotqa}");

    // Pairs of gold passages and those at distance 1, by Python over the question and corpus files.
    let pairs = |i: &inspect::Inspection| i.questions.gold_pairs.map(|g| (g.neighbours, g.pairs));
    assert_eq!(pairs(&hotpotqa), Some((22, 100)));
    assert_eq!(pairs(&inspect("musique_train").unwrap()), Some((20, 179)));
    // One gold answer is the band "!!!".
    let text = inspect("hotpotqa_1000").unwrap().to_string();
    assert!(text.contains("gold_normalises_to_nothing: 1 of 1000 questions"), "{text}");

    let Some(full) = inspect("musique_full") else { return };
    // 2,412 distinct texts among 2,417 questions.
    assert!(full.to_string().contains("duplicate_question: 5 of 2417"), "{full}");
    assert!(full.vectors.iter().all(|v| v.missing == 0));
}
