//! TF-IDF as scikit-learn's default `TfidfVectorizer`: what template reuse is measured with (sections 3.1 and 4.3).
//!
//! In: documents (masked questions). Out: L2-normalised sparse rows and their cosines; beside it the cosine of plain
//! token counts, which needs no fitting and so may be used while a stream is still running.

use std::collections::BTreeMap;

/// The terms of a document: lower-cased runs of two or more word characters (`(?u)\b\w\w+\b`).
pub fn terms(document: &str) -> Vec<String> {
    document
        .to_lowercase()
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|term| term.chars().nth(1).is_some())
        .map(str::to_owned)
        .collect()
}

/// Smooth inverse document frequency: ln((1 + n) / (1 + df)) + 1, for `df` of `n` documents.
fn smooth_idf(n: usize, df: usize) -> f64 {
    ((1.0 + n as f64) / (1.0 + df as f64)).ln() + 1.0
}

/// Documents as TF-IDF rows.
#[derive(Debug, Clone, PartialEq)]
pub struct TfidfModel {
    /// Terms in lexical order; a column each.
    vocabulary: Vec<String>,
    /// A row a document: (column ascending, weight). Euclidean length 1; empty for a document without terms.
    rows: Vec<Vec<(u32, f64)>>,
}

impl TfidfModel {
    /// Fits vocabulary and document frequencies on `documents` and keeps their rows.
    pub fn fit(documents: &[&str]) -> Self {
        let counts: Vec<BTreeMap<String, u32>> = documents.iter().map(|document| count(terms(document))).collect();
        let mut frequency: BTreeMap<&str, usize> = BTreeMap::new();
        for term in counts.iter().flat_map(BTreeMap::keys) {
            *frequency.entry(term).or_default() += 1;
        }
        let column: BTreeMap<&str, (u32, f64)> = (0..)
            .zip(&frequency)
            .map(|(column, (&term, &df))| (term, (column, smooth_idf(documents.len(), df))))
            .collect();
        let rows = counts
            .iter()
            .map(|terms| {
                let row = terms.iter().filter_map(|(term, &tf)| {
                    column.get(term.as_str()).map(|&(column, idf)| (column, f64::from(tf) * idf))
                });
                l2_normalized(row.collect())
            })
            .collect();
        Self { vocabulary: frequency.into_keys().map(str::to_owned).collect(), rows }
    }

    /// Terms in lexical order; a column each.
    pub fn vocabulary(&self) -> &[String] {
        &self.vocabulary
    }

    /// Rows in document order: (column ascending, weight).
    pub fn rows(&self) -> &[Vec<(u32, f64)>] {
        &self.rows
    }

    /// Cosine of documents `i` and `j`, in [0, 1]; 0 when either has no terms.
    ///
    /// # Panics
    /// When `i` or `j` is not a document of the fit.
    pub fn cosine(&self, i: usize, j: usize) -> f64 {
        sparse_dot(&self.rows[i], &self.rows[j])
    }
}

/// A document's plain term counts as a row of Euclidean length 1.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TokenCounts(Vec<(String, f64)>);

impl TokenCounts {
    /// Counts the terms of `document`.
    pub fn of(document: &str) -> Self {
        Self(l2_normalized(count(terms(document)).into_iter().map(|(term, n)| (term, f64::from(n))).collect()))
    }

    /// Cosine of two documents' counts, in [0, 1]; 0 when either has no terms.
    pub fn cosine(&self, other: &Self) -> f64 {
        sparse_dot(&self.0, &other.0)
    }
}

/// Cosine of the plain term counts of two documents (no idf): the template similarity that needs neither an encoder nor the
/// rest of the stream. Comparing one with many: keep its [`TokenCounts`].
pub fn token_count_cosine(a: &str, b: &str) -> f64 {
    TokenCounts::of(a).cosine(&TokenCounts::of(b))
}

fn count(terms: Vec<String>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for term in terms {
        *counts.entry(term).or_default() += 1;
    }
    counts
}

/// Scales a row to Euclidean length 1; an empty or zero row stays as it is.
fn l2_normalized<K>(mut row: Vec<(K, f64)>) -> Vec<(K, f64)> {
    let length = row.iter().map(|(_, weight)| weight * weight).sum::<f64>().sqrt();
    if length > 0.0 {
        for (_, weight) in &mut row {
            *weight /= length;
        }
    }
    row
}

