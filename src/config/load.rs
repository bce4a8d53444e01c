//! Reading a configuration: files in layers, then `--set`, each value checked where it stands.
//!
//! In: TOML texts and `key=value` words. Out: [`RunConfig`], or an error with file, line, column, key and the value found.
//! Values are merged as flat dotted keys: a later layer replaces single keys, never whole sections.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::RunConfig;
use super::keys::{self, Key};
use crate::{Error, Result};

/// Dotted key to value.
pub(crate) type Flat = BTreeMap<String, toml::Value>;

impl RunConfig {
    /// Reads one file over the defaults, then `sets` (`"replay.lag=1"`) over the file.
    ///
    /// # Errors
    /// A missing file, a syntax error, an unknown key, a value of the wrong type or out of range. Rules that join several
    /// keys are left to [`RunConfig::validate`].
    pub fn load(path: &Path, sets: &[String]) -> Result<Self> {
        Self::load_layers(&[path], sets)
    }

    /// Reads several files over the defaults, the later one wins key by key, then `sets` over them.
    ///
    /// # Errors
    /// As [`RunConfig::load`].
    pub fn load_layers<P: AsRef<Path>>(files: &[P], sets: &[String]) -> Result<Self> {
        let mut flat = Flat::new();
        for file in files {
            read_file(file.as_ref(), &mut flat)?;
        }
        for set in sets {
            let (key, value) = read_set(set)?;
            flat.insert(key.name.to_owned(), value);
        }
        from_flat(&flat)
    }
}

/// The text of a file that must be UTF-8.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|e| {
        Error::io("read the configuration", path, e).with_hint("configs/ holds configurations to start from")
    })?;
    String::from_utf8(bytes).map_err(|e| {
        let valid = e.utf8_error().valid_up_to();
        Error::request(format!("{} is not UTF-8: byte {valid} is invalid", path.display()))
    })
}

/// Checks a configuration file and adds its keys to `flat`.
pub(crate) fn read_file(path: &Path, flat: &mut Flat) -> Result<()> {
    read_layer(&path.display().to_string(), &read_text(path)?, flat)
}

/// The configuration with these keys, the others at their defaults.
pub(crate) fn from_flat(flat: &Flat) -> Result<RunConfig> {
    nest(flat).try_into().map_err(|e| Error::request("the configuration does not fit together").with_source(e))
}

/// Every key of `config` with its value, in the order of the fields.
///
/// # Errors
/// A path that is not UTF-8, or a seed past 2^63 - 1: TOML holds neither.
pub(crate) fn flatten(config: &RunConfig) -> Result<Vec<(String, toml::Value)>> {
    fn walk(prefix: &str, table: toml::Table, out: &mut Vec<(String, toml::Value)>) {
        for (part, value) in table {
            let name = join(prefix, &part);
            match value {
                toml::Value::Table(inner) => walk(&name, inner, out),
                leaf => out.push((name, leaf)),
            }
        }
    }
    let table = toml::Table::try_from(config)
        .map_err(|e| Error::request("the configuration cannot be written as TOML").with_source(e))?;
    let mut out = Vec::new();
    walk("", table, &mut out);
    Ok(out)
}

/// The opposite of [`flatten`].
fn nest(flat: &Flat) -> toml::Table {
    let mut root = toml::Table::new();
    for (name, value) in flat {
        let (section, leaf) = name.rsplit_once('.').unwrap_or(("", name));
        let mut table = &mut root;
        for part in section.split('.').filter(|part| !part.is_empty()) {
            let entry = table.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            // Known keys never are both a value and a section, so the entry is a table.
            let toml::Value::Table(inner) = entry else { return root };
            table = inner;
        }
        table.insert(leaf.to_owned(), value.clone());
    }
    root
}

/// Something wrong at a byte of the file.
pub(crate) struct Problem {
    pub(crate) at: usize,
    pub(crate) message: String,
    pub(crate) hint: String,
}

/// A TOML text with the places of its values.
pub(crate) fn parse<'t>(file: &str, text: &'t str) -> Result<(toml::Spanned<DeTable<'t>>, toml::Table)> {
    let syntax = |e: toml::de::Error| {
        let at = e.span().map_or(0, |span| span.start);
        let line = text[..at.min(text.len())].rfind('\n').map_or(0, |n| n + 1);
        let found = text[line..].lines().next().unwrap_or_default().trim();
        let message = e.message().lines().collect::<Vec<_>>().join("; ");
        located(
            file,
            text,
            Problem { at, message: format!("{message}; the line is `{found}`"), hint: SYNTAX_HINT.into() },
        )
    };
    // Twice: once for the places, once for the values.
    Ok((DeTable::parse(text).map_err(syntax)?, text.parse().map_err(syntax)?))
}

/// The first of several problems as an error.
pub(crate) fn first_problem(file: &str, text: &str, problems: Vec<Problem>) -> Result<()> {
    match problems.into_iter().min_by_key(|problem| problem.at) {
        Some(problem) => Err(located(file, text, problem)),
        None => Ok(()),
    }
}

