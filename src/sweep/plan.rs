//! From a sweep file to the list of its runs.
//!
//! In: [`SweepFile`], `--dataset` and `--set` of the command line. Out: [`Plan`]: runs in groups that share one prepared dataset, each run
//! once. Within a dataset the runs go by settings, seed, order, method; that order is fixed, and shards are cut from it.
//!
//! A key is taken from, the later one wins: defaults, `base`, `set`, the dataset's `config` and `set`, the point of grid, list or
//! one_at_a_time, `--set`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::file::{DatasetEntry, Exclusion, Settings, SweepFile};
use crate::config::load::{Flat, flatten, from_flat, read_file, read_set};
use crate::config::{Method, RunConfig};
use crate::{Error, Result};

/// One run that is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Its whole configuration.
    pub config: RunConfig,
    /// What its point of grid, list or one_at_a_time sets.
    pub changed: Settings,
}

/// Runs that share a prepared dataset: same folder, index options and backend.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The dataset folder.
    pub dataset: PathBuf,
    /// Its runs, at least one.
    pub runs: Vec<Wanted>,
}

/// A whole sweep before any data is opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Name of the sweep.
    pub name: String,
    /// Its groups, in the order of the datasets.
    pub groups: Vec<Group>,
    /// What a user should hear, for example how many runs were named twice.
    pub notes: Vec<String>,
}

/// `DIR` or `DIR=CONFIG[,CONFIG]…` of `--dataset`.
pub fn dataset_argument(text: &str) -> DatasetEntry {
    let (path, configs) = text.split_once('=').unwrap_or((text, ""));
    let config = configs.split(',').filter(|c| !c.is_empty()).map(PathBuf::from).collect();
    DatasetEntry { path: path.into(), config, set: Settings::new() }
}

/// Keys of a store, which a method without one does not look at.
fn of_the_store(key: &str) -> bool {
    key.starts_with("experience.") || key.starts_with("gates.")
}

/// The settings of grid, list and one_at_a_time; the base alone when there are none of them.
fn points(file: &SweepFile) -> Vec<Settings> {
    let mut out: Vec<Settings> = Vec::new();
    if !file.grid.is_empty() {
        let mut product: Vec<Settings> = vec![Vec::new()];
        for (key, values) in &file.grid {
            let longer = |point: &Settings| {
                let with = |value: &toml::Value| [point.as_slice(), &[(key.clone(), value.clone())]].concat();
                values.iter().map(with).collect::<Vec<_>>()
            };
            product = product.iter().flat_map(longer).collect();
        }
        out.extend(product);
    }
    out.extend(file.list.iter().cloned());
    if !file.one_at_a_time.is_empty() {
        out.push(Settings::new());
        for (key, values) in &file.one_at_a_time {
            out.extend(values.iter().map(|value| vec![(key.clone(), value.clone())]));
        }
    }
    if out.is_empty() {
        out.push(Settings::new());
    }
    out
}

fn excludes(exclusion: &Exclusion, dataset: &Path, config: &RunConfig, flat: &[(String, toml::Value)]) -> bool {
    fn any<T: PartialEq>(list: &[T], value: &T) -> bool {
        list.is_empty() || list.contains(value)
    }
    let named =
        |name: &String| Path::new(name) == dataset || dataset.file_name().is_some_and(|last| last == name.as_str());
    // A whole number in the file is as good as a fraction: 1 excludes 1.0.
    let number = |v: &toml::Value| v.as_float().or_else(|| v.as_integer().map(|n| n as f64));
    let equal = |a: &toml::Value, b: &toml::Value| a == b || number(a).is_some_and(|x| number(b) == Some(x));
    (exclusion.datasets.is_empty() || exclusion.datasets.iter().any(named))
        && any(&exclusion.methods, &config.method)
        && any(&exclusion.orders, &config.order)
        && any(&exclusion.seeds, &config.seed)
        && exclusion
            .keys
            .iter()
            .all(|(key, values)| flat.iter().any(|(name, value)| name == key && values.iter().any(|v| equal(v, value))))
}

