//! What a model folder says about its model: `config.json`.
//!
//! In: the file. Out: a [`ModelConfig`] whose every number was checked. A model that this engine would compute differently is
//! refused here, by key and value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::source::ModelFolder;
use crate::{Error, Result};

/// The kinds of encoder there are, told apart by `model_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Learned absolute positions.
    Bert,
    /// BERT whose positions start after the padding token's id; XLM-RoBERTa too.
    Roberta,
    /// Absolute positions and one relative bias for all layers.
    Mpnet,
    /// Disentangled attention, versions 2 and 3.
    Deberta,
}

/// An encoder's shape.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// Kind of encoder.
    pub family: Family,
    /// Width of a hidden state.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Attention heads a layer.
    pub heads: usize,
    /// Width inside the feed-forward part.
    pub intermediate: usize,
    /// Rows of the word embeddings.
    pub vocab: usize,
    /// Rows of the position embeddings, `max_position_embeddings`.
    pub positions: usize,
    /// Rows of the token-type embeddings; 0 where there are none.
    pub token_types: usize,
    /// Added to the variance in every layer norm.
    pub eps: f32,
    /// Id of the padding token.
    pub pad: u32,
    /// Buckets of MPNet's relative bias.
    pub relative_buckets: usize,
    /// What only DeBERTa has.
    pub deberta: Deberta,
    /// Class names in the order of the logits; empty where the model names none.
    pub id2label: Vec<String>,
    /// Name of the class the weights were saved from, for example `BertModel`.
    pub architecture: String,
    /// The file all this was read from.
    pub path: PathBuf,
}

/// Settings of disentangled attention.
#[derive(Debug, Clone, Default)]
pub struct Deberta {
    /// Width of the word embeddings where it is not the hidden one.
    pub embedding: usize,
    /// Whether relative positions are used at all.
    pub relative: bool,
    /// Content-to-position term.
    pub c2p: bool,
    /// Position-to-content term.
    pub p2c: bool,
    /// Position tables are projected by the content's own key and query projections.
    pub share_att_key: bool,
    /// Buckets a side; 0: positions are used as they are.
    pub buckets: usize,
    /// Longest distance, `max_relative_positions` or, where that is not positive, `max_position_embeddings`.
    pub max_relative: usize,
    /// A layer norm over the relative embeddings.
    pub norm_relative: bool,
    /// Absolute positions are added to the words.
    pub absolute: bool,
    /// Width of the convolution beside the first layer; 0: none.
    pub conv_kernel: usize,
    /// What follows the convolution.
    pub conv_tanh: bool,
    /// What follows the pooler's dense layer.
    pub pooler_tanh: bool,
}

impl ModelConfig {
    /// Reads and checks `config.json`.
    ///
    /// # Errors
    /// Not readable, another kind of model, or a setting that is not computed here.
    pub fn read(folder: &ModelFolder) -> Result<Self> {
        let path = folder.path().join("config.json");
        Self::parse(&path, &read_object(&path)?)
    }

    pub(super) fn parse(path: &Path, object: &Map<String, Value>) -> Result<Self> {
        let keys = Keys { path, object };
        let family = family(&keys)?;
        let deberta = family == Family::Deberta;
        let hidden = keys.number("hidden_size", None)?;
        let heads = keys.number("num_attention_heads", None)?;
        if heads == 0 || !hidden.is_multiple_of(heads) {
            return Err(keys.wrong("num_attention_heads", &format!("a divisor of hidden_size = {hidden}")));
        }
        let positions = keys.number("max_position_embeddings", Some(512))?;
        keys.only("hidden_act", "gelu", &["gelu"])?;
        if !deberta {
            keys.only("position_embedding_type", "absolute", &["absolute"])?;
        }
        if keys.flag("is_decoder", false)? {
            return Err(keys.wrong("is_decoder", "false: a decoder is no encoder"));
        }
        let config = Self {
            family,
            hidden,
            heads,
            layers: keys.number("num_hidden_layers", None)?,
            intermediate: keys.number("intermediate_size", None)?,
            vocab: keys.number("vocab_size", None)?,
            positions,
            token_types: match family {
                Family::Mpnet => 0,
                Family::Deberta => keys.number("type_vocab_size", Some(0))?,
                Family::Bert | Family::Roberta => keys.number("type_vocab_size", Some(2))?,
            },
            eps: keys.float("layer_norm_eps", if deberta { 1e-7 } else { 1e-12 })?,
            pad: u32::try_from(keys.number("pad_token_id", Some(usize::from(family != Family::Bert && !deberta)))?)
                .map_err(|_| keys.wrong("pad_token_id", "a token id"))?,
            relative_buckets: keys.number("relative_attention_num_buckets", Some(32))?,
            deberta: if deberta { Deberta::parse(&keys, hidden, positions)? } else { Deberta::default() },
            id2label: id2label(&keys)?,
            architecture: object
                .get("architectures")
                .and_then(|a| a.get(0))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            path: path.to_owned(),
        };
        for (key, value) in [
            ("hidden_size", config.hidden),
            ("num_hidden_layers", config.layers),
            ("intermediate_size", config.intermediate),
            ("vocab_size", config.vocab),
            ("max_position_embeddings", config.positions),
        ] {
            if value == 0 {
                return Err(keys.wrong(key, "at least 1"));
            }
        }
        if family == Family::Mpnet && (config.relative_buckets < 4 || !config.relative_buckets.is_multiple_of(4)) {
            return Err(keys.wrong("relative_attention_num_buckets", "a multiple of 4"));
        }
        Ok(config)
    }

