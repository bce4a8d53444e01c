//! The rules a configuration must keep before any work starts.
//!
//! In: [`RunConfig`]. Out: nothing, or one error naming key, value and what is legal. Ranges of single keys come from
//! [`super::keys`]; rules that join keys, and what this build cannot do, stand here.

use std::path::Path;

use super::load::flatten;
use super::{GenerateConfig, GeneratorKind, GroundingKind, JudgeKind, RunConfig, keys};
use crate::{Error, Result};

/// Words that are legal but need a part this version does not have, and what to take instead.
const NOT_BUILT: &[(&str, &str, &str)] = &[
    ("generate.kind", "gguf", "`api`, `simulated` or `recorded`, or build with --features gguf"),
    (
        "gates.grounding.kind",
        "nli",
        "`lexical` or `bernoulli`, or build with the default features, or add --features encoders",
    ),
    ("judge.kind", "gguf", "`api` or `recorded`, or build with --features gguf"),
    ("backend.kind", "cuda", "`auto` or `cpu`"),
];

impl RunConfig {
    /// Checks ranges, combinations, and that this build can do what is asked. `dataset.path` may be empty here; see
    /// [`RunConfig::dataset_path`].
    ///
    /// # Errors
    /// The first rule broken, in the order of the keys.
    pub fn validate(&self) -> Result<()> {
        let flat = flatten(self)?;
        for (name, value) in &flat {
            let key = keys::find(name).ok_or_else(|| Error::work(format!("{name} is missing in the list of keys")))?;
            if !key.accepts(value) {
                return Err(Error::request(format!("{name} = {value}, expected {}", key.expected()))
                    .with_hint(format!("{name}: {}", key.meaning)));
            }
        }
        for (name, word, instead) in NOT_BUILT {
            if flat.iter().any(|(key, value)| key == name && value.as_str() == Some(word)) {
                let built = match *word {
                    "cuda" => crate::backend::cuda::BUILT,
                    "gguf" => cfg!(feature = "gguf"),
                    "nli" => cfg!(feature = "encoders"),
                    _ => false,
                };
                if built {
                    continue;
                }
                return Err(Error::request(format!("{name} = \"{word}\" is not built into this version"))
                    .with_hint(format!("use {instead}")));
            }
        }
        if self.replay.block > self.replay.lag {
            return Err(Error::request(format!(
                "replay.block = {} is larger than replay.lag = {}",
                self.replay.block, self.replay.lag
            ))
            .with_hint(
                "a block is computed with one state of the store, so it can be no longer than the lag; 0 takes the lag",
            ));
        }
        let vectors = self.index.vectors.to_string_lossy().into_owned();
        let nli = self.gates.grounding.kind == GroundingKind::Nli;
        for (needed, name, value, what) in [
            (true, "index.encoder", &self.index.encoder, "`auto`, a model folder or a hub id"),
            (true, "index.vectors", &vectors, "a folder"),
            (nli, "gates.grounding.model", &self.gates.grounding.model, "a model folder or a hub id"),
        ] {
            if needed && value.trim().is_empty() {
                return Err(Error::request(format!("{name} is empty, expected {what}"))
                    .with_hint(keys::find(name).map_or("", |key| key.meaning)));
            }
        }
        let (g, j) = (&self.generate, &self.judge);
        let of_reader = |kind: &str| match kind {
            "recorded" => g.kind == GeneratorKind::Recorded,
            _ => g.kind == GeneratorKind::Gguf,
        };
        let files = [
            (g.kind == GeneratorKind::Recorded, "generate", "recorded", g.model.is_empty()),
            (g.kind == GeneratorKind::Gguf, "generate", "gguf", g.model.is_empty()),
            (j.kind == JudgeKind::Recorded, "judge", "recorded", j.model.is_empty() && !of_reader("recorded")),
            (j.kind == JudgeKind::Gguf, "judge", "gguf", j.model.is_empty() && !of_reader("gguf")),
        ];
        for (asked, section, kind, empty) in files {
            if asked && empty {
                let what = if kind == "recorded" { "the file with the recording" } else { "the model file" };
                return Err(Error::request(format!(
                    "{section}.kind = \"{kind}\" needs {section}.model, which is empty"
                ))
                .with_hint(format!("set {section}.model to {what}")));
            }
        }
        self.validate_endpoints()
    }

