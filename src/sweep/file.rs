//! `sweep.toml`, read strictly.
//!
//! In: TOML text. Out: [`SweepFile`], or the first problem with file, line, column, key and value. Keys of runs are those of a run's
//! configuration, checked by the same list ([`crate::config::keys`]); paths are relative to the working directory, as there.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::Result;
use crate::config::Method;
use crate::config::keys::{self, Key};
use crate::config::load::{self, Problem};

/// Keys of a configuration with one value each.
pub type Settings = Vec<(String, toml::Value)>;
/// Keys of a configuration with the values that they are to take.
pub type Axes = Vec<(String, Vec<toml::Value>)>;

/// Top-level keys and what they are for.
const KEYS: [(&str, &str); 11] = [
    ("name", "name of the sweep and of its results folder"),
    ("base", "configuration files that every run starts from, the later one wins"),
    ("methods", "a list of methods"),
    ("orders", "a list of arrival orders"),
    ("seeds", "a list of seeds"),
    ("set", "keys of the configuration for every run"),
    ("dataset", "[[dataset]]: path, config (files), set (keys)"),
    ("grid", "keys with lists of values; every combination is run"),
    ("list", "[[list]]: settings that are run as they stand"),
    ("one_at_a_time", "keys with lists of values; each is varied alone around the base"),
    ("exclude", "[[exclude]]: what is left out: dataset, method, order, seed, keys of the configuration"),
];
const DATASET_KEYS: [&str; 3] = ["path", "config", "set"];
/// Keys of a configuration that a sweep says in its own way, and how.
const OWN: [(&str, &str); 4] =
    [("method", "methods"), ("order", "orders"), ("seed", "seeds"), ("dataset.path", "[[dataset]] with path")];

/// One dataset of a sweep.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DatasetEntry {
    /// The dataset folder.
    pub path: PathBuf,
    /// Configuration files for its runs, over the sweep's `base` and `set`.
    pub config: Vec<PathBuf>,
    /// Keys for its runs, over those files.
    pub set: Settings,
}

/// Runs that are left out: those that fit every part that is given.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Exclusion {
    /// Dataset folders, by path or by last part.
    pub datasets: Vec<String>,
    /// Methods.
    pub methods: Vec<Method>,
    /// Orders.
    pub orders: Vec<String>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Keys, each with the values that are left out.
    pub keys: Axes,
}

/// A whole sweep file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SweepFile {
    /// Name of the sweep.
    pub name: String,
    /// Files that every run starts from.
    pub base: Vec<PathBuf>,
    /// Methods; `living` when not given.
    pub methods: Vec<Method>,
    /// Orders; `file` when not given.
    pub orders: Vec<String>,
    /// Seeds; 0 when not given.
    pub seeds: Vec<u64>,
    /// Keys for every run.
    pub set: Settings,
    /// Datasets, in order.
    pub datasets: Vec<DatasetEntry>,
    /// Every combination of these.
    pub grid: Axes,
    /// Each of these.
    pub list: Vec<Settings>,
    /// Each value of these alone.
    pub one_at_a_time: Axes,
    /// What is left out.
    pub exclude: Vec<Exclusion>,
}

impl SweepFile {
    /// Reads a sweep file.
    ///
    /// # Errors
    /// A missing file, a syntax error, an unknown key, a value of the wrong type or out of range.
    pub fn read(path: &Path) -> Result<Self> {
        let text = load::read_text(path)?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Reads the text of a sweep file called `file`.
    ///
    /// # Errors
    /// As [`SweepFile::read`].
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let (places, values) = load::parse(file, text)?;
        let mut reader = Reader::default();
        let found = reader.sweep(places.get_ref(), &values);
        load::first_problem(file, text, reader.problems)?;
        Ok(found)
    }
}

/// Collects problems on the way.
#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
}

/// A value with its place in the file.
#[derive(Clone, Copy)]
struct Placed<'a> {
    value: &'a toml::Value,
    place: &'a DeValue<'a>,
    at: usize,
}

