//! Where a model's files are: a folder, or the hub's cache on this machine, or the hub.
//!
//! In: a folder's path or a hub id. Out: a [`ModelFolder`] with configuration, tokenizer and weights, or one early error that
//! says what is missing and how to get it. `HF_HOME`, `HF_HUB_CACHE`, `HF_ENDPOINT` and `HF_TOKEN` mean what they mean to
//! Hugging Face's own tools; with `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` nothing is asked of the network.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use serde_json::Value;

use crate::{Error, Result};

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";
const WEIGHTS_INDEX: &str = "model.safetensors.index.json";
const MODULES: &str = "modules.json";
/// Files that change what a model computes and need not be there.
const OPTIONAL: [&str; 7] = [
    "tokenizer_config.json",
    MODULES,
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_xlm-roberta_config.json",
    "config_sentence_transformers.json",
];
/// How long the hub may take for its first answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder that holds `config.json`, `tokenizer.json` and safetensors weights, in one file or several with an index.
#[derive(Debug, Clone)]
pub struct ModelFolder {
    path: PathBuf,
    name: String,
    from_hub: bool,
}

impl ModelFolder {
    /// A folder on this machine.
    ///
    /// # Errors
    /// A file that every model needs is missing.
    pub fn open(path: &Path) -> Result<Self> {
        let found = Self { path: path.to_owned(), name: path.display().to_string(), from_hub: false };
        found.check()?;
        Ok(found)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The model's name as it was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The model's name wherever it lies: its hub id, or the last part of the folder's path.
    pub fn short_name(&self) -> String {
        if self.from_hub {
            return self.name.clone();
        }
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        path.file_name().map_or_else(|| self.name.clone(), |name| name.to_string_lossy().into_owned())
    }

    /// Whether the folder is a copy in the hub's cache, which may hold only a part of the model's files.
    pub fn is_hub_copy(&self) -> bool {
        self.from_hub
    }

    /// The weights' files, sorted; more than one where they are sharded.
    ///
    /// # Errors
    /// There is none, or the index names one that is not there.
    pub fn weight_files(&self) -> Result<Vec<PathBuf>> {
        let whole = self.path.join(WEIGHTS);
        if whole.is_file() {
            return Ok(vec![whole]);
        }
        let index = self.path.join(WEIGHTS_INDEX);
        if !index.is_file() {
            let other = ["pytorch_model.bin", "tf_model.h5", "flax_model.msgpack"];
            let other = other.iter().find(|name| self.path.join(name).is_file());
            return Err(match other {
                Some(name) => {
                    Error::request(format!("{} holds {name} but no {WEIGHTS}", self.path.display())).with_hint(
                        "save it anew with Hugging Face transformers: `model.save_pretrained(folder, safe_serialization=True)`",
                    )
                }
                None => self.lacks(WEIGHTS),
            });
        }
        let mut files = Vec::new();
        for name in shards(&index)? {
            let file = self.path.join(&name);
            if !file.is_file() {
                return Err(self.lacks(&name));
            }
            files.push(file);
        }
        Ok(files)
    }

    /// Hash of every file that decides what the model computes: 64 hexadecimal digits of BLAKE3.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn fingerprint(&self) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        let names = [CONFIG, TOKENIZER].into_iter().chain(OPTIONAL);
        let mut files: Vec<PathBuf> = names.map(|name| self.path.join(name)).filter(|file| file.is_file()).collect();
        files.extend(self.weight_files()?);
        for path in files {
            let mut file = fs::File::open(&path).map_err(|e| Error::io("read", &path, e))?;
            let size = file.metadata().map_err(|e| Error::io("read", &path, e))?.len();
            let name = path.strip_prefix(&self.path).unwrap_or(&path).to_string_lossy().into_owned();
            hasher.update(format!("{name}\0{size}\0").as_bytes());
            std::io::copy(&mut file, &mut hasher).map_err(|e| Error::io("read", &path, e))?;
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Whether everything is there that every model needs.
    fn check(&self) -> Result<()> {
        if !self.path.join(CONFIG).is_file() {
            return Err(self.lacks(CONFIG));
        }
        // A cached copy may be of a tool that left out what only sentence encoders need; without it the length limit is another.
        if self.from_hub && self.name.starts_with("sentence-transformers/") && !self.path.join(MODULES).is_file() {
            return Err(self.lacks(MODULES));
        }
        if !self.path.join(TOKENIZER).is_file() {
            return Err(self.lacks(TOKENIZER).with_hint(format!(
                "make it from the model's other tokenizer files with Hugging Face transformers: \
                 `AutoTokenizer.from_pretrained({:?}).save_pretrained(folder)`",
                self.name
            )));
        }
        self.weight_files().map(drop)
    }

    fn lacks(&self, name: &str) -> Error {
        let error = Error::request(format!("model folder {} has no {name}", self.path.display()));
        if self.from_hub {
            error.with_hint(format!("the copy is incomplete: `{}`", command(&self.name)))
        } else {
            error.with_hint("a model folder holds config.json, tokenizer.json and model.safetensors, as Hugging Face transformers saves them")
        }
    }
}

/// Shard names of an index, sorted, each once.
fn shards(index: &Path) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(index).map_err(|e| Error::io("read", index, e))?;
    let bad = || Error::request(format!("{} has no weight_map from tensors to files", index.display()));
    let value: Value = serde_json::from_str(&text).map_err(|e| bad().with_source(e))?;
    let map = value.get("weight_map").and_then(Value::as_object).ok_or_else(bad)?;
    map.values()
        .map(|file| {
            file.as_str().filter(|f| !f.is_empty() && !f.contains(['/', '\\'])).map(str::to_owned).ok_or_else(bad)
        })
        .collect()
}

/// What is known of a model without asking the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A folder on this machine.
    Folder(PathBuf),
    /// A copy in the hub's cache.
    Cached(PathBuf),
    /// Neither; the command gets it.
    Missing {
        /// A shell command.
        command: String,
    },
}

