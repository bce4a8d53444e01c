//! The retrieval graph as matrices: who mentions whom, and the weighted undirected graph that PageRank walks (spec 2.1).
//!
//! Ids are dense. Nodes of the weighted graph are entities, then passages: node of passage p is `n_entities + p`.

/// Compressed rows without values: row i holds `indices[offsets[i]..offsets[i + 1]]`, in an order that matters to the owner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Csr {
    /// `rows + 1` ascending positions.
    pub offsets: Vec<u64>,
    /// Column numbers.
    pub indices: Vec<u32>,
}

impl Csr {
    /// From one list a row.
    pub fn from_rows(rows: &[Vec<u32>]) -> Self {
        let mut offsets = Vec::with_capacity(rows.len() + 1);
        let mut indices = Vec::with_capacity(rows.iter().map(Vec::len).sum());
        offsets.push(0);
        for row in rows {
            indices.extend_from_slice(row);
            offsets.push(indices.len() as u64);
        }
        Self { offsets, indices }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// One row.
    #[inline]
    pub fn row(&self, i: usize) -> &[u32] {
        &self.indices[self.range(i)]
    }

    /// Where row i lies in `indices`.
    #[inline]
    pub fn range(&self, i: usize) -> std::ops::Range<usize> {
        self.offsets[i] as usize..self.offsets[i + 1] as usize
    }
}

/// Compressed rows with values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WeightedCsr<T> {
    /// Positions and columns.
    pub shape: Csr,
    /// One value an index.
    pub values: Vec<T>,
}

impl<T: Copy> WeightedCsr<T> {
    /// From one list of (column, value) a row.
    pub fn from_rows(rows: &[Vec<(u32, T)>]) -> Self {
        let columns: Vec<Vec<u32>> = rows.iter().map(|row| row.iter().map(|&(c, _)| c).collect()).collect();
        let values = rows.iter().flat_map(|row| row.iter().map(|&(_, v)| v)).collect();
        Self { shape: Csr::from_rows(&columns), values }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.shape.rows()
    }

    /// Columns and values of one row.
    #[inline]
    pub fn row(&self, i: usize) -> (&[u32], &[T]) {
        let range = self.shape.range(i);
        (&self.shape.indices[range.clone()], &self.values[range])
    }
}

/// Everything propagation and PageRank walk on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Graph {
    /// Entity → sentences that mention it, ascending.
    pub entity_sentences: Csr,
    /// Sentence → its entities, in order of first appearance.
    pub sentence_entities: Csr,
    /// Passage → its entities, in order of first appearance.
    pub passage_entities: Csr,
    /// Symmetric weights between nodes, columns ascending.
    pub adjacency: WeightedCsr<f64>,
}

impl Graph {
    /// Number of entities.
    pub fn n_entities(&self) -> usize {
        self.entity_sentences.rows()
    }

    /// Number of sentences.
    pub fn n_sentences(&self) -> usize {
        self.sentence_entities.rows()
    }

    /// Number of passages.
    pub fn n_passages(&self) -> usize {
        self.passage_entities.rows()
    }

    /// Number of nodes of the weighted graph.
    pub fn n_nodes(&self) -> usize {
        self.adjacency.rows()
    }

    /// Number of undirected edges.
    pub fn n_edges(&self) -> usize {
        self.adjacency.values.len() / 2
    }

    /// Builds the adjacency from undirected edges `(node, node, weight)`; each pair at most once, no loops.
    pub fn adjacency_from_edges(n_nodes: usize, edges: &[(u32, u32, f64)]) -> WeightedCsr<f64> {
        let mut rows: Vec<Vec<(u32, f64)>> = vec![Vec::new(); n_nodes];
        for &(a, b, w) in edges {
            rows[a as usize].push((b, w));
            rows[b as usize].push((a, w));
        }
        for row in &mut rows {
            row.sort_by_key(|&(column, _)| column);
        }
        WeightedCsr::from_rows(&rows)
    }
}