    /// The most tokens a text may have by its positions, special tokens included.
    pub fn longest(&self) -> usize {
        match self.family {
            Family::Bert | Family::Deberta => self.positions,
            // Positions start after the padding token's.
            Family::Roberta | Family::Mpnet => self.positions.saturating_sub(self.first_position() as usize),
        }
    }

    /// Position of a text's first token.
    pub fn first_position(&self) -> u32 {
        match self.family {
            Family::Bert | Family::Deberta => 0,
            Family::Roberta => self.pad + 1,
            // The padding position is fixed, whatever the padding token.
            Family::Mpnet => 2,
        }
    }
}

fn family(keys: &Keys) -> Result<Family> {
    let known = "bert, roberta, xlm-roberta, mpnet or deberta-v2";
    match keys.object.get("model_type").and_then(Value::as_str) {
        Some("bert") => Ok(Family::Bert),
        Some("roberta" | "xlm-roberta") => Ok(Family::Roberta),
        Some("mpnet") => Ok(Family::Mpnet),
        Some("deberta-v2") => Ok(Family::Deberta),
        Some(_) => Err(keys.wrong("model_type", known)),
        None => Err(Error::request(format!("{} has no model_type, expected {known}", keys.path.display()))
            .with_hint("give the folder of an encoder in the form of Hugging Face transformers")),
    }
}

impl Deberta {
    fn parse(keys: &Keys, hidden: usize, positions: usize) -> Result<Self> {
        let relative = keys.flag("relative_attention", false)?;
        let terms = match keys.object.get("pos_att_type") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(text)) => text.split('|').map(|t| t.trim().to_lowercase()).collect(),
            Some(Value::Array(list)) => {
                list.iter().map(|t| t.as_str().unwrap_or_default().trim().to_lowercase()).collect()
            }
            Some(_) => return Err(keys.wrong("pos_att_type", "c2p, p2c or both")),
        };
        let terms: Vec<String> = terms.into_iter().filter(|t| !t.is_empty()).collect();
        if terms.iter().any(|t| t != "c2p" && t != "p2c") || (!relative && !terms.is_empty()) {
            return Err(keys.wrong("pos_att_type", "c2p, p2c or both, and nothing where relative_attention is false"));
        }
        let heads = keys.number("num_attention_heads", None)?;
        if keys.number("attention_head_size", Some(hidden / heads))? != hidden / heads {
            return Err(keys.wrong("attention_head_size", "hidden_size / num_attention_heads"));
        }
        let max_relative = match keys.signed("max_relative_positions", -1)? {
            n if n < 1 => positions,
            n => usize::try_from(n).unwrap_or(positions),
        };
        let norms = keys.word("norm_rel_ebd", "none")?.to_lowercase();
        let norms: Vec<&str> = norms.split('|').map(str::trim).collect();
        if norms.iter().any(|n| *n != "layer_norm" && *n != "none") {
            return Err(keys.wrong("norm_rel_ebd", "layer_norm or none"));
        }
        let conv_kernel = keys.number("conv_kernel_size", Some(0))?;
        if conv_kernel > 0 {
            keys.only("conv_act", "tanh", &["tanh", "gelu"])?;
            if conv_kernel.is_multiple_of(2) {
                return Err(keys.wrong("conv_kernel_size", "an odd number"));
            }
            if keys.number("conv_groups", Some(1))? != 1 {
                return Err(keys.wrong("conv_groups", "1"));
            }
        }
        keys.only("pooler_hidden_act", "gelu", &["gelu", "tanh"])?;
        let pooler = keys.number("pooler_hidden_size", Some(hidden))?;
        if pooler != hidden {
            return Err(keys.wrong("pooler_hidden_size", &format!("hidden_size = {hidden}")));
        }
        Ok(Self {
            embedding: keys.number("embedding_size", Some(hidden))?,
            relative,
            c2p: terms.iter().any(|t| t == "c2p"),
            p2c: terms.iter().any(|t| t == "p2c"),
            share_att_key: keys.flag("share_att_key", false)?,
            buckets: usize::try_from(keys.signed("position_buckets", -1)?).unwrap_or(0),
            max_relative,
            norm_relative: norms.contains(&"layer_norm"),
            absolute: keys.flag("position_biased_input", true)?,
            conv_kernel,
            conv_tanh: keys.word("conv_act", "tanh")? == "tanh",
            pooler_tanh: keys.word("pooler_hidden_act", "gelu")? == "tanh",
        })
    }

    /// Rows of the relative tables a side: buckets, or the longest distance.
    pub fn span(&self) -> usize {
        if self.buckets > 0 { self.buckets } else { self.max_relative }
    }
}