/// Checks `text` and adds its keys to `flat`; of several problems the first in the file is reported.
fn read_layer(file: &str, text: &str, flat: &mut Flat) -> Result<()> {
    let (places, values) = parse(file, text)?;
    let mut problems = Vec::new();
    walk("", places.get_ref(), &values, &mut problems, flat);
    first_problem(file, text, problems)
}

const SYNTAX_HINT: &str = "TOML: `key = value`, text in quotes, each section and key once";

fn walk(prefix: &str, places: &DeTable<'_>, values: &toml::Table, problems: &mut Vec<Problem>, flat: &mut Flat) {
    for (part, place) in places {
        // A table's own span starts at its header's bracket; its name is the better place to point at.
        let at = part.span().start;
        let value_at = if place.get_ref().is_table() { at } else { place.span().start };
        let quoted = part.get_ref().contains('.');
        let name = if quoted { join(prefix, &format!("{:?}", part.get_ref())) } else { join(prefix, part.get_ref()) };
        let Some(value) = values.get(part.get_ref().as_ref()) else { continue };
        match (keys::find(&name), place.get_ref()) {
            (Some(key), _) if key.accepts(value) => {
                flat.insert(name, value.clone());
            }
            (Some(key), _) => problems.push(Problem {
                at: value_at,
                message: format!("{name} = {}, expected {}", show(value), key.expected()),
                hint: key_hint(key),
            }),
            (None, DeValue::Table(inner)) if keys::is_section(&name) => {
                if let toml::Value::Table(inner_values) = value {
                    walk(&name, inner, inner_values, problems, flat);
                }
            }
            (None, _) if keys::is_section(&name) => problems.push(Problem {
                at: value_at,
                message: format!("{name} = {}, expected a section", show(value)),
                hint: section_hint(&name),
            }),
            (None, _) => {
                problems.push(Problem { at, message: format!("unknown key `{name}`"), hint: nearest_hint(&name) });
            }
        }
    }
}

/// Splits and checks one `--set` word. A value that is no TOML, or that fits only as text, is taken as text.
pub(crate) fn read_set(set: &str) -> Result<(&'static Key, toml::Value)> {
    let Some((name, text)) = set.split_once('=') else {
        return Err(Error::request(format!("--set {set} has no value")).with_hint(format!("write --set {set}=VALUE")));
    };
    let (name, text) = (name.trim(), text.trim());
    let Some(key) = keys::find(name) else {
        return Err(if keys::is_section(name) {
            Error::request(format!("--set {set}: `{name}` is a section, not a key")).with_hint(section_hint(name))
        } else {
            Error::request(format!("--set {set}: unknown key `{name}`")).with_hint(nearest_hint(name))
        });
    };
    let word = toml::Value::String(text.to_owned());
    let value = text.parse::<toml::Value>().ok().filter(|value| key.accepts(value)).unwrap_or(word);
    if key.accepts(&value) {
        Ok((key, value))
    } else {
        Err(Error::request(format!("--set {name}={text}: expected {}", key.expected())).with_hint(key_hint(key)))
    }
}