/// The runs of a sweep.
///
/// # Errors
/// No dataset, a configuration file that is wrong, a combination that cannot run, nothing left to run.
pub fn plan(file: &SweepFile, more_datasets: &[DatasetEntry], sets: &[String]) -> Result<Plan> {
    let datasets: Vec<&DatasetEntry> = file.datasets.iter().chain(more_datasets).collect();
    if datasets.is_empty() {
        return Err(Error::request(format!("the sweep {:?} names no dataset", file.name)).with_hint(
            "add [[dataset]] with a path to the file, or --dataset data/mine=configs/presets/musique.toml",
        ));
    }
    let mut over = Flat::new();
    for set in sets {
        let (key, value) = read_set(set)?;
        over.insert(key.name.to_owned(), value);
    }
    let mut common = Flat::new();
    for path in &file.base {
        read_file(path, &mut common)?;
    }
    common.extend(file.set.iter().cloned());
    let points = points(file);
    let (mut twice, mut storeless, mut excluded) = (0_usize, 0_usize, vec![0_usize; file.exclude.len()]);
    let mut groups: Vec<(String, Group)> = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in datasets {
        let mut of_dataset = common.clone();
        for path in &entry.config {
            read_file(path, &mut of_dataset)?;
        }
        of_dataset.extend(entry.set.iter().cloned());
        of_dataset.insert("dataset.path".into(), text(&entry.path)?);
        for (point, seed, order, method) in every(&points, file) {
            let changed: Settings =
                point.iter().filter(|(key, _)| method.has_store() || !of_the_store(key)).cloned().collect();
            let mut flat = of_dataset.clone();
            flat.extend(changed.iter().cloned());
            flat.insert("method".into(), method.as_str().into());
            flat.insert("order".into(), order.into());
            flat.insert("seed".into(), toml::Value::Integer(i64::try_from(seed).unwrap_or(i64::MAX)));
            flat.extend(over.clone());
            let config = from_flat(&flat)?;
            config.validate()?;
            let whole = flatten(&config)?;
            if let Some(i) = file.exclude.iter().position(|e| excludes(e, &config.dataset.path, &config, &whole)) {
                excluded[i] += 1;
                continue;
            }
            if !seen.insert(format!("{config:?}")) {
                if changed.len() < point.len() {
                    storeless += 1
                } else {
                    twice += 1
                }
                continue;
            }
            let key = format!("{:?} {:?} {:?}", config.dataset, config.index, config.backend);
            let dataset = config.dataset.path.clone();
            let run = Wanted { config, changed };
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.runs.push(run),
                None => groups.push((key, Group { dataset, runs: vec![run] })),
            }
        }
    }
    let mut notes = Vec::new();
    if twice > 0 {
        notes.push(format!("{twice} runs were named more than once and are done once"));
    }
    if storeless > 0 {
        notes.push(format!(
            "{storeless} runs of methods without a store differ only in settings of the store, which they do not look at, and are left out"
        ));
    }
    for (i, count) in excluded.iter().enumerate() {
        notes.push(match count {
            0 => format!("exclude[{i}] fits no run"),
            n => format!("exclude[{i}] leaves out {n} runs"),
        });
    }
    let groups: Vec<Group> = groups.into_iter().map(|(_, group)| group).collect();
    if groups.is_empty() {
        return Err(Error::request(format!("nothing is left of the sweep {:?}", file.name))
            .with_hint("its exclusions leave out every run"));
    }
    Ok(Plan { name: file.name.clone(), groups, notes })
}

fn text(path: &Path) -> Result<toml::Value> {
    let text = path.to_str().ok_or_else(|| Error::request(format!("{} is not UTF-8", path.display())))?;
    Ok(text.into())
}