/// Looks for a model without asking the network.
pub fn look(name: &str) -> Found {
    Hub::from_env().look(name)
}

/// Finds a model: an existing folder, or a hub id in the hub's cache, or from the hub unless offline.
///
/// # Errors
/// It is nowhere, incomplete, or the hub does not answer; with the command that gets it.
pub fn locate(name: &str) -> Result<ModelFolder> {
    Hub::from_env().locate(name)
}

/// The hub as the environment describes it.
#[derive(Clone)]
struct Hub {
    cache: PathBuf,
    endpoint: String,
    offline: bool,
    token: Option<String>,
    patience: Duration,
}

impl Hub {
    fn from_env() -> Self {
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let home = path("HF_HOME").unwrap_or_else(|| {
            let caches = path("XDG_CACHE_HOME").or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
            caches.unwrap_or_else(|| PathBuf::from(".cache")).join("huggingface")
        });
        let yes = |name: &str| {
            text(name).is_some_and(|v| ["1", "on", "yes", "true"].contains(&v.trim().to_lowercase().as_str()))
        };
        Self {
            cache: path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE")).unwrap_or_else(|| home.join("hub")),
            endpoint: text("HF_ENDPOINT")
                .map_or_else(|| "https://huggingface.co".to_owned(), |e| e.trim().trim_end_matches('/').to_owned()),
            offline: yes("HF_HUB_OFFLINE") || yes("TRANSFORMERS_OFFLINE"),
            token: text("HF_TOKEN")
                .or_else(|| fs::read_to_string(home.join("token")).ok())
                .map(|token| token.trim().to_owned())
                .filter(|token| !token.is_empty()),
            patience: PATIENCE,
        }
    }

    fn look(&self, name: &str) -> Found {
        if Path::new(name).is_dir() {
            return Found::Folder(PathBuf::from(name));
        }
        let id = hub_id(name).unwrap_or_else(|| name.to_owned());
        match self.cached(&id) {
            Some(folder) if folder.check().is_ok() => Found::Cached(folder.path),
            _ => Found::Missing { command: command(&id) },
        }
    }

    fn locate(&self, name: &str) -> Result<ModelFolder> {
        let path = Path::new(name);
        if path.is_dir() {
            return ModelFolder::open(path);
        }
        if path.exists() {
            return Err(Error::request(format!("model {name} is a file, and a model is a folder"))
                .with_hint("give the folder that holds config.json, tokenizer.json and model.safetensors"));
        }
        let Some(id) = hub_id(name) else {
            return Err(Error::request(format!("there is no model folder {name}"))
                .with_hint("give a folder that exists, or a hub id such as sentence-transformers/all-mpnet-base-v2"));
        };
        if let Some(folder) = self.cached(&id).filter(|folder| folder.check().is_ok()) {
            return Ok(folder);
        }
        if self.offline {
            let what = match self.cached(&id).map(|folder| folder.check()) {
                Some(Err(error)) => format!("the hub's cache holds only a part of model {id}: {error}"),
                _ => {
                    format!("there is no folder {name}, and the hub's cache {} has no model {id}", self.cache.display())
                }
            };
            return Err(Error::request(format!("{what}; offline mode is on"))
                .with_hint(format!("run `{}` where there is a network, or give the model's folder", command(&id))));
        }
        self.download(&id)?;
        let folder =
            self.cached(&id).ok_or_else(|| Error::work(format!("the hub's copy of {id} is not in its cache")))?;
        folder.check()?;
        Ok(folder)
    }