/// The entries of a table, by place in the file.
fn entries<'a>(places: &'a DeTable<'a>, values: &'a toml::Table) -> Vec<(&'a str, usize, Placed<'a>)> {
    let mut all: Vec<(&str, usize, Placed)> = places
        .iter()
        .filter_map(|(key, place)| {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            let value_at = if place.get_ref().is_table() { at } else { place.span().start };
            Some((name, at, Placed { value: values.get(name)?, place: place.get_ref(), at: value_at }))
        })
        .collect();
    all.sort_by_key(|(_, at, _)| *at);
    all
}

impl Reader {
    fn problem(&mut self, at: usize, message: String, hint: impl Into<String>) {
        self.problems.push(Problem { at, message, hint: hint.into() });
    }

    fn wrong(&mut self, name: &str, found: Placed<'_>, expected: &str) {
        let hint =
            KEYS.iter().find(|(key, _)| *key == name).map_or(String::new(), |(key, what)| format!("{key}: {what}"));
        let hint = if hint.is_empty() { "docs/sweeps.md describes the file".to_owned() } else { hint };
        self.problem(found.at, format!("{name} = {}, expected {expected}", load::show(found.value)), hint);
    }

    fn sweep(&mut self, places: &DeTable<'_>, values: &toml::Table) -> SweepFile {
        let mut file = SweepFile {
            methods: vec![Method::Living],
            orders: vec!["file".into()],
            seeds: vec![0],
            ..SweepFile::default()
        };
        for (name, at, found) in entries(places, values) {
            match name {
                "name" => file.name = self.name(found),
                "base" => file.base = self.paths(name, found),
                "methods" => file.methods = self.methods(name, found),
                "orders" => file.orders = self.orders(name, found),
                "seeds" => file.seeds = self.seeds(name, found),
                "set" => file.set = self.settings(name, found),
                "dataset" => {
                    for (name, entry) in self.tables(name, found) {
                        file.datasets.push(self.dataset(&name, entry));
                    }
                }
                "grid" => file.grid = self.axes(name, found),
                "list" => {
                    for (name, entry) in self.tables(name, found) {
                        let settings = self.settings(&name, entry);
                        file.list.push(settings);
                    }
                }
                "one_at_a_time" => file.one_at_a_time = self.axes(name, found),
                "exclude" => {
                    for (name, entry) in self.tables(name, found) {
                        file.exclude.push(self.exclusion(&name, entry));
                    }
                }
                _ => {
                    let known: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
                    let hint = if keys::find(name).is_some() || keys::is_section(name) {
                        format!("keys of the configuration stand under [set], for example [set.{name}]")
                    } else {
                        nearest(name, &known)
                    };
                    self.problem(at, format!("unknown key `{name}`"), hint);
                }
            }
        }
        if file.name.is_empty() && self.problems.is_empty() {
            self.problem(0, "`name` is missing".into(), "for example name = \"mine\"; results go to results/mine");
        }
        file
    }

    fn name(&mut self, found: Placed<'_>) -> String {
        let legal = |name: &str| {
            !name.is_empty()
                && !name.starts_with('.')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        };
        match found.value.as_str() {
            Some(name) if legal(name) => name.to_owned(),
            _ => {
                self.wrong("name", found, "letters, digits, `-`, `_` and `.`, for a folder's name");
                String::new()
            }
        }
    }

