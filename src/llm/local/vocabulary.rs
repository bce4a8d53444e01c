//! The vocabulary of a GGUF file, or a `tokenizer.json` beside it.
//!
//! In: the file's metadata. Out: tokens of a prompt and text of an answer. Special tokens in a text are text.

use std::path::Path;

use candle_core::quantized::gguf_file::Content;
use candle_core::quantized::tokenizer::TokenizerFromGguf;
use tokenizers::Tokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use super::template::{Piece, Template};
use super::{number, text};

/// Where Llama 3 cuts a text before byte pairs are merged; published in the tokenizer.json of its models.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Text to tokens and back.
pub(super) struct Vocabulary {
    tokenizer: Tokenizer,
    specials: Vec<(&'static str, u32)>,
    ends: Vec<u32>,
}

impl Vocabulary {
    /// Of the file, or of `json` where that is not empty.
    pub fn of(content: &Content, json: &Path, template: Template) -> Result<Self, String> {
        let mut tokenizer = match json.as_os_str().is_empty() {
            true => built_in(content)?,
            false => Tokenizer::from_file(json).map_err(|e| format!("{} is no tokenizer: {e}", json.display()))?,
        };
        tokenizer.with_truncation(None).map_err(|e| e.to_string())?.with_padding(None);
        tokenizer.set_encode_special_tokens(true);
        let id = |token: &'static str| match tokenizer.token_to_id(token) {
            Some(id) => Ok((token, id)),
            None => Err(format!("its vocabulary lacks {token}, which its chat template needs")),
        };
        let specials = template.specials().iter().map(|token| id(token)).collect::<Result<Vec<_>, _>>()?;
        let written = number(content, "tokenizer.ggml.eos_token_id").and_then(|n| u32::try_from(n).ok());
        let ends = [template.end(), "<|endoftext|>", "<|end_of_text|>"];
        let mut ends: Vec<u32> = ends.iter().filter_map(|token| tokenizer.token_to_id(token)).chain(written).collect();
        ends.sort_unstable();
        ends.dedup();
        Ok(Self { tokenizer, specials, ends })
    }

    /// Tokens of a prompt.
    pub fn encode(&self, pieces: &[Piece]) -> Result<Vec<u32>, String> {
        let mut tokens = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Special(token) => {
                    tokens.extend(self.specials.iter().filter(|(t, _)| t == token).map(|(_, id)| *id))
                }
                Piece::Text(text) => {
                    let encoding = self.tokenizer.encode(text.as_str(), false).map_err(|e| e.to_string())?;
                    tokens.extend_from_slice(encoding.get_ids());
                }
            }
        }
        Ok(tokens)
    }

    /// Text of an answer, without special tokens.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        self.tokenizer.decode(tokens, true).map_err(|e| e.to_string())
    }

    /// Whether the token ends an answer.
    pub fn is_end(&self, token: u32) -> bool {
        self.ends.contains(&token)
    }
}

/// The file's own vocabulary, cut as its publisher cuts: candle reads the merges, and knows one of the ways by name.
fn built_in(content: &Content) -> Result<Tokenizer, String> {
    let mut tokenizer = Tokenizer::from_gguf(content).map_err(|e| format!("its vocabulary is not known here: {e}"))?;
    let bytes = |regex| ByteLevel::new(false, true, regex);
    let cut = text(content, "tokenizer.ggml.pre").unwrap_or_else(|| "gpt-2".into());
    let pieces: Vec<tokenizers::PreTokenizerWrapper> = match cut.as_str() {
        "qwen2" => return Ok(tokenizer),
        "llama-bpe" | "llama3" | "llama-v3" => {
            let split = Split::new(SplitPattern::Regex(LLAMA3.into()), SplitDelimiterBehavior::Isolated, false);
            vec![split.map_err(|e| e.to_string())?.into(), bytes(false).into()]
        }
        "smollm" | "starcoder" | "refact" => vec![Digits::new(true).into(), bytes(true).into()],
        "gpt-2" | "default" => vec![bytes(true).into()],
        other => return Err(format!("its vocabulary cuts a text in a way that is not known here: {other:?}")),
    };
    tokenizer.with_pre_tokenizer(Some(Sequence::new(pieces)));
    Ok(tokenizer)
}
