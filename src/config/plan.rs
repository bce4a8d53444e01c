//! A configuration that has been checked, resolved and named.
//!
//! In: [`RunConfig`] and the identity of its dataset. Out: [`RunPlan`] with its run id, and `plan.toml`, which loads back as
//! a configuration.

use std::path::Path;

use super::load::flatten;
use super::{BackendKind, GeneratorKind, JudgeKind, RunConfig};
use crate::{Error, Result};

/// Keys that never change a row, so they take no part in the run id. `dataset.path` stands here because the dataset's name
/// and fingerprint take its place, `generate.prices` because the prices themselves do, `gates.grounding.model` because the model's
/// fingerprint and precision do, `index.encoder` because the index's fingerprint does, other files because their contents do.
pub(crate) const NOT_IN_THE_ID: [&str; 25] = [
    "backend.threads",
    "dataset.path",
    "gates.grounding.cache",
    "gates.grounding.model",
    "gates.grounding.precision",
    "generate.api_key_env",
    "generate.cache",
    "generate.cache_mode",
    "generate.concurrency",
    "generate.max_calls",
    "generate.max_tries",
    "generate.max_usd",
    "generate.prices",
    "generate.probe_tokens",
    "generate.prompt",
    "generate.retry_budget",
    "generate.timeout_s",
    "generate.tokenizer",
    "index.encoder",
    "index.path",
    "index.vectors",
    "judge.api_key_env",
    "judge.prompt",
    "replay.block",
    "replay.timings",
];

/// What will run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPlan {
    /// Checked; as it was asked for.
    pub config: RunConfig,
    /// Readable prefix and hash: equal plans on equal data have equal ids, wherever the data lie.
    pub run_id: String,
    /// The dataset's name.
    pub dataset: String,
    /// The dataset's fingerprint.
    pub fingerprint: String,
}

impl RunConfig {
    /// Checks and resolves this configuration for the dataset of this name and fingerprint.
    ///
    /// # Errors
    /// As [`RunConfig::validate`].
    pub fn plan(&self, dataset: &str, fingerprint: &str) -> Result<RunPlan> {
        self.validate()?;
        // `auto` and what it comes to without a GPU are one run; the plan keeps what was asked for.
        let mut resolved = self.clone();
        if resolved.backend.kind == BackendKind::Auto {
            resolved.backend.kind = BackendKind::Cpu;
        }
        let run_id = run_id(&resolved, dataset, fingerprint)?;
        Ok(RunPlan { config: self.clone(), run_id, dataset: dataset.to_owned(), fingerprint: fingerprint.to_owned() })
    }
}

impl RunPlan {
    /// The text of `plan.toml`.
    ///
    /// # Errors
    /// The configuration cannot be written as TOML (a path that is not UTF-8).
    pub fn to_toml(&self) -> Result<String> {
        let body = toml::to_string(&self.config)
            .map_err(|e| Error::request("the configuration cannot be written as TOML").with_source(e))?;
        // Quoted as TOML strings, so that no name can break out of its comment.
        let quoted = |text: &str| toml::Value::String(text.replace(['\n', '\r'], " ")).to_string();
        Ok(format!(
            "# The resolved plan of one run; it loads again as a configuration.\n\
             # run_id = {}\n# dataset = {}\n# fingerprint = {}\n# livingrag = \"{}\"\n\n{body}",
            quoted(&self.run_id),
            quoted(&self.dataset),
            quoted(&self.fingerprint),
            env!("CARGO_PKG_VERSION"),
        ))
    }

    /// Writes `plan.toml` into `folder`; the file appears by rename only.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let (partial, path) = (folder.join("plan.toml.partial"), folder.join("plan.toml"));
        std::fs::write(&partial, self.to_toml()?).map_err(|e| Error::io("write", &partial, e))?;
        std::fs::rename(&partial, &path).map_err(|e| Error::io("write", &path, e))
    }
}

/// `<dataset>-<method>-<order>-s<seed>-` and 12 hex digits of blake3 over [`canonical`].
fn run_id(config: &RunConfig, dataset: &str, fingerprint: &str) -> Result<String> {
    let hash = blake3::hash(canonical(config, dataset, fingerprint)?.as_bytes()).to_hex();
    let (name, order) = (file_name(dataset), config.order.replace(':', ""));
    Ok(format!("{name}-{}-{order}-s{}-{}", config.method.as_str(), config.seed, &hash[..12]))
}

/// What is hashed: a line a key that can change a row, sorted by key, then the dataset. Sorted, so that moving a field in
/// the source changes no id.
fn canonical(config: &RunConfig, dataset: &str, fingerprint: &str) -> Result<String> {
    let mut config = config.clone();
    // Models that are files are known by their contents, which the fingerprint covers.
    if matches!(config.generate.kind, GeneratorKind::Recorded | GeneratorKind::Gguf) {
        config.generate.model.clear();
    }
    if matches!(config.judge.kind, JudgeKind::Recorded | JudgeKind::Gguf) {
        config.judge.model.clear();
    }
    let mut lines: Vec<_> = flatten(&config)?
        .into_iter()
        .filter(|(name, _)| !NOT_IN_THE_ID.contains(&name.as_str()))
        .map(|(name, value)| format!("{name} = {value}\n"))
        .collect();
    lines.push(format!("dataset.name = {dataset:?}\n"));
    lines.push(format!("dataset.fingerprint = {fingerprint:?}\n"));
    lines.sort();
    Ok(lines.concat())
}

