//! Documents made from the list of keys: `configs/default.toml` and `docs/configuration.md`.
//!
//! In: [`KEYS`] and [`RunConfig::default`]. Out: two texts. A test fails when a committed copy is stale and names the
//! command that refreshes it.

use std::fmt::Write;

use super::RunConfig;
use super::keys::{KEYS, Key};
use super::load::flatten;
use crate::Result;

/// Each key with its default as it would be typed, in the order of the file.
fn keys_with_defaults() -> Result<Vec<(&'static Key, String)>> {
    let defaults = flatten(&RunConfig::default())?;
    let default = |key: &Key| defaults.iter().find(|(name, _)| name == key.name).map(|(_, value)| value.to_string());
    Ok(KEYS.iter().map(|key| (key, default(key).unwrap_or_default())).collect())
}

/// The text of `configs/default.toml`.
pub(crate) fn default_toml() -> Result<String> {
    let mut text = comment(
        "Every key with its default. Above each: what it does, what it may hold, and where the default comes from (paper; \
         recovered from the paper's tables; reference, LinearRAG's code; ours). Generated from src/config/keys.rs by \
         `just regen`.",
    );
    let mut section = "";
    for (key, default) in keys_with_defaults()? {
        if key.section() != section {
            section = key.section();
            let _ = write!(text, "\n[{section}]");
        }
        let about =
            comment(&format!("{}.", key.meaning)) + &comment(&format!("Holds {} ({}).", key.expected(), key.from));
        let _ = write!(text, "\n{about}{} = {default}\n", key.leaf());
    }
    Ok(text)
}

/// `text` as comment lines of at most 110 characters.
fn comment(text: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count() + 1;
        if width == 0 || width + length > 110 {
            out.push_str(if width == 0 { "#" } else { "\n#" });
            width = 1;
        }
        out.push(' ');
        out.push_str(word);
        width += length;
    }
    out + "\n"
}

/// The text of `docs/configuration.md`.
pub(crate) fn configuration_md() -> Result<String> {
    let mut text = String::from(INTRODUCTION);
    let mut section = None;
    for (key, default) in keys_with_defaults()? {
        if section != Some(key.section()) {
            section = Some(key.section());
            let title = if key.section().is_empty() { "Top level".into() } else { format!("`[{}]`", key.section()) };
            let _ =
                write!(text, "\n## {title}\n\n| key | default | may hold | meaning | from |\n|---|---|---|---|---|\n");
        }
        let _ = writeln!(
            text,
            "| `{}` | `{default}` | {} | {} | {} |",
            key.name,
            key.expected(),
            key.meaning.replace('|', "\\|"),
            key.from
        );
    }
    Ok(text)
}

const INTRODUCTION: &str = "\
# Configuration

Generated from `src/config/keys.rs` by `just regen`; do not edit.

A configuration is a TOML file read strictly: an unknown key, a wrong type or a value out of range is an error that names
file, line and key. Every key has a default, so a file states only what differs; `configs/default.toml` states them all.
Several files may be given, the later one wins key by key; `--set key=value` goes over all of them and takes a TOML value or
a bare word. The resolved whole is written beside the results as `plan.toml` and loads again.
Paths are relative to the working directory.

*From* says where a default comes from: *paper* (stated there), *recovered* (given away by the paper's tables), *reference*
(LinearRAG's code), *ours*. Files under `configs/presets/` hold the values of one dataset each.

These keys never change a row, or what they name does so in their place, and take no part in the run id: `backend.threads`,
`dataset.path` (the dataset's name and fingerprint do), `gates.grounding.cache`, `gates.grounding.model` and
`gates.grounding.precision` (the model's fingerprint and its precision do), `generate.api_key_env`, `generate.cache`,
`generate.cache_mode`, `generate.concurrency`, `generate.max_calls`, `generate.max_tries`, `generate.max_usd`, `generate.prices`
(the prices do), `generate.probe_tokens`, `generate.prompt` (its text does), `generate.retry_budget`, `generate.timeout_s`,
`generate.tokenizer` (its contents do), `index.encoder` (the index's fingerprint does), `index.path`, `index.vectors`,
`judge.api_key_env`, `judge.prompt` (its text does), `replay.block`, `replay.timings`. Where a recording or a model file answers or judges, its
contents stand for `generate.model` and `judge.model`.
";

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    const REFRESH: &str = "LIVINGRAG_REGEN=1 cargo test --lib config::reference";

    fn in_repository(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
    }

    fn check(path: &str, expected: &str) {
        let file = in_repository(path);
        if std::env::var_os("LIVINGRAG_REGEN").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, expected).unwrap();
        }
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(found == expected, "{path} is stale; refresh it with `just regen` or `{REFRESH}`");
    }

    #[test]
    fn configuration_md_is_fresh() {
        check("docs/configuration.md", &configuration_md().unwrap());
    }

    #[test]
    fn default_toml_is_fresh_and_equals_the_defaults() {
        check("configs/default.toml", &default_toml().unwrap());
        assert_eq!(RunConfig::load(&in_repository("configs/default.toml"), &[]).unwrap(), RunConfig::default());
    }

    #[test]
    fn the_introduction_names_the_keys_outside_the_run_id() {
        for name in super::super::plan::NOT_IN_THE_ID {
            assert!(INTRODUCTION.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn every_committed_configuration_is_legal() {
        let mut files = vec![in_repository("configs/gate-only.toml")];
        files.extend(std::fs::read_dir(in_repository("configs/presets")).unwrap().map(|entry| entry.unwrap().path()));
        assert!(files.len() >= 7, "{files:?}");
        for file in files {
            RunConfig::load(&file, &[]).unwrap().validate().unwrap();
        }
    }

    /// max_iterations / iteration_threshold / passage_ratio / top_k_sentence as LinearRAG's scripts have them, K as the
    /// paper's counts give it away, b of appendix F.2.
    #[test]
    fn presets_hold_the_published_values() {
        let expected = [
            ("2wiki", (3, 0.4, 0.05, 1), 5, 0.0),
            ("hotpotqa", (3, 0.4, 0.05, 1), 3, 0.0),
            ("musique", (5, 0.1, 2.0, 4), 3, 0.0),
            ("musique_full", (5, 0.1, 2.0, 4), 3, 0.0),
            ("medical", (3, 0.5, 1.5, 1), 3, 0.0),
            ("wixqa", (3, 0.5, 1.5, 1), 5, 0.1),
        ];
        for (name, script, top_k, length_b) in expected {
            let config = RunConfig::load(&in_repository(&format!("configs/presets/{name}.toml")), &[]).unwrap();
            let r = &config.retrieve;
            assert_eq!((r.max_iterations, r.iteration_threshold, r.passage_ratio, r.top_k_sentence), script, "{name}");
            assert_eq!((config.experience.top_k, r.length_b), (top_k, length_b), "{name}");
        }
    }
}