    /// The model's snapshot in the cache, complete or not.
    fn cached(&self, id: &str) -> Option<ModelFolder> {
        let repository = self.cache.join(format!("models--{}", id.replace('/', "--")));
        let commit = fs::read_to_string(repository.join("refs/main")).ok()?;
        let path = repository.join("snapshots").join(commit.trim());
        path.is_dir().then(|| ModelFolder { path, name: id.to_owned(), from_hub: true })
    }

    fn api(&self, id: &str) -> Result<ApiRepo> {
        let api = ApiBuilder::new()
            .with_cache_dir(self.cache.clone())
            .with_endpoint(self.endpoint.clone())
            .with_token(self.token.clone())
            .with_progress(false)
            .build();
        Ok(api.map_err(|e| self.gave_up(id, &e.to_string()))?.model(id.to_owned()))
    }

    /// Gets every file that is not in the cache yet; the weights come last.
    fn download(&self, id: &str) -> Result<()> {
        self.first_answer(id)?;
        let model = self.api(id)?;
        for name in OPTIONAL {
            self.get(id, &model, name)?;
        }
        if !self.get(id, &model, TOKENIZER)? {
            return Err(Error::request(format!("model {id} of {} has no {TOKENIZER}", self.endpoint)).with_hint(
                "make a folder of it with Hugging Face transformers, `AutoTokenizer.from_pretrained(id).save_pretrained(folder)` and the \
                 same for its model, and give that folder",
            ));
        }
        if self.get(id, &model, WEIGHTS)? {
            return Ok(());
        }
        if !self.get(id, &model, WEIGHTS_INDEX)? {
            return Err(Error::request(format!("model {id} of {} has no {WEIGHTS}", self.endpoint))
                .with_hint("use a model with safetensors weights"));
        }
        let index = self.cached(id).map(|folder| folder.path.join(WEIGHTS_INDEX)).unwrap_or_default();
        for name in shards(&index)? {
            if !self.get(id, &model, &name)? {
                return Err(Error::request(format!(
                    "model {id} of {} has no {name}, which its index names",
                    self.endpoint
                )));
            }
        }
        Ok(())
    }

    /// `config.json`, within a bounded time: a hub that cannot be reached must not hold up a command for long.
    fn first_answer(&self, id: &str) -> Result<()> {
        let (send, receive) = mpsc::channel();
        let (hub, name, model) = (self.clone(), id.to_owned(), self.api(id)?);
        // A request has no time limit of its own; the thread of one that never ends is left to the end of the process.
        // Nobody listens once the time is up.
        std::thread::Builder::new()
            .name("hub".into())
            .spawn(move || drop(send.send(hub.get(&name, &model, CONFIG))))
            .map_err(|e| Error::work("cannot start a thread").with_source(e))?;
        match receive.recv_timeout(self.patience) {
            Ok(answer) => match answer? {
                true => Ok(()),
                false => Err(Error::request(format!(
                    "{id} is neither a folder nor a model with a {CONFIG} on {}",
                    self.endpoint
                ))
                .with_hint("check the spelling; a private model needs HF_TOKEN; or give the model's folder")),
            },
            Err(_) => Err(self.gave_up(id, &format!("no answer within {} s", self.patience.as_secs()))),
        }
    }

    /// Whether the file is there now; `false` when the hub has no such file.
    fn get(&self, id: &str, model: &ApiRepo, name: &str) -> Result<bool> {
        match model.get(name) {
            Ok(_) => Ok(true),
            Err(ApiError::RequestError(e)) if ["401", "403", "404"].iter().any(|s| e.to_string().ends_with(s)) => {
                Ok(false)
            }
            Err(e) => Err(self.gave_up(id, &format!("{name}: {e}"))),
        }
    }

    fn gave_up(&self, id: &str, why: &str) -> Error {
        Error::work(format!("there is no folder {id}, and {} did not give the model: {why}", self.endpoint))
            .with_hint(format!("run `{}` where there is a network, or give the model's folder", command(id)))
    }
}

/// The hub id a name stands for, if it can be one; a name without an owner is one of sentence-transformers.
fn hub_id(name: &str) -> Option<String> {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && part.len() <= 96
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    match name.split('/').collect::<Vec<_>>()[..] {
        [model] if part(model) => Some(format!("sentence-transformers/{model}")),
        [owner, model] if part(owner) && part(model) => Some(name.to_owned()),
        _ => None,
    }
}

/// The command that gets a model into the hub's cache.
fn command(id: &str) -> String {
    format!("hf download {id}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
