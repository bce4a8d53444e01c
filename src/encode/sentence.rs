//! What makes an encoder a sentence encoder: pooling and length limit.
//!
//! In: the JSON files beside `config.json`, as sentence-transformers writes them. Out: a [`SentenceConfig`]; what would be computed
//! differently there is refused.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::config::{Keys, ModelConfig, read_object};
use super::source::ModelFolder;
use crate::{Error, Result};

/// How a text's vector is made of its hidden states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Mean over all tokens.
    Mean,
    /// The first token.
    Cls,
}

/// What makes an encoder a sentence encoder.
#[derive(Debug, Clone)]
pub struct SentenceConfig {
    /// Pooling.
    pub pooling: Pooling,
    /// The most tokens of a text, special tokens included.
    pub max_tokens: usize,
    /// Texts are lower-cased before they are split.
    pub lowercase: bool,
}

impl SentenceConfig {
    /// Reads `modules.json`, the pooling's `config.json` that it names and `sentence_bert_config.json`; a plain encoder, which has no
    /// `modules.json`, gets mean pooling.
    ///
    /// # Errors
    /// A cross-encoder, or a module or pooling that is not computed here.
    pub fn read(folder: &ModelFolder, config: &ModelConfig) -> Result<Self> {
        let modules = folder.path().join("modules.json");
        if !modules.is_file() && config.architecture.ends_with("ForSequenceClassification") {
            return Err(Error::request(format!(
                "{} is {}, a classifier and no sentence encoder",
                config.path.display(),
                config.architecture
            ))
            .with_hint("use a sentence encoder, for example sentence-transformers/all-mpnet-base-v2"));
        }
        let pooling_file = check_modules(&modules)?.map(|path| folder.path().join(path).join("config.json"));
        check_prompt(&folder.path().join("config_sentence_transformers.json"))?;
        let (limit, lowercase) = sentence_limits(folder)?;
        let limit = match limit {
            Some(limit) => limit,
            None => tokenizer_limit(folder)?.unwrap_or(usize::MAX),
        };
        Ok(Self {
            pooling: match pooling_file {
                Some(path) => pooling(&path, config.hidden)?,
                None => Pooling::Mean,
            },
            max_tokens: limit.min(config.longest()),
            lowercase,
        })
    }
}

/// The most tokens of a pair, special tokens included: the tokenizer's limit, within the positions there are.
pub fn pair_limit(folder: &ModelFolder, config: &ModelConfig) -> Result<usize> {
    Ok(tokenizer_limit(folder)?.unwrap_or(usize::MAX).min(config.longest()))
}

/// Refuses modules that are not computed here; normalisation is always done. Out: the folder of the pooling's settings; `None` without
/// modules.
fn check_modules(path: &Path) -> Result<Option<PathBuf>> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let modules: Vec<Value> = serde_json::from_str(&text)
        .map_err(|e| Error::request(format!("{} is not a JSON list", path.display())).with_source(e))?;
    let mut pooling = None;
    for module in &modules {
        let kind = module.get("type").and_then(Value::as_str).unwrap_or_default();
        let name = kind.rsplit('.').next().unwrap_or_default();
        if !["Transformer", "Pooling", "Normalize"].contains(&name) {
            return Err(Error::request(format!("{} asks for the module {kind:?}", path.display()))
                .with_hint("use a sentence encoder made of Transformer, Pooling and Normalize"));
        }
        if name == "Pooling" {
            let folder = Path::new(module.get("path").and_then(Value::as_str).unwrap_or_default());
            if folder.as_os_str().is_empty() || !folder.components().all(|c| matches!(c, Component::Normal(_))) {
                let place = format!("{}: the Pooling module's path {:?}", path.display(), folder.display().to_string());
                return Err(Error::request(format!("{place} is no folder of the model")).with_hint(WHOLE));
            }
            pooling = Some(folder.to_owned());
        }
    }
    if pooling.is_none() {
        return Err(Error::request(format!("{} has no Pooling module", path.display()))
            .with_hint("use a sentence encoder made of Transformer, Pooling and Normalize"));
    }
    Ok(pooling)
}

/// The cure for a folder that lost a part.
const WHOLE: &str = "get the model again with all its folders, 1_Pooling among them";

/// Refuses a prompt that would have to stand before every text.
fn check_prompt(path: &Path) -> Result<()> {
    if !path.is_file() {
        return Ok(());
    }
    let object = read_object(path)?;
    match object.get("default_prompt_name") {
        None | Some(Value::Null) => Ok(()),
        Some(name) => {
            Err(Error::request(format!("{}: default_prompt_name = {name}, which is not applied here", path.display()))
                .with_hint("use a sentence encoder without a default prompt"))
        }
    }
}

fn pooling(path: &Path, hidden: usize) -> Result<Pooling> {
    if !path.is_file() {
        return Err(
            Error::request(format!("{} is missing, and modules.json names it", path.display())).with_hint(WHOLE)
        );
    }
    let object = read_object(path)?;
    let keys = Keys { path, object: &object };
    if object.get("word_embedding_dimension").is_some_and(|d| !d.is_null() && d.as_u64() != Some(hidden as u64)) {
        return Err(keys.wrong("word_embedding_dimension", &format!("{hidden}, the encoder's width")));
    }
    if let Some(mode) = object.get("pooling_mode").filter(|m| !m.is_null()) {
        return match mode.as_str() {
            Some("mean") => Ok(Pooling::Mean),
            Some("cls") => Ok(Pooling::Cls),
            _ => Err(keys.wrong("pooling_mode", "mean or cls")),
        };
    }
    let on: Vec<&str> = object
        .iter()
        .filter(|(key, value)| key.starts_with("pooling_mode_") && value.as_bool() == Some(true))
        .map(|(key, _)| key.as_str())
        .collect();
    match on[..] {
        ["pooling_mode_mean_tokens"] => Ok(Pooling::Mean),
        ["pooling_mode_cls_token"] => Ok(Pooling::Cls),
        _ => Err(Error::request(format!(
            "{}: pooling {}, expected mean or cls alone",
            path.display(),
            if on.is_empty() { "none".to_owned() } else { on.join(" and ") }
        ))
        .with_hint("use a sentence encoder with mean or cls pooling")),
    }
}

/// `max_seq_length` and `do_lower_case` of the sentence encoder, if it says so.
fn sentence_limits(folder: &ModelFolder) -> Result<(Option<usize>, bool)> {
    for name in ["sentence_bert_config.json", "sentence_roberta_config.json", "sentence_xlm-roberta_config.json"] {
        let path = folder.path().join(name);
        if !path.is_file() {
            continue;
        }
        let object = read_object(&path)?;
        let keys = Keys { path: &path, object: &object };
        let limit = match object.get("max_seq_length") {
            None | Some(Value::Null) => None,
            Some(_) => Some(keys.number("max_seq_length", None)?),
        };
        return Ok((limit, keys.flag("do_lower_case", false)?));
    }
    Ok((None, false))
}

/// `model_max_length` of the tokenizer; files say "no limit" with 1e30.
fn tokenizer_limit(folder: &ModelFolder) -> Result<Option<usize>> {
    let path = folder.path().join("tokenizer_config.json");
    if !path.is_file() {
        return Ok(None);
    }
    let object = read_object(&path)?;
    let limit = object.get("model_max_length").and_then(Value::as_f64).filter(|limit| (1.0..1e9).contains(limit));
    Ok(limit.map(|limit| limit as usize))
}
