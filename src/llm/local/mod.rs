//! A chat model in this process: a GGUF file of the llama or qwen2 family, run by candle on the CPU.
//!
//! In: the body of a chat request, as an endpoint would get it. Out: the body of a reply, as an endpoint would give it, so that cache,
//! ledger and parsing are those of every other model. Its address is the fingerprint of its files. One request runs at a time.

mod sample;
mod template;
mod vocabulary;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use candle_core::quantized::gguf_file::{Content, Value as Metadata};
use candle_core::{Device, Tensor};
use candle_transformers::models::{quantized_llama, quantized_qwen2};
use serde_json::{Value, json};

use super::chat::{FailureKind, LOCAL_SCHEME};
use super::locked;
use super::transport::{HttpReply, Transport};
use crate::{Error, Result};
use sample::Sampler;
use template::Template;
use vocabulary::Vocabulary;

/// Prompt tokens that run at once; what is left over runs in a multiple of 32 and a rest, so that the model keeps few different masks.
const CHUNK: usize = 512;
/// See [`CHUNK`].
const STEP: usize = 32;

enum Weights {
    Llama(Box<quantized_llama::ModelWeights>),
    Qwen2(Box<quantized_qwen2::ModelWeights>),
}

/// A model that was read.
pub struct LocalModel {
    name: String,
    fingerprint: String,
    template: Template,
    vocabulary: Vocabulary,
    /// Tokens of prompt and answer together.
    context: usize,
    weights: Mutex<Weights>,
}

/// What a request asks for.
struct Asked {
    tokens: Vec<u32>,
    max_tokens: usize,
    temperature: f64,
    seed: u64,
}

/// What was generated.
struct Said {
    text: String,
    tokens: usize,
    finish_reason: &'static str,
}

impl LocalModel {
    /// Reads a model. `tokenizer` is a `tokenizer.json` to take in place of the file's own vocabulary; empty takes that.
    ///
    /// # Errors
    /// A file that is no GGUF, a family, vocabulary or chat template that is not known here.
    pub fn open(path: &Path, tokenizer: &Path) -> Result<Self> {
        let mut hasher = blake3::Hasher::new();
        for file in [path, tokenizer].into_iter().filter(|p| !p.as_os_str().is_empty()) {
            let opened = File::open(file).map_err(|e| Error::io("open the model file", file, e))?;
            hasher.update_reader(opened).map_err(|e| Error::io("read", file, e))?;
        }
        let failed = |e: candle_core::Error| unreadable(path, &e.to_string());
        let mut reader = BufReader::new(File::open(path).map_err(|e| Error::io("open the model file", path, e))?);
        let content = Content::read(&mut reader).map_err(failed)?;
        let family = text(&content, "general.architecture").unwrap_or_default();
        if !matches!(family.as_str(), "llama" | "qwen2") {
            return Err(unreadable(
                path,
                &format!("its architecture is {family:?}, known are \"llama\" and \"qwen2\""),
            ));
        }
        let template = Template::of(&text(&content, "tokenizer.chat_template").unwrap_or_default())
            .map_err(|what| unreadable(path, &what))?;
        let vocabulary = Vocabulary::of(&content, tokenizer, template).map_err(|what| {
            unreadable(path, &what).with_hint(
                "name the model's tokenizer.json in generate.tokenizer, or serve the model and use kind = \"api\"",
            )
        })?;
        let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = text(&content, "general.name").filter(|name| !name.is_empty()).unwrap_or_else(stem);
        let written = number(&content, &format!("{family}.context_length")).unwrap_or(2048);
        let (context, weights) = match family.as_str() {
            "llama" => {
                let weights =
                    quantized_llama::ModelWeights::from_gguf(content, &mut reader, &Device::Cpu).map_err(failed)?;
                (written.min(quantized_llama::MAX_SEQ_LEN), Weights::Llama(Box::new(weights)))
            }
            _ => {
                let weights =
                    quantized_qwen2::ModelWeights::from_gguf(content, &mut reader, &Device::Cpu).map_err(failed)?;
                (written, Weights::Qwen2(Box::new(weights)))
            }
        };
        Ok(Self {
            name,
            fingerprint: hasher.finalize().to_hex().to_string(),
            template,
            vocabulary,
            context,
            weights: Mutex::new(weights),
        })
    }

    /// Where its answers are kept under: the fingerprint of its files.
    pub fn address(&self) -> String {
        format!("{LOCAL_SCHEME}://{}", self.fingerprint)
    }

    /// What its publisher calls it; without that the file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What carries requests to it.
    pub(super) fn transport(self: &Arc<Self>) -> Box<dyn Transport> {
        Box::new(ToLocal(Arc::clone(self)))
    }