    /// What a chat endpoint needs.
    fn validate_endpoints(&self) -> Result<()> {
        let (g, j) = (&self.generate, &self.judge);
        let (reader, judge) = (g.kind == GeneratorKind::Api, j.kind == JudgeKind::Api);
        let needed = [
            (reader, "generate", "generate.base_url", g.base_url.is_empty()),
            (reader, "generate", "generate.model", g.model.is_empty()),
            (judge, "judge", "judge.base_url or generate.base_url", g.base_url.is_empty() && j.base_url.is_empty()),
            (judge, "judge", "judge.model", j.model.is_empty()),
        ];
        for (asked, section, keys, empty) in needed {
            if asked && empty {
                return Err(Error::request(format!("{section}.kind = \"api\" needs {keys}, which is empty")).with_hint(
                    "a base URL ends before /chat/completions, for example http://127.0.0.1:8000/v1; the model is named as the \
                     endpoint names it",
                ));
            }
        }
        for (name, variable, may_be_empty) in
            [("generate.api_key_env", &g.api_key_env, false), ("judge.api_key_env", &j.api_key_env, true)]
        {
            let legal = variable.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && variable.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if !(legal || may_be_empty && variable.is_empty()) {
                // Perhaps the key itself stands there, so it is not repeated.
                return Err(Error::request(format!(
                    "{name} is no name of an environment variable (its value is not shown)"
                ))
                .with_hint("it holds the variable's name, for example LIVINGRAG_API_KEY, never the key itself"));
            }
        }
        let default = GenerateConfig::default();
        for (name, price, unchanged) in [
            ("generate.usd_per_million_prompt", g.usd_per_million_prompt, default.usd_per_million_prompt),
            ("generate.usd_per_million_completion", g.usd_per_million_completion, default.usd_per_million_completion),
        ] {
            if g.kind != GeneratorKind::Simulated && price != unchanged {
                return Err(Error::request(format!("{name} = {price} is for generate.kind = \"simulated\" alone"))
                    .with_hint("write a price list like configs/prices.toml and name it in generate.prices"));
            }
        }
        Ok(())
    }