    /// The items of a non-empty list, or of a single value that stands for a list of one.
    fn items<'a>(&mut self, name: &str, found: Placed<'a>) -> Vec<Placed<'a>> {
        match (found.value, found.place) {
            (toml::Value::Array(values), DeValue::Array(places)) if !values.is_empty() => values
                .iter()
                .zip(places.iter())
                .map(|(value, place)| Placed { value, place: place.get_ref(), at: place.span().start })
                .collect(),
            _ => {
                self.wrong(name, found, "a list with at least one value");
                Vec::new()
            }
        }
    }

    fn each<T>(
        &mut self,
        name: &str,
        found: Placed<'_>,
        expected: &str,
        read: impl Fn(&toml::Value) -> Option<T>,
    ) -> Vec<T> {
        let mut out = Vec::new();
        for item in self.items(name, found) {
            match read(item.value) {
                Some(value) => out.push(value),
                None => self.wrong(name, item, expected),
            }
        }
        out
    }

    fn paths(&mut self, name: &str, found: Placed<'_>) -> Vec<PathBuf> {
        self.each(name, found, "a path", |v| v.as_str().filter(|s| !s.is_empty()).map(PathBuf::from))
    }

    fn methods(&mut self, name: &str, found: Placed<'_>) -> Vec<Method> {
        let known: Vec<String> = Method::ALL.iter().map(|m| format!("`{}`", m.as_str())).collect();
        self.each(name, found, &format!("one of {}", known.join(", ")), |v| {
            Method::ALL.into_iter().find(|m| Some(m.as_str()) == v.as_str())
        })
    }

    fn orders(&mut self, name: &str, found: Placed<'_>) -> Vec<String> {
        let Some(key) = keys::find("order") else { return Vec::new() };
        self.each(name, found, &key.expected(), |v| v.as_str().filter(|_| key.accepts(v)).map(str::to_owned))
    }

    fn seeds(&mut self, name: &str, found: Placed<'_>) -> Vec<u64> {
        let Some(key) = keys::find("seed") else { return Vec::new() };
        self.each(name, found, &key.expected(), |v| {
            v.as_integer().filter(|_| key.accepts(v)).and_then(|n| u64::try_from(n).ok())
        })
    }

    /// The tables of `[[name]]`, each with a name for messages.
    fn tables<'a>(&mut self, name: &str, found: Placed<'a>) -> Vec<(String, Placed<'a>)> {
        let mut out = Vec::new();
        for (i, item) in self.items(name, found).into_iter().enumerate() {
            if item.value.is_table() {
                out.push((format!("{name}[{i}]"), item));
            } else {
                self.wrong(name, item, &format!("a table, written [[{name}]]"));
            }
        }
        out
    }

    fn dataset(&mut self, name: &str, found: Placed<'_>) -> DatasetEntry {
        let mut entry = DatasetEntry::default();
        let (DeValue::Table(places), toml::Value::Table(values)) = (found.place, found.value) else { return entry };
        for (key, at, value) in entries(places, values) {
            match key {
                "path" => match value.value.as_str().filter(|s| !s.is_empty()) {
                    Some(path) => entry.path = path.into(),
                    None => self.wrong("dataset.path", value, "a path"),
                },
                "config" => entry.config = self.paths("dataset.config", value),
                "set" => entry.set = self.settings("dataset.set", value),
                _ => self.problem(at, format!("unknown key `dataset.{key}`"), nearest(key, &DATASET_KEYS)),
            }
        }
        if entry.path.as_os_str().is_empty() && self.problems.is_empty() {
            self.problem(found.at, format!("{name} has no `path`"), "name the dataset folder: path = \"data/mine\"");
        }
        entry
    }

    fn exclusion(&mut self, name: &str, found: Placed<'_>) -> Exclusion {
        let mut exclusion = Exclusion::default();
        let (DeValue::Table(places), toml::Value::Table(values)) = (found.place, found.value) else { return exclusion };
        if values.is_empty() {
            self.problem(found.at, format!("{name} is empty and would leave out every run"), "say what is left out");
        }
        for (key, at, value) in entries(places, values) {
            match key {
                "dataset" if !value.value.is_table() => {
                    exclusion.datasets = self
                        .one_or_more("exclude.dataset", value, "a dataset folder", |v| v.as_str().map(str::to_owned));
                }
                "method" => {
                    exclusion.methods = self.one_or_more("exclude.method", value, "a method", |v| {
                        Method::ALL.into_iter().find(|m| Some(m.as_str()) == v.as_str())
                    });
                }
                "order" => {
                    exclusion.orders =
                        self.one_or_more("exclude.order", value, "an order", |v| v.as_str().map(str::to_owned));
                }
                "seed" => {
                    exclusion.seeds = self.one_or_more("exclude.seed", value, "a seed", |v| {
                        v.as_integer().and_then(|n| u64::try_from(n).ok())
                    });
                }
                _ => self.leaf("", key, at, value, &mut |reader, key, value| {
                    let all = if value.value.is_array() { reader.items(key.name, value) } else { vec![value] };
                    let values = reader.accepted(key, &all);
                    exclusion.keys.push((key.name.to_owned(), values));
                }),
            }
        }
        exclusion
    }

    fn one_or_more<T>(
        &mut self,
        name: &str,
        found: Placed<'_>,
        expected: &str,
        read: impl Fn(&toml::Value) -> Option<T>,
    ) -> Vec<T> {
        if found.value.is_array() {
            return self.each(name, found, expected, read);
        }
        let one = read(found.value);
        if one.is_none() {
            self.wrong(name, found, expected);
        }
        one.into_iter().collect()
    }

    /// Those of `found` that `key` may hold; the others are problems.
    fn accepted(&mut self, key: &Key, found: &[Placed<'_>]) -> Vec<toml::Value> {
        for item in found.iter().filter(|item| !key.accepts(item.value)) {
            self.problem(
                item.at,
                format!("{} = {}, expected {}", key.name, load::show(item.value), key.expected()),
                load::key_hint(key),
            );
        }
        found.iter().filter(|item| key.accepts(item.value)).map(|item| item.value.clone()).collect()
    }

    fn settings(&mut self, name: &str, found: Placed<'_>) -> Settings {
        let mut out = Settings::new();
        self.keys(name, found, &mut |reader, key, value| {
            let values = reader.accepted(key, &[value]);
            out.extend(values.into_iter().map(|value| (key.name.to_owned(), value)));
        });
        out
    }

    fn axes(&mut self, name: &str, found: Placed<'_>) -> Axes {
        let mut out = Axes::new();
        self.keys(name, found, &mut |reader, key, value| {
            let items = reader.items(key.name, value);
            let values = reader.accepted(key, &items);
            out.push((key.name.to_owned(), values));
        });
        out
    }

    /// Every key of the configuration under a table of the sweep file.
    fn keys(&mut self, name: &str, found: Placed<'_>, each: &mut dyn FnMut(&mut Self, &'static Key, Placed<'_>)) {
        match (found.place, found.value) {
            (DeValue::Table(places), toml::Value::Table(values)) => {
                for (part, at, value) in entries(places, values) {
                    self.leaf("", part, at, value, each);
                }
            }
            _ => self.wrong(name, found, "a table of keys of the configuration"),
        }
    }

    fn leaf(
        &mut self,
        section: &str,
        part: &str,
        at: usize,
        found: Placed<'_>,
        each: &mut dyn FnMut(&mut Self, &'static Key, Placed<'_>),
    ) {
        let quoted = if part.contains('.') { format!("{part:?}") } else { part.to_owned() };
        let name = load::join(section, &quoted);
        if let Some((_, instead)) = OWN.iter().find(|(own, _)| *own == name) {
            self.problem(at, format!("`{name}` does not stand here"), format!("a sweep says it by {instead}"));
            return;
        }
        match (keys::find(&name), found.place, found.value) {
            (Some(key), _, _) => each(self, key, found),
            (None, DeValue::Table(places), toml::Value::Table(values)) if keys::is_section(&name) => {
                for (part, at, value) in entries(places, values) {
                    self.leaf(&name, part, at, value, each);
                }
            }
            (None, _, _) if keys::is_section(&name) => self.problem(
                found.at,
                format!("{name} = {}, expected a section", load::show(found.value)),
                load::section_hint(&name),
            ),
            _ => self.problem(at, format!("unknown key `{name}`"), load::nearest_hint(&name)),
        }
    }
}

