//! The kernels, listed once: file `kernels/<module>.cu`, symbol `<step>_<dtype>`. A test keeps list and sources equal.

/// One kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel {
    /// Its file in `kernels/`, without `.cu`.
    pub module: &'static str,
    /// Its symbol.
    pub symbol: &'static str,
}

macro_rules! kernels {
    ($($name:ident = $module:literal $symbol:literal;)*) => {
        $(#[doc = concat!("`", $symbol, "` of `kernels/", $module, ".cu`.")]
        pub const $name: Kernel = Kernel { module: $module, symbol: $symbol };)*
        /// Every kernel.
        pub const ALL: &[Kernel] = &[$($name),*];
    };
}

kernels! {
    DENSE_PRODUCTS = "dense" "dense_products_f32";
    ENCODER_BIAS_F16 = "encoder_elementwise" "encoder_bias_f16";
    ENCODER_BIAS_F32 = "encoder_elementwise" "encoder_bias_f32";
    ENCODER_JOIN_F16 = "encoder_attention" "encoder_join_f16";
    ENCODER_JOIN_F32 = "encoder_attention" "encoder_join_f32";
    ENCODER_NORM_F16 = "encoder_elementwise" "encoder_norm_f16";
    ENCODER_NORM_F32 = "encoder_elementwise" "encoder_norm_f32";
    ENCODER_SPLIT_F16 = "encoder_attention" "encoder_split_f16";
    ENCODER_SPLIT_F32 = "encoder_attention" "encoder_split_f32";
    ENCODER_WEIGHTS_F16 = "encoder_attention" "encoder_weights_f16";
    ENCODER_WEIGHTS_F32 = "encoder_attention" "encoder_weights_f32";
    PAGERANK_HUB_RESIDUAL = "pagerank" "pagerank_hub_residual_f32";
    PAGERANK_HUBS = "pagerank" "pagerank_hubs_f32";
    PAGERANK_MASS = "pagerank" "pagerank_mass_f64";
    PAGERANK_RESET_ENTITIES = "pagerank" "pagerank_reset_entities_f32";
    PAGERANK_RESET_PASSAGES = "pagerank" "pagerank_reset_passages_f32";
    PAGERANK_RESIDUAL = "pagerank" "pagerank_residual_f32";
    PAGERANK_SCORES = "pagerank" "pagerank_scores_f32";
    PAGERANK_SEGMENTS = "pagerank" "pagerank_segments_f32";
    PAGERANK_SWEEP = "pagerank" "pagerank_sweep_f32";
    PAGERANK_TOTALS = "pagerank" "pagerank_totals_f64";
    PASSAGE_MINMAX = "passage_weight" "passage_minmax_f32";
    PASSAGE_WEIGHT = "passage_weight" "passage_weight_f32";
    PROPAGATE_BFS = "propagate" "propagate_bfs_f64";
    PROPAGATE_COLLECT = "propagate" "propagate_collect_f64";
    PROPAGATE_MATRIX = "propagate" "propagate_matrix_f64";
    SCAN_MERGE = "scan" "scan_merge_f64";
    SCAN_TILE = "scan" "scan_tile_f64";
    TOPK_MERGE = "topk" "topk_merge_f32";
    TOPK_TILE = "topk" "topk_tile_f32";
}

/// Names of the files in `kernels/`, without `.cu`, ascending.
pub fn modules() -> Vec<&'static str> {
    let mut out: Vec<&str> = ALL.iter().map(|k| k.module).collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// Scores of a top-k tile, `TOPK_TILE` in `kernels/topk.cu`.
pub(crate) const TOPK_TILE_SCORES: usize = 2048;
/// Passages of a passage-weight tile, `PASSAGE_TILE` in `kernels/passage_weight.cu`.
pub(crate) const PASSAGE_TILE: usize = 1024;
/// Experiences of a scan tile, `SCAN_TILE` in `kernels/scan.cu`.
pub(crate) const SCAN_TILE_EXPERIENCES: usize = 1024;
/// Rows and queries of a product tile, `DENSE_TILE` in `kernels/dense.cu`.
pub(crate) const DENSE_TILE: usize = 64;
/// Rows of a residual part, `RESIDUAL_ROWS` in `kernels/pagerank.cu`.
pub(crate) const RESIDUAL_ROWS: usize = 64;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn folder() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
    }

    #[test]
    fn the_list_is_what_the_sources_hold() {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "cu") {
                continue;
            }
            let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
            for line in fs::read_to_string(&path).unwrap().lines() {
                if let Some(rest) = line.strip_prefix("KERNEL ") {
                    let head = rest.split('(').find(|part| part.contains("_f")).unwrap();
                    let symbol = head.split_whitespace().last().unwrap();
                    found.push((module.clone(), symbol.to_owned()));
                }
            }
        }
        found.sort();
        let mut listed: Vec<_> = ALL.iter().map(|k| (k.module.to_owned(), k.symbol.to_owned())).collect();
        listed.sort();
        assert_eq!(listed, found);
    }

    #[test]
    fn tiles_are_what_the_sources_say() {
        for (file, name, value) in [
            ("topk", "TOPK_TILE", TOPK_TILE_SCORES),
            ("passage_weight", "PASSAGE_TILE", PASSAGE_TILE),
            ("scan", "SCAN_TILE", SCAN_TILE_EXPERIENCES),
            ("dense", "DENSE_TILE", DENSE_TILE),
            ("encoder_attention", "SCORE_TILE", crate::backend::device::encoder::SCORE_TILE),
            ("pagerank", "RESIDUAL_ROWS", RESIDUAL_ROWS),
        ] {
            let text = fs::read_to_string(folder().join(format!("{file}.cu"))).unwrap();
            assert!(text.contains(&format!("#define {name} {value}u")), "{name} in {file}.cu");
        }
    }
}