/// Dot product of two rows with ascending keys, summed in key order.
fn sparse_dot<K: Ord>(a: &[(K, f64)], b: &[(K, f64)]) -> f64 {
    let (mut i, mut j, mut sum) = (0, 0, 0.0);
    while let (Some((key_a, weight_a)), Some((key_b, weight_b))) = (a.get(i), b.get(j)) {
        match key_a.cmp(key_b) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                sum += weight_a * weight_b;
                i += 1;
                j += 1;
            }
        }
    }
    sum
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DOCUMENTS: [&str; 6] = [
        "When did [ENTITY]'s mother die?",
        "Which film was released first, [ENTITY] or [ENTITY]?",
        "Where did the mother of [ENTITY] die in [NUMBER]?",
        "Which film has the director who died first, [ENTITY] or [ENTITY]?",
        "a b ?",
        "Über die Straße, film_noir 42",
    ];

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
    }

    /// scikit-learn 1.9.1, numpy 2.4.6: `X = TfidfVectorizer().fit_transform(DOCUMENTS); (X @ X.T).toarray()`.
    #[test]
    fn agrees_with_scikit_learn() {
        let model = TfidfModel::fit(&DOCUMENTS);
        let names = "42 did die died director entity film film_noir first has in mother number of or released straße the was \
                     when where which who über";
        assert_eq!(model.vocabulary(), names.split(' ').collect::<Vec<_>>());
        for (i, j, expected) in [
            (0, 0, 1.0),
            (0, 1, 0.15995403872882277),
            (0, 2, 0.46658768711667276),
            (0, 3, 0.133374690548871),
            (0, 4, 0.0),
            (0, 5, 0.12707270410580276),
            (1, 2, 0.10892907452497226),
            (1, 3, 0.5603328007282018),
            (2, 3, 0.17759376262477639),
            (2, 5, 0.08653680873352344),
            (3, 5, 0.0),
            (4, 4, 0.0),
        ] {
            assert_close(model.cosine(i, j), expected);
            assert_close(model.cosine(j, i), expected);
        }
        let third: Vec<(&str, f64)> = model.rows()[2]
            .iter()
            .map(|&(column, weight)| (model.vocabulary()[column as usize].as_str(), weight))
            .collect();
        let expected = [
            ("did", 0.31334513794215746),
            ("die", 0.2645474964740975),
            ("entity", 0.2266971051718534),
            ("in", 0.3821215507531668),
            ("mother", 0.31334513794215746),
            ("number", 0.3821215507531668),
            ("of", 0.3821215507531668),
            ("the", 0.31334513794215746),
            ("where", 0.3821215507531668),
        ];
        assert_eq!(third.len(), expected.len());
        for ((term, weight), (expected_term, expected_weight)) in third.iter().zip(expected) {
            assert_eq!(*term, expected_term);
            assert_close(*weight, expected_weight);
        }
    }

    /// numpy 2.4.6 on `CountVectorizer().fit_transform(DOCUMENTS)`: dot product over the product of lengths.
    #[test]
    fn token_counts_agree_with_numpy() {
        assert_close(token_count_cosine(DOCUMENTS[0], DOCUMENTS[2]), 0.5962847939999439);
        assert_close(token_count_cosine(DOCUMENTS[1], DOCUMENTS[3]), 0.7016464154456235);
        assert_close(token_count_cosine(DOCUMENTS[0], DOCUMENTS[1]), 0.282842712474619);
        assert_close(token_count_cosine(DOCUMENTS[0], DOCUMENTS[4]), 0.0);
        assert_close(token_count_cosine("", ""), 0.0);
    }

    #[test]
    fn nothing_to_fit_is_no_trouble() {
        assert!(TfidfModel::fit(&[]).vocabulary().is_empty());
        assert_close(TfidfModel::fit(&["", "?"]).cosine(0, 1), 0.0);
    }

    proptest! {
        #[test]
        fn cosines_are_symmetric_and_bounded(texts in proptest::collection::vec("([a-d]{1,3} ){0,8}", 2..6)) {
            let model = TfidfModel::fit(&texts.iter().map(String::as_str).collect::<Vec<_>>());
            for i in 0..texts.len() {
                for j in 0..texts.len() {
                    let cosine = model.cosine(i, j);
                    prop_assert!((-1e-12..=1.0 + 1e-12).contains(&cosine));
                    prop_assert_eq!(cosine, model.cosine(j, i));
                }
                let itself = model.cosine(i, i);
                prop_assert!((itself - f64::from(u8::from(!model.rows()[i].is_empty()))).abs() < 1e-12);
            }
        }
    }
}