/// Settings, seed, order, method, the last one fastest: neighbours in the list share most.
fn every<'a>(
    points: &'a [Settings],
    file: &'a SweepFile,
) -> impl Iterator<Item = (&'a Settings, u64, &'a str, Method)> {
    points.iter().flat_map(move |point| {
        file.seeds.iter().flat_map(move |&seed| {
            let of_order =
                move |order: &'a String| file.methods.iter().map(move |&method| (point, seed, order.as_str(), method));
            file.orders.iter().flat_map(of_order)
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn planned(text: &str) -> Plan {
        let file = SweepFile::parse("s.toml", &format!("name = 's'\n{text}")).unwrap();
        plan(&file, &[], &[]).unwrap()
    }

    fn labels(plan: &Plan) -> Vec<String> {
        let of = |w: &Wanted| {
            let e = &w.config.experience;
            format!("{} {} {} K{} b{}", w.config.method.as_str(), w.config.order, w.config.seed, e.top_k, e.beta)
        };
        plan.groups.iter().flat_map(|g| g.runs.iter().map(of)).collect()
    }

    #[test]
    fn a_grid_is_every_combination() {
        let plan = planned(
            "orders = ['file', 'reverse']\n[[dataset]]\npath = 'a'\n[grid]\nexperience.beta = [0.1, 0.2]\nexperience.top_k = [1, 2]\n",
        );
        let found = labels(&plan);
        assert_eq!(found.len(), 8);
        assert_eq!(found[..3], ["living file 0 K1 b0.1", "living reverse 0 K1 b0.1", "living file 0 K2 b0.1"]);
        assert_eq!(plan.groups[0].runs[0].changed.len(), 2);
        assert!(plan.notes.is_empty());
    }

    /// By hand: base, K = 1, (K = 3 is the base), beta 0.1; linear once.
    #[test]
    fn one_at_a_time_goes_around_the_base_and_nothing_runs_twice() {
        let plan = planned(
            "methods = ['linear', 'living']\n[[dataset]]\npath = 'a'\n[one_at_a_time.experience]\ntop_k = [1, 3]\nbeta = [0.1]\n",
        );
        let mut found = labels(&plan);
        found.sort();
        assert_eq!(
            found,
            ["linear file 0 K3 b0.3", "living file 0 K1 b0.3", "living file 0 K3 b0.1", "living file 0 K3 b0.3"]
        );
        assert_eq!(plan.notes.len(), 2);
        assert!(plan.notes[0].starts_with("1 runs were named more than once"), "{:?}", plan.notes);
        assert!(plan.notes[1].starts_with("3 runs of methods without a store"), "{:?}", plan.notes);
    }

    #[test]
    fn lists_stand_as_they_are_and_exclusions_leave_out() {
        let plan = planned(
            "methods = ['linear', 'living']\norders = ['file', 'reverse']\n[[dataset]]\npath = 'x/a'\n[[dataset]]\npath = 'x/b'\n\
             [[list]]\nexperience.beta = 1\n[[exclude]]\ndataset = 'b'\norder = 'reverse'\n\
             [[exclude]]\nmethod = 'living'\nexperience.beta = 1\ndataset = 'x/a'\n[[exclude]]\nseed = 5\n",
        );
        assert_eq!(
            labels(&plan),
            ["linear file 0 K3 b0.3", "linear reverse 0 K3 b0.3", "linear file 0 K3 b0.3", "living file 0 K3 b1"]
        );
        assert_eq!(plan.groups.iter().map(|g| g.runs.len()).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(
            plan.notes,
            ["exclude[0] leaves out 2 runs", "exclude[1] leaves out 2 runs", "exclude[2] fits no run"]
        );
    }

    #[test]
    fn layers_go_from_base_to_set() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let base = write("base.toml", "[experience]\nalpha = 0.1\nbeta = 0.1\ntop_k = 7\ntau_s = 0.9\n");
        let preset = write("preset.toml", "[experience]\nbeta = 0.4\ntop_k = 8\n");
        let text = format!(
            "name = 's'\nbase = [{base:?}]\n[set.experience]\nalpha = 0.2\nbeta = 0.2\n[[dataset]]\npath = 'a'\nconfig = [{preset:?}]\n[grid]\nexperience.top_k = [9]\n"
        );
        let file = SweepFile::parse("s.toml", &text).unwrap();
        let plan = plan(&file, &[], &["experience.tau_s=0.5".into()]).unwrap();
        let e = &plan.groups[0].runs[0].config.experience;
        assert_eq!((e.alpha, e.beta, e.top_k, e.tau_s), (0.2, 0.4, 9, 0.5));
    }

    #[test]
    fn an_index_of_its_own_is_a_group_of_its_own() {
        let plan = planned(
            "[[dataset]]\npath = 'a'\n[grid]\nindex.annotations = ['file', 'none']\nexperience.top_k = [1, 2]\n",
        );
        assert_eq!(plan.groups.iter().map(|g| g.runs.len()).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn nothing_to_run_is_said() {
        let complaint = |text: &str| {
            let file = SweepFile::parse("s.toml", &format!("name = 's'\n{text}")).unwrap();
            plan(&file, &[], &[]).unwrap_err().report()
        };
        assert!(complaint("").contains("names no dataset\nhint: add [[dataset]]"));
        let all = complaint("[[dataset]]\npath = 'a'\n[[exclude]]\nmethod = 'living'\n");
        assert!(all.contains("nothing is left of the sweep"), "{all}");
        let lag = complaint("[[dataset]]\npath = 'a'\n[grid]\nreplay.lag = [2]\nreplay.block = [4]\n");
        assert!(lag.contains("replay.block = 4 is larger"), "{lag}");
    }

    #[test]
    fn a_dataset_on_the_command_line() {
        let entry = dataset_argument("data/a=x.toml,y.toml");
        assert_eq!((entry.path.to_str(), entry.config.len()), (Some("data/a"), 2));
        assert_eq!(dataset_argument("data/a").config.len(), 0);
    }
}