pub(crate) fn located(file: &str, text: &str, problem: Problem) -> Error {
    let before = &text[..problem.at.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Error::request(format!("{file}, line {line}, column {column}: {}", problem.message)).with_hint(problem.hint)
}

pub(crate) fn join(prefix: &str, part: &str) -> String {
    if prefix.is_empty() { part.to_owned() } else { format!("{prefix}.{part}") }
}

/// A value as it would be typed; tables and lists by their type alone.
pub(crate) fn show(value: &toml::Value) -> String {
    match value {
        toml::Value::Table(_) => "a table".into(),
        toml::Value::Array(_) => "a list".into(),
        other => other.to_string(),
    }
}

pub(crate) fn key_hint(key: &Key) -> String {
    format!("{}: {}", key.name, key.meaning)
}

pub(crate) fn section_hint(section: &str) -> String {
    let inside = keys::KEYS.iter().filter_map(|key| key.name.strip_prefix(section)?.strip_prefix('.'));
    format!("its keys are {}", inside.collect::<Vec<_>>().join(", "))
}

pub(crate) fn nearest_hint(unknown: &str) -> String {
    let near: Vec<_> = keys::nearest(unknown).iter().map(|name| format!("`{name}`")).collect();
    match near.as_slice() {
        [] => "configs/default.toml lists every key".into(),
        [one] => format!("the nearest known key is {one}; configs/default.toml lists all"),
        many => format!("the nearest known keys are {}; configs/default.toml lists all", many.join(", ")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::super::{Method, Propagation};
    use super::*;

    fn from_text(text: &str, sets: &[&str]) -> Result<RunConfig> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        std::fs::write(&path, text).unwrap();
        let sets: Vec<_> = sets.iter().map(|set| (*set).to_owned()).collect();
        RunConfig::load(&path, &sets)
    }

    /// The error's text with the folder cut away.
    fn complaint(text: &str, sets: &[&str]) -> String {
        let error = from_text(text, sets).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let report = error.report();
        match report.split_once("run.toml") {
            Some((_, rest)) => format!("run.toml{rest}"),
            None => report,
        }
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(from_text("", &[]).unwrap(), RunConfig::default());
    }

    #[test]
    fn flatten_and_nest_are_opposites() {
        let flat: Flat = flatten(&RunConfig::default()).unwrap().into_iter().collect();
        assert_eq!(nest(&flat).try_into::<RunConfig>().unwrap(), RunConfig::default());
    }

    #[test]
    fn sets_go_over_the_file_and_take_toml_or_a_bare_word() {
        let config = from_text(
            "method = 'linear'\n[retrieve]\ntop_k = 7\ndamping = 0.25\n",
            &[
                "retrieve.top_k=9",
                "retrieve.propagation=matrix",
                "order=shuffle:3",
                "dataset.path=2024",
                "replay.timings = false",
                "generate.model=\"a b\"",
                "experience.alpha=1",
            ],
        )
        .unwrap();
        assert_eq!(config.method, Method::Linear);
        assert_eq!((config.retrieve.top_k, config.retrieve.damping), (9, 0.25));
        assert_eq!(config.retrieve.propagation, Propagation::Matrix);
        assert_eq!(config.order, "shuffle:3");
        assert_eq!(config.dataset.path, Path::new("2024"), "a number is text where text is asked for");
        assert!(!config.replay.timings);
        assert_eq!(config.generate.model, "a b");
        assert_eq!(config.experience.alpha, 1.0);
        assert_eq!(from_text("", &["seed=1", "seed=2"]).unwrap().seed, 2, "the later set wins");
    }

    #[test]
    fn layers_replace_single_keys() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.toml"), folder.path().join("b.toml"));
        std::fs::write(&a, "[gates]\ntau_gs = 0.1\n[gates.grounding]\np = 0.2\n").unwrap();
        std::fs::write(&b, "[gates.grounding]\nkind = 'bernoulli'\n[gates]\ntau_gs = 0.3\n").unwrap();
        let config = RunConfig::load_layers(&[a, b], &[]).unwrap();
        assert_eq!((config.gates.tau_gs, config.gates.grounding.p), (0.3, 0.2));
    }

    #[test]
    fn problems_name_place_key_value_and_cure() {
        let cases = [
            ("[retrieve]\ntopk = 3\n", "line 2, column 1: unknown key `retrieve.topk`", "`retrieve.top_k`"),
            ("lag = 1\n", "line 1, column 1: unknown key `lag`", "`replay.lag`"),
            ("[retreive]\ntop_k = 3\n", "line 1, column 2: unknown key `retreive`", "is `retrieve`"),
            (
                "\n[experience]\nalpha = 2\n",
                "line 3, column 9: experience.alpha = 2, expected a number from 0 to 1",
                "equation 7",
            ),
            ("retrieve = 3\n", "line 1, column 12: retrieve = 3, expected a section", "top_k_sentence"),
            ("[method]\n", "line 1, column 2: method = a table, expected `vanilla`, ", "method"),
            ("seed = -1\n", "seed = -1, expected a whole number from 0 to 2^63 - 1", "seed"),
            (
                "[replay]\nlag = 4294967296\n",
                "replay.lag = 4294967296, expected a whole number from 1 to 2^32 - 1",
                "W",
            ),
            ("[replay]\nlag = 1\nlag = 2\n", "line 3, column 1: duplicate key; the line is `lag = 2`", "once"),
            ("method = living\n", "line 1, column 10: ", "quotes"),
            ("\"replay.lag\" = 1\n", "unknown key `\"replay.lag\"`", "replay.lag"),
            ("x1 = 1\n[replay]\nlag = 0\n", "line 1, column 1: unknown key `x1`", "configs/default.toml"),
        ];
        for (text, message, hint) in cases {
            let found = complaint(text, &[]);
            assert!(found.contains(message) && found.contains(hint), "{text:?} gives\n{found}");
        }
    }

    #[test]
    fn a_wrong_set_names_key_value_and_expectation() {
        let cases = [
            (
                "replay.lagg=1",
                "error: --set replay.lagg=1: unknown key `replay.lagg`\nhint: the nearest known key is `replay.lag`",
            ),
            ("replay.lag", "error: --set replay.lag has no value\nhint: write --set replay.lag=VALUE"),
            ("replay=1", "`replay` is a section, not a key\nhint: its keys are lag, block, limit, timings"),
            ("replay.lag=soon", "error: --set replay.lag=soon: expected a whole number from 1 to 2^32 - 1"),
            ("method=Living", "--set method=Living: expected `vanilla`, `linear`, `living`"),
            ("order=shuffle", "--set order=shuffle: expected `file`, `shuffle:<seed>`"),
        ];
        for (set, message) in cases {
            let found = complaint("", &[set]);
            assert!(found.contains(message), "{set} gives\n{found}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("latin1.toml");
        std::fs::write(&path, b"order = 'caf\xe9'").unwrap();
        assert!(RunConfig::load(&path, &[]).unwrap_err().report().contains("is not UTF-8: byte 12 is invalid"));
    }

    #[test]
    fn a_missing_file_is_a_wrong_request() {
        let error = RunConfig::load(Path::new("no/such.toml"), &[]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.report().contains("no/such.toml"));
    }
}
