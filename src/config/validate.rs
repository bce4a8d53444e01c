//! The rules a configuration must keep before any work starts.
//!
//! In: [`RunConfig`]. Out: nothing, or one error naming key, value and what is legal. Ranges of single keys come from
//! [`super::keys`]; rules that join keys, and what this build cannot do, stand here.

use std::path::Path;

use super::load::flatten;
use super::{GeneratorKind, JudgeKind, RunConfig, keys};
use crate::{Error, Result};

/// Words that are legal but need a part this version does not have, and what to take instead.
const NOT_BUILT: &[(&str, &str, &str)] = &[
    ("generate.kind", "api", "`simulated` or `recorded`"),
    ("generate.kind", "gguf", "`simulated` or `recorded`"),
    ("gates.grounding.kind", "nli", "`lexical` or `bernoulli`"),
    ("judge.kind", "api", "`none` or `recorded`"),
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
                if *name == "backend.kind" && crate::backend::cuda::BUILT {
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
        let needs_recording = [
            ("generate", self.generate.kind == GeneratorKind::Recorded, &self.generate.model),
            ("judge", self.judge.kind == JudgeKind::Recorded, &self.judge.model),
        ];
        for (section, recorded, model) in needs_recording {
            if recorded && model.is_empty() {
                return Err(Error::request(format!(
                    "{section}.kind = \"recorded\" needs {section}.model, which is empty"
                ))
                .with_hint(format!("set {section}.model to the file with the recording")));
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
    use super::super::{BackendKind, GroundingKind};
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
        let found = complaint(|c| c.generate.kind = GeneratorKind::Api);
        assert_eq!(
            found,
            "error: generate.kind = \"api\" is not built into this version\nhint: use `simulated` or `recorded`"
        );
        assert!(complaint(|c| c.generate.kind = GeneratorKind::Gguf).contains("\"gguf\" is not built"));
        assert!(complaint(|c| c.gates.grounding.kind = GroundingKind::Nli).contains("\"nli\" is not built"));
        assert!(complaint(|c| c.judge.kind = JudgeKind::Api).contains("judge.kind = \"api\" is not built"));
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
    fn a_recording_must_be_named() {
        let found = complaint(|c| c.generate.kind = GeneratorKind::Recorded);
        assert!(found.contains("generate.kind = \"recorded\" needs generate.model"), "{found}");
        let found = complaint(|c| c.judge.kind = JudgeKind::Recorded);
        assert!(found.contains("judge.kind = \"recorded\" needs judge.model"), "{found}");
    }
}