/// The class names by index, which must be 0, 1, 2 … without a gap and agree with `label2id`.
fn id2label(keys: &Keys) -> Result<Vec<String>> {
    let Some(map) = keys.object.get("id2label").and_then(Value::as_object) else { return Ok(Vec::new()) };
    let bad = || keys.wrong("id2label", "class names under the keys 0, 1, 2 …");
    let by_index: BTreeMap<usize, String> = map
        .iter()
        .map(|(id, name)| Some((id.parse().ok()?, name.as_str()?.to_owned())))
        .collect::<Option<_>>()
        .ok_or_else(bad)?;
    if by_index.len() != map.len() || by_index.keys().copied().ne(0..map.len()) {
        return Err(bad());
    }
    if let Some(back) = keys.object.get("label2id").and_then(Value::as_object) {
        for (name, id) in back {
            let forth = id.as_u64().and_then(|id| by_index.get(&usize::try_from(id).ok()?));
            if forth != Some(name) {
                return Err(keys.wrong("label2id", "the reverse of id2label"));
            }
        }
    }
    Ok(by_index.into_values().collect())
}

pub(super) fn read_object(path: &Path) -> Result<Map<String, Value>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    serde_json::from_str(text.trim_start_matches('\u{feff}'))
        .map_err(|e| Error::request(format!("{} is not a JSON object", path.display())).with_source(e))
}

/// The keys of one JSON file; each error names file, key and value.
pub(super) struct Keys<'a> {
    pub path: &'a Path,
    pub object: &'a Map<String, Value>,
}