/// `name` with everything but ASCII letters, digits, `_` and `.` replaced by `_`; never empty, never hidden.
fn file_name(name: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') { c } else { '_' }).collect();
    match safe.trim_start_matches('.') {
        "" => "dataset".into(),
        rest => rest.into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn id(change: impl FnOnce(&mut RunConfig)) -> String {
        let mut config = RunConfig::default();
        change(&mut config);
        config.plan("demo", "f00d").unwrap().run_id
    }

    #[test]
    fn the_id_reads_as_dataset_method_order_and_seed() {
        let found = id(|c| {
            c.order = "shuffle:7".into();
            c.seed = 3;
        });
        let (prefix, hash) = found.rsplit_once('-').unwrap();
        assert_eq!(prefix, "demo-living-shuffle7-s3");
        assert!(hash.len() == 12 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{hash}");
    }

    #[test]
    fn keys_that_never_change_a_row_do_not_change_the_id() {
        let plain = id(|_| ());
        let other = id(|c| {
            c.backend.threads = 3;
            c.backend.kind = BackendKind::Cpu;
            c.dataset.path = "elsewhere".into();
            c.index.path = "there".into();
            c.index.encoder = "models/mine".into();
            c.index.vectors = "elsewhere".into();
            c.gates.grounding.cache = "elsewhere.sqlite".into();
            c.gates.grounding.model = "models/other".into();
            c.gates.grounding.precision = super::super::PrecisionKind::Bf16;
            c.replay.block = 1;
            c.replay.timings = false;
            c.generate.api_key_env = "KEY".into();
            c.generate.cache = "elsewhere.sqlite".into();
            c.generate.cache_mode = super::super::CacheMode::Only;
            c.generate.concurrency = 3;
            c.generate.max_calls = 7;
            c.generate.max_tries = 1;
            c.generate.max_usd = 2.5;
            c.generate.prices = "prices.toml".into();
            c.generate.prompt = "prompt.toml".into();
            c.generate.tokenizer = "tokenizer.json".into();
            c.judge.prompt = "judge.toml".into();
            c.generate.probe_tokens = 0;
            c.generate.retry_budget = 1;
            c.generate.timeout_s = 9;
            c.judge.api_key_env = "OTHER_KEY".into();
        });
        assert_eq!(plain, other);
    }

    #[test]
    fn every_other_key_and_the_data_change_the_id() {
        let plain = id(|_| ());
        assert_ne!(plain, id(|c| c.experience.alpha = 0.61));
        assert_ne!(plain, id(|c| c.replay.limit = 10));
        assert_ne!(plain, id(|c| c.generate.stream = true));
        assert_ne!(plain, id(|c| c.judge.repeats = 3));
        assert_ne!(plain, id(|c| c.gates.grounding.window = 3));
        assert_ne!(plain, id(|c| c.index.annotations = super::super::AnnotationSource::None));
        assert_ne!(plain, RunConfig::default().plan("demo", "beef").unwrap().run_id);
        assert_ne!(plain, RunConfig::default().plan("demo2", "f00d").unwrap().run_id);
    }

    #[test]
    fn a_model_that_is_a_file_is_known_by_its_contents() {
        let recorded = |path: &str| {
            id(|c| {
                c.generate.kind = GeneratorKind::Recorded;
                c.generate.model = path.into();
                c.judge.kind = JudgeKind::Recorded;
                c.judge.model = path.into();
            })
        };
        assert_eq!(recorded("a.jsonl"), recorded("elsewhere/a.jsonl"));
        let api = |name: &str| {
            id(|c| {
                c.generate.kind = GeneratorKind::Api;
                c.generate.base_url = "http://h/v1".into();
                c.generate.model = name.into();
            })
        };
        assert_ne!(api("a"), api("b"));
    }

    #[test]
    fn the_hashed_text_has_a_line_a_key() {
        let text = canonical(&RunConfig::default(), "a\nb", "f").unwrap();
        assert_eq!(text.lines().count(), super::super::keys::KEYS.len() - NOT_IN_THE_ID.len() + 2);
        assert!(text.contains("experience.alpha = 0.6\n") && text.contains("dataset.name = \"a\\nb\"\n"), "{text}");
    }

    #[test]
    fn a_dataset_name_is_safe_in_a_folder_name() {
        assert_eq!(file_name("2wiki/../Märchen a"), "2wiki_.._M_rchen_a");
        assert_eq!(file_name(".."), "dataset");
        assert_eq!(file_name(""), "dataset");
    }

    #[test]
    fn plan_toml_loads_back_as_the_same_plan() {
        let mut config = RunConfig::default();
        config.experience.alpha = 0.1 + 0.2;
        config.dataset.path = "data/a \"b\" ü".into();
        let plan = config.plan("x\n[evil]", "f00d").unwrap();
        let folder = tempfile::tempdir().unwrap();
        plan.write(folder.path()).unwrap();
        let path = folder.path().join("plan.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(&format!("# run_id = \"{}\"\n", plan.run_id)), "{text}");
        let again = RunConfig::load(&path, &[]).unwrap();
        assert_eq!(again, plan.config);
        assert_eq!(again.plan("x\n[evil]", "f00d").unwrap(), plan);
        assert!(!folder.path().join("plan.toml.partial").exists());
    }
}