    /// Reads a request's body.
    fn asked(&self, body: &str) -> std::result::Result<Asked, String> {
        let value: Value = serde_json::from_str(body).map_err(|e| e.to_string())?;
        let messages: Vec<(&str, &str)> = value["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|m| Some((m["role"].as_str()?, m["content"].as_str()?)))
            .collect();
        let tokens = self.vocabulary.encode(&self.template.pieces(&messages))?;
        if tokens.len() >= self.context {
            return Err(format!(
                "the prompt has {} tokens, the model holds {} with its answer: set generate.passage_budget",
                tokens.len(),
                self.context
            ));
        }
        let count = |field: &str| value[field].as_u64();
        Ok(Asked {
            max_tokens: usize::try_from(count("max_tokens").unwrap_or(0))
                .unwrap_or(usize::MAX)
                .min(self.context - tokens.len()),
            tokens,
            temperature: value["temperature"].as_f64().unwrap_or(0.0),
            seed: count("seed").unwrap_or(0),
        })
    }

    /// Token by token, until the model ends its answer or may say no more.
    fn generate(&self, asked: &Asked) -> std::result::Result<Said, String> {
        let failed = |e: candle_core::Error| e.to_string();
        let mut weights = locked(&self.weights);
        let mut sampler = Sampler::new(asked.temperature, asked.seed, &asked.tokens);
        let (mut position, mut logits) = (0, None);
        for length in chunks(asked.tokens.len()) {
            logits = Some(weights.forward(&asked.tokens[position..position + length], position).map_err(failed)?);
            position += length;
        }
        let mut said: Vec<u32> = Vec::new();
        let mut generated = 0;
        let mut finish_reason = "length";
        while generated < asked.max_tokens {
            let scores = logits.take().ok_or("the prompt is empty")?;
            let next = sampler.next(&scores.flatten_all().and_then(|t| t.to_vec1::<f32>()).map_err(failed)?)?;
            generated += 1;
            if self.vocabulary.is_end(next) {
                finish_reason = "stop";
                break;
            }
            said.push(next);
            if generated < asked.max_tokens {
                logits = Some(weights.forward(&[next], position).map_err(failed)?);
                position += 1;
            }
        }
        Ok(Said { text: self.vocabulary.decode(&said)?, tokens: generated, finish_reason })
    }
}

impl Weights {
    /// Scores of the next token after `tokens`, which stand at `position`.
    fn forward(&mut self, tokens: &[u32], position: usize) -> candle_core::Result<Tensor> {
        let input = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
        match self {
            Self::Llama(weights) => weights.forward(&input, position),
            Self::Qwen2(weights) => weights.forward(&input, position),
        }
    }
}

/// Lengths that a prompt of `n` tokens runs in.
fn chunks(n: usize) -> Vec<usize> {
    let rest = n % CHUNK;
    let parts = std::iter::repeat_n(CHUNK, n / CHUNK).chain([rest / STEP * STEP, rest % STEP]);
    parts.filter(|length| *length > 0).collect()
}

/// Carries requests to a model in this process.
struct ToLocal(Arc<LocalModel>);

impl Transport for ToLocal {
    fn post(&self, _url: &str, body: &str) -> std::result::Result<HttpReply, (FailureKind, String)> {
        let refused = |text: String| (FailureKind::Refused, text);
        let asked = self.0.asked(body).map_err(refused)?;
        let said = self.0.generate(&asked).map_err(refused)?;
        let reply = json!({
            "choices": [{"message": {"role": "assistant", "content": said.text}, "finish_reason": said.finish_reason}],
            "usage": {"prompt_tokens": asked.tokens.len(), "completion_tokens": said.tokens},
        });
        Ok(HttpReply { status: 200, body: reply.to_string(), ..HttpReply::default() })
    }

    fn redact(&self, text: &str) -> String {
        text.to_owned()
    }
}

fn text(content: &Content, key: &str) -> Option<String> {
    content.metadata.get(key)?.to_string().ok().cloned()
}

fn number(content: &Content, key: &str) -> Option<usize> {
    let value = match content.metadata.get(key)? {
        Metadata::U64(n) => *n,
        other => u64::from(other.to_u32().ok()?),
    };
    usize::try_from(value).ok()
}

fn unreadable(path: &Path, what: &str) -> Error {
    let path: PathBuf = path.to_owned();
    Error::request(format!("the model file {} cannot be used: {what}", path.display()))
        .with_hint("serve the model and use kind = \"api\", or take another file")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_runs_in_few_different_lengths() {
        assert_eq!(chunks(1), [1]);
        assert_eq!(chunks(32), [32]);
        assert_eq!(chunks(371), [352, 19]);
        assert_eq!(chunks(512), [512]);
        assert_eq!(chunks(1100), [512, 512, 64, 12]);
        assert!(chunks(0).is_empty());
    }

    #[test]
    fn a_file_that_is_no_model_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.gguf");
        let said = |path: &Path| LocalModel::open(path, Path::new("")).err().unwrap().report();
        assert!(said(&path).contains("x.gguf"));
        std::fs::write(&path, "GGUF, but no more than the name of it").unwrap();
        assert!(said(&path).contains("x.gguf cannot be used: "), "{}", said(&path));
    }
}