    /// The dataset folder.
    ///
    /// # Errors
    /// `dataset.path` is empty.
    pub fn dataset_path(&self) -> Result<&Path> {
        if self.dataset.path.as_os_str().is_empty() {
            return Err(Error::request("dataset.path is not set")
                .with_hint("name the dataset folder in the file, or with --set dataset.path=data/demo"));
        }
        Ok(&self.dataset.path)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::super::BackendKind;
    use super::*;

    fn complaint(change: impl FnOnce(&mut RunConfig)) -> String {
        let mut config = RunConfig::default();
        change(&mut config);
        let error = config.validate().unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.report()
    }

    #[test]
    fn the_default_is_legal_but_for_its_dataset() {
        RunConfig::default().validate().unwrap();
        let error = RunConfig::default().dataset_path().unwrap_err().report();
        assert!(error.starts_with("error: dataset.path is not set\nhint: "), "{error}");
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_range() {
        let found = complaint(|c| c.experience.alpha = 1.5);
        assert!(found.starts_with("error: experience.alpha = 1.5, expected a number from 0 to 1\nhint: "), "{found}");
        let found = complaint(|c| c.retrieve.damping = f64::NAN);
        assert!(found.contains("retrieve.damping = nan, expected a number above 0 and below 1"), "{found}");
        let found = complaint(|c| c.order = "shuffle".into());
        assert!(found.contains("order = \"shuffle\", expected `file`, `shuffle:<seed>`"), "{found}");
        let found = complaint(|c| c.seed = u64::MAX);
        assert!(found.contains("cannot be written as TOML"), "{found}");
    }

    #[test]
    fn what_is_not_built_is_said_with_what_to_take_instead() {
        if !cfg!(feature = "gguf") {
            let found = complaint(|c| c.generate.kind = GeneratorKind::Gguf);
            assert_eq!(
                found,
                "error: generate.kind = \"gguf\" is not built into this version\nhint: use `api`, `simulated` or `recorded`, or build with \
                 --features gguf"
            );
            assert!(complaint(|c| c.judge.kind = JudgeKind::Gguf).contains("judge.kind = \"gguf\" is not built"));
        }
        if !cfg!(feature = "encoders") {
            let found = complaint(|c| c.gates.grounding.kind = GroundingKind::Nli);
            assert!(found.contains("\"nli\" is not built") && found.contains("--features encoders"), "{found}");
        }
        if !crate::backend::cuda::BUILT {
            assert!(complaint(|c| c.backend.kind = BackendKind::Cuda).contains("\"cuda\" is not built"));
        }
    }

    #[test]
    fn every_word_called_not_built_is_a_listed_word() {
        for (name, word, _) in NOT_BUILT {
            let keys::Values::OneOf(words) = keys::find(name).unwrap().values else { panic!("{name}") };
            assert!(words.contains(word), "{name} = {word}");
        }
    }

    #[test]
    fn a_block_is_no_longer_than_the_lag() {
        let found = complaint(|c| c.replay.block = 17);
        assert!(found.contains("replay.block = 17 is larger than replay.lag = 16"), "{found}");
    }

    #[test]
    fn a_model_must_be_named() {
        assert!(complaint(|c| c.index.encoder = " ".into()).contains("index.encoder is empty, expected `auto`"));
        assert!(complaint(|c| c.index.vectors = "".into()).contains("index.vectors is empty, expected a folder"));
        let found = complaint(|c| {
            c.gates.grounding.kind = GroundingKind::Nli;
            c.gates.grounding.model.clear();
        });
        assert!(found.contains("gates.grounding.model is empty") || !cfg!(feature = "encoders"), "{found}");
    }

    #[test]
    fn a_recording_must_be_named() {
        let found = complaint(|c| c.generate.kind = GeneratorKind::Recorded);
        assert!(found.contains("generate.kind = \"recorded\" needs generate.model"), "{found}");
        let found = complaint(|c| c.judge.kind = JudgeKind::Recorded);
        assert!(found.contains("judge.kind = \"recorded\" needs judge.model"), "{found}");
        let mut config = RunConfig::default();
        config.generate.kind = GeneratorKind::Recorded;
        config.generate.model = "r.jsonl".into();
        config.judge.kind = JudgeKind::Recorded;
        config.validate().unwrap();
    }

    #[test]
    fn an_endpoint_needs_address_and_model() {
        let api = |c: &mut RunConfig| {
            c.generate.kind = GeneratorKind::Api;
            c.generate.base_url = "http://127.0.0.1:8000/v1".into();
            c.generate.model = "m".into();
        };
        let found = complaint(|c| c.generate.kind = GeneratorKind::Api);
        assert!(found.contains("generate.kind = \"api\" needs generate.base_url, which is empty"), "{found}");
        let found = complaint(|c| {
            api(c);
            c.generate.model.clear();
        });
        assert!(found.contains("needs generate.model"), "{found}");
        let found = complaint(|c| c.judge.kind = JudgeKind::Api);
        assert!(found.contains("judge.kind = \"api\" needs judge.base_url or generate.base_url"), "{found}");
        let found = complaint(|c| {
            api(c);
            c.judge.kind = JudgeKind::Api;
        });
        assert!(found.contains("needs judge.model"), "{found}");
        let found = complaint(|c| {
            api(c);
            c.generate.usd_per_million_prompt = 1.0;
        });
        assert!(
            found.contains("generate.usd_per_million_prompt = 1 is for generate.kind = \"simulated\" alone"),
            "{found}"
        );
        let mut config = RunConfig::default();
        api(&mut config);
        config.judge.kind = JudgeKind::Api;
        config.judge.model = "j".into();
        config.validate().unwrap();
    }

    /// A key that was put where its variable's name belongs is not repeated.
    #[test]
    fn a_key_in_place_of_its_variable_is_not_shown() {
        for change in [
            |c: &mut RunConfig| c.generate.api_key_env = "sk-secret".into(),
            |c: &mut RunConfig| c.judge.api_key_env = "sk-secret".into(),
            |c: &mut RunConfig| c.generate.api_key_env = String::new(),
        ] {
            let found = complaint(change);
            assert!(found.contains("api_key_env is no name") && !found.contains("secret"), "{found}");
        }
    }
}
