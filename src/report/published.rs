//! The values that the LivingRAG paper prints for its own streams, for tables 1, 4, 6 and 16.
//!
//! In: a dataset's name and its number of questions. Out: the paper's rows, shown beside ours and marked as published. Only the very
//! same stream is matched: the name, loosely spelled, and exactly as many questions.

/// What the paper prints about one stream. Percentages have two decimals there.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the names are the tables' column titles")]
pub struct Published {
    /// The paper's name of the stream.
    pub name: &'static str,
    pub questions: u64,
    // Table 1, percent of Q - 1.
    pub entity_reuse: f64,
    pub graph_reuse: f64,
    pub template_opportunity: f64,
    // Table 4.
    pub graph_transfer: f64,
    pub template_reuse: f64,
    // Table 6.
    pub ns_pass: f64,
    pub gs_checked: u64,
    pub gs_pass: f64,
    pub gs_reject: u64,
    pub stored: u64,
    // Table 16.
    pub selections: u64,
    pub selection_coverage: f64,
    pub scaffold_uses: u64,
    pub scaffold_coverage: f64,
    pub max_uses: u64,
}

/// The five streams, in the paper's order.
pub const STREAMS: [Published; 5] = [
    Published {
        name: "2Wiki",
        questions: 1000,
        entity_reuse: 4.30,
        graph_reuse: 99.70,
        template_opportunity: 96.30,
        graph_transfer: 0.00,
        template_reuse: 84.15,
        ns_pass: 13.80,
        gs_checked: 138,
        gs_pass: 72.46,
        gs_reject: 38,
        stored: 100,
        selections: 4820,
        selection_coverage: 97.00,
        scaffold_uses: 984,
        scaffold_coverage: 85.00,
        max_uses: 103,
    },
    Published {
        name: "HotpotQA",
        questions: 1000,
        entity_reuse: 26.53,
        graph_reuse: 99.10,
        template_opportunity: 21.82,
        graph_transfer: 0.00,
        template_reuse: 9.04,
        ns_pass: 63.30,
        gs_checked: 633,
        gs_pass: 86.73,
        gs_reject: 84,
        stored: 549,
        selections: 2814,
        selection_coverage: 79.60,
        scaffold_uses: 984,
        scaffold_coverage: 58.11,
        max_uses: 20,
    },
    Published {
        name: "MuSiQue",
        questions: 1000,
        entity_reuse: 40.34,
        graph_reuse: 95.60,
        template_opportunity: 39.14,
        graph_transfer: 91.20,
        template_reuse: 40.69,
        ns_pass: 36.30,
        gs_checked: 363,
        gs_pass: 86.23,
        gs_reject: 50,
        stored: 313,
        selections: 2799,
        selection_coverage: 86.90,
        scaffold_uses: 983,
        scaffold_coverage: 70.29,
        max_uses: 30,
    },
    Published {
        name: "MuSiQue-full",
        questions: 2417,
        entity_reuse: 54.10,
        graph_reuse: 96.32,
        template_opportunity: 54.30,
        graph_transfer: 82.42,
        template_reuse: 50.44,
        ns_pass: 21.31,
        gs_checked: 515,
        gs_pass: 91.84,
        gs_reject: 42,
        stored: 473,
        selections: 6828,
        selection_coverage: 93.02,
        scaffold_uses: 2401,
        scaffold_coverage: 81.61,
        max_uses: 68,
    },
    Published {
        name: "WixQA",
        questions: 400,
        entity_reuse: 76.69,
        graph_reuse: 80.45,
        template_opportunity: 16.04,
        graph_transfer: 91.50,
        template_reuse: 7.03,
        ns_pass: 39.25,
        gs_checked: 157,
        gs_pass: 100.00,
        gs_reject: 0,
        stored: 157,
        selections: 1910,
        selection_coverage: 88.54,
        scaffold_uses: 384,
        scaffold_coverage: 67.52,
        max_uses: 20,
    },
];

/// The paper's stream of this name and length. Spelling is loose: case, punctuation and suffixes such as `_1000` do not matter.
pub fn published(dataset: &str, questions: u64) -> Option<&'static Published> {
    STREAMS.iter().find(|s| s.questions == questions && family(s.name) == family(dataset))
}

/// Place of a dataset in the paper's tables, for the order of rows; others come after.
pub fn place(dataset: &str, questions: u64) -> usize {
    let same_family = || STREAMS.iter().position(|s| family(s.name) == family(dataset) && family(dataset).is_some());
    let exact = published(dataset, questions).and_then(|p| STREAMS.iter().position(|s| s == p));
    exact.or_else(same_family).unwrap_or(STREAMS.len())
}

/// The benchmark a name belongs to; both MuSiQue streams are one, told apart by their length.
fn family(name: &str) -> Option<&'static str> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    ["2wiki", "hotpot", "musique", "wixqa"].into_iter().find(|family| plain.starts_with(family))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_matched_by_name_and_length() {
        let name = |dataset, q| published(dataset, q).map(|p| p.name);
        assert_eq!(name("2wiki", 1000), Some("2Wiki"));
        assert_eq!(name("2WikiMultiHopQA", 1000), Some("2Wiki"));
        assert_eq!(name("hotpotqa_1000", 1000), Some("HotpotQA"));
        assert_eq!(name("musique_1000", 1000), Some("MuSiQue"));
        assert_eq!(name("musique_full", 2417), Some("MuSiQue-full"));
        assert_eq!(name("wixqa", 160), None);
        assert_eq!(name("hotpotqa_train", 100), None);
        assert_eq!(name("medical", 1000), None);
        assert_eq!((place("2wiki", 5), place("musique", 2417), place("demo", 60)), (0, 3, 5));
    }

    /// The paper's own arithmetic: each percentage is its count over the stated denominator, to two decimals.
    #[test]
    fn the_published_percentages_follow_from_the_published_counts() {
        for s in STREAMS {
            let close = |hits: u64, of: u64, printed: f64| {
                assert!((100.0 * hits as f64 / of as f64 - printed).abs() <= 0.00501, "{}: {hits}/{of}", s.name);
            };
            close(s.gs_checked, s.questions, s.ns_pass);
            close(s.stored, s.gs_checked, s.gs_pass);
            assert_eq!(s.stored + s.gs_reject, s.gs_checked, "{}", s.name);
            for (percent, of) in [
                (s.entity_reuse, s.questions - 1),
                (s.graph_reuse, s.questions - 1),
                (s.template_opportunity, s.questions - 1),
                (s.graph_transfer, s.questions),
                (s.template_reuse, s.scaffold_uses),
                (s.selection_coverage, s.stored),
                (s.scaffold_coverage, s.stored),
            ] {
                close((percent * of as f64 / 100.0).round() as u64, of, percent);
            }
        }
    }
}