fn nearest(name: &str, known: &[&str]) -> String {
    let alike = known.iter().map(|key| (strsim::normalized_damerau_levenshtein(name, key), *key));
    let best = alike.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score >= 0.6);
    match best {
        Some((_, key)) => format!("did you mean `{key}`? The keys are {}", known.join(", ")),
        None => format!("the keys are {}", known.join(", ")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
name = "mine"
base = ["a.toml"]
methods = ["linear", "living"]
orders = ["file", "shuffle:1"]
seeds = [0, 7]
[set.replay]
timings = false
[[dataset]]
path = "data/a"
config = ["configs/presets/2wiki.toml"]
[dataset.set.experience]
top_k = 5
[[dataset]]
path = "data/b"
[grid]
experience.beta = [0.1, 0.3]
gates.tau_gs = [0.5]
[[list]]
experience.alpha = 1
[[list]]
[one_at_a_time.experience]
top_k = [1, 5]
[[exclude]]
method = ["linear", "vanilla"]
dataset = "b"
experience.beta = 0.3
"#;

    #[test]
    fn a_whole_file_is_read() {
        let file = SweepFile::parse("s.toml", WHOLE).unwrap();
        assert_eq!((file.name.as_str(), file.base.len(), file.seeds.as_slice()), ("mine", 1, &[0, 7][..]));
        assert_eq!(file.methods, [Method::Linear, Method::Living]);
        assert_eq!(file.set, [("replay.timings".to_owned(), false.into())]);
        assert_eq!(file.datasets[0].set, [("experience.top_k".to_owned(), 5.into())]);
        assert_eq!(file.datasets[1].path, Path::new("data/b"));
        assert_eq!(file.grid.len(), 2);
        assert_eq!(file.list, [vec![("experience.alpha".to_owned(), 1.into())], vec![]]);
        assert_eq!(file.one_at_a_time, [("experience.top_k".to_owned(), vec![1.into(), 5.into()])]);
        let excluded = &file.exclude[0];
        assert_eq!((excluded.methods.len(), excluded.datasets.as_slice()), (2, &["b".to_owned()][..]));
        assert_eq!(excluded.keys, [("experience.beta".to_owned(), vec![0.3.into()])]);
        let least = SweepFile::parse("s.toml", "name = 'x'").unwrap();
        assert_eq!((least.methods, least.orders, least.seeds), (vec![Method::Living], vec!["file".into()], vec![0]));
    }

    #[test]
    fn problems_name_place_key_value_and_cure() {
        let cases = [
            ("name = 'x'\nmethod = ['living']\n", "line 2, column 1: unknown key `method`", "under [set]"),
            ("name = 'x'\nmehtods = ['living']\n", "unknown key `mehtods`", "did you mean `methods`?"),
            (
                "name = 'x'\nmethods = ['liveing']\n",
                "line 2, column 12: methods = \"liveing\", expected one of `vanilla`",
                "methods: a list",
            ),
            ("name = 'x'\nmethods = []\n", "methods = a list, expected a list with at least one value", ""),
            ("name = 'x'\norders = ['shuffle']\n", "orders = \"shuffle\", expected `file`, `shuffle:<seed>`", ""),
            ("name = 'x'\nseeds = [-1]\n", "seeds = -1, expected a whole number", ""),
            ("name = 'a b'\n", "name = \"a b\", expected letters", ""),
            ("methods = ['living']\n", "`name` is missing", "results/mine"),
            (
                "name = 'x'\n[grid]\nexperience.topk = [1]\n",
                "line 3, column 12: unknown key `experience.topk`",
                "`experience.top_k`",
            ),
            ("name = 'x'\n[grid]\nexperience.top_k = 1\n", "experience.top_k = 1, expected a list", ""),
            (
                "name = 'x'\n[grid]\nexperience.alpha = [0.5, 1.5]\n",
                "line 3, column 26: experience.alpha = 1.5, expected a number from 0 to 1",
                "equation 7",
            ),
            ("name = 'x'\n[grid]\nseed = [1]\n", "`seed` does not stand here", "by seeds"),
            ("name = 'x'\n[set]\ndataset.path = 'a'\n", "`dataset.path` does not stand here", "[[dataset]]"),
            ("name = 'x'\n[set]\nreplay = 1\n", "replay = 1, expected a section", "lag"),
            ("name = 'x'\n[[dataset]]\nconfig = ['a']\n", "dataset[0] has no `path`", "path ="),
            ("name = 'x'\n[[dataset]]\npaht = 'a'\n", "unknown key `dataset.paht`", "did you mean `path`?"),
            ("name = 'x'\nlist = [1]\n", "list = 1, expected a table, written [[list]]", ""),
            ("name = 'x'\n[[exclude]]\n", "exclude[0] is empty", "left out"),
            ("name = 'x'\n[[exclude]]\nmethod = 'x'\n", "exclude.method = \"x\", expected a method", ""),
            ("name = x\n", "the line is `name = x`", "quotes"),
        ];
        for (text, message, hint) in cases {
            let found = SweepFile::parse("s.toml", text).unwrap_err();
            assert_eq!(found.exit_code(), 2);
            let found = found.report();
            assert!(
                found.contains("s.toml, line ") && found.contains(message) && found.contains(hint),
                "{text}\n{found}"
            );
        }
    }
}