impl Keys<'_> {
    pub fn wrong(&self, key: &str, expected: &str) -> Error {
        let found = self.object.get(key).map_or_else(|| "nothing".to_owned(), ToString::to_string);
        Error::request(format!("{}: {key} = {found}, expected {expected}", self.path.display()))
            .with_hint("this setting is not computed here, or the file is damaged: use another model")
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    pub fn number(&self, key: &str, default: Option<usize>) -> Result<usize> {
        match (self.value(key), default) {
            (None, Some(default)) => Ok(default),
            // 2^24: larger than any real setting, small enough that products of two do not overflow.
            (Some(value), _) => value
                .as_u64()
                .and_then(|n| usize::try_from(n).ok())
                .filter(|n| *n <= 1 << 24)
                .ok_or_else(|| self.wrong(key, "a whole number")),
            (None, None) => Err(self.wrong(key, "a whole number")),
        }
    }

    fn signed(&self, key: &str, default: i64) -> Result<i64> {
        self.value(key).map_or(Ok(default), |value| {
            value.as_i64().filter(|n| n.abs() <= 1 << 24).ok_or_else(|| self.wrong(key, "a whole number"))
        })
    }

    fn float(&self, key: &str, default: f64) -> Result<f32> {
        let value = self.value(key).map_or(Some(default), Value::as_f64);
        value
            .filter(|v| (0.0..1.0).contains(v))
            .map(|v| v as f32)
            .ok_or_else(|| self.wrong(key, "a number from 0 to 1"))
    }

    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        self.value(key).map_or(Ok(default), |value| value.as_bool().ok_or_else(|| self.wrong(key, "true or false")))
    }

    fn word(&self, key: &str, default: &str) -> Result<String> {
        self.value(key).map_or(Ok(default.to_owned()), |value| {
            value.as_str().map(str::to_owned).ok_or_else(|| self.wrong(key, "a word"))
        })
    }

    /// Refuses words other than `allowed`.
    fn only(&self, key: &str, default: &str, allowed: &[&str]) -> Result<()> {
        let word = self.word(key, default)?;
        if allowed.contains(&word.as_str()) { Ok(()) } else { Err(self.wrong(key, &allowed.join(" or "))) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// `base` with some keys changed.
    pub fn parse(mut change: Value, base: Value) -> Result<ModelConfig> {
        let mut object = base.as_object().unwrap().clone();
        object.append(change.as_object_mut().unwrap());
        ModelConfig::parse(Path::new("config.json"), &object)
    }

    pub fn bert() -> Value {
        json!({"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16,
            "vocab_size": 30, "max_position_embeddings": 512})
    }

    fn deberta() -> Value {
        json!({"model_type": "deberta-v2", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16,
            "vocab_size": 30, "max_position_embeddings": 512, "relative_attention": true, "pos_att_type": "p2c|c2p",
            "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": true, "max_relative_positions": -1,
            "position_biased_input": false})
    }

    #[test]
    fn the_large_nli_model_reads_as_published() {
        let config = parse(json!({}), deberta()).unwrap();
        let d = &config.deberta;
        assert!(d.c2p && d.p2c && d.share_att_key && d.norm_relative && !d.absolute && !d.pooler_tanh);
        assert_eq!((d.buckets, d.max_relative, d.span(), d.embedding, config.longest()), (256, 512, 256, 8, 512));
        assert_eq!((config.eps, config.token_types), (1e-7, 0));
        // Lists are as good as bars, and without buckets the span is the longest distance.
        let config = parse(json!({"pos_att_type": ["C2P"], "position_buckets": -1}), deberta()).unwrap();
        assert!(config.deberta.c2p && !config.deberta.p2c);
        assert_eq!(config.deberta.span(), 512);
    }

    #[test]
    fn what_is_not_computed_is_refused_by_key_and_value() {
        for (base, change, says) in [
            (bert(), json!({"model_type": "gpt2"}), "model_type = \"gpt2\", expected bert, roberta"),
            (bert(), json!({"model_type": "deberta"}), "model_type = \"deberta\""),
            (bert(), json!({"hidden_act": "gelu_new"}), "hidden_act = \"gelu_new\", expected gelu"),
            (bert(), json!({"position_embedding_type": "relative_key"}), "position_embedding_type = \"relative_key\""),
            (bert(), json!({"num_attention_heads": 3}), "num_attention_heads = 3, expected a divisor"),
            (bert(), json!({"num_hidden_layers": 0}), "num_hidden_layers = 0, expected at least 1"),
            (bert(), json!({"vocab_size": "many"}), "vocab_size = \"many\", expected a whole number"),
            (bert(), json!({"vocab_size": null}), "vocab_size = null, expected a whole number"),
            (bert(), json!({"layer_norm_eps": -1}), "layer_norm_eps = -1"),
            (bert(), json!({"id2label": {"0": "a", "2": "b"}}), "id2label = "),
            (bert(), json!({"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 1, "b": 0}}), "label2id = "),
            (deberta(), json!({"pos_att_type": "c2p|p2p"}), "pos_att_type = \"c2p|p2p\""),
            (deberta(), json!({"relative_attention": false}), "pos_att_type = \"p2c|c2p\""),
            (deberta(), json!({"norm_rel_ebd": "rms"}), "norm_rel_ebd = \"rms\""),
            (deberta(), json!({"conv_kernel_size": 4}), "conv_kernel_size = 4, expected an odd number"),
            (deberta(), json!({"attention_head_size": 2}), "attention_head_size = 2"),
        ] {
            let error = parse(change.clone(), base).unwrap_err();
            assert!(error.to_string().contains(says), "{change}: {error}");
            assert!(error.hint().is_some() && error.exit_code() == 2);
        }
        let mut nothing = bert();
        nothing.as_object_mut().unwrap().remove("model_type");
        assert!(parse(json!({}), nothing).unwrap_err().to_string().contains("has no model_type"));
    }

    #[test]
    fn positions_of_roberta_and_mpnet_start_after_the_padding_token() {
        let config =
            parse(json!({"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 514}), bert()).unwrap();
        assert_eq!((config.first_position(), config.longest()), (2, 512));
        let config = parse(json!({"model_type": "mpnet", "max_position_embeddings": 514}), bert()).unwrap();
        assert_eq!((config.first_position(), config.longest(), config.token_types), (2, 512, 0));
    }
}
