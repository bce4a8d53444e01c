//! The pairs that grounding models have scored: the other kind of file that `livingrag cache` looks after.
//!
//! In: the cache's file. Out: a listing, a copy for another machine, or a changed cache.

use std::path::Path;

use crate::cli::{Global, output};
use crate::gates::pair_cache::PairCache;
use crate::{Result, llm};

/// Whether the file is a cache of pairs.
pub fn is_one(path: &Path) -> bool {
    PairCache::is_one(path)
}

/// Tab-separated, one line a model and precision.
pub fn stats(path: &Path) -> Result<()> {
    let stats = PairCache::open_to_read(path)?.stats()?;
    let mut out = output::Data::stdout();
    out.line("grounding_model\tfingerprint\tprecision\tpairs\tcut\toldest\tnewest")?;
    for m in &stats {
        out.line(&format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}",
            m.name,
            m.fingerprint.get(..12).unwrap_or(&m.fingerprint),
            m.precision,
            m.pairs,
            m.cut,
            llm::iso_date(m.oldest),
            llm::iso_date(m.newest),
        ))?;
    }
    out.finish()
}

/// Writes a copy.
pub fn export(path: &Path, file: &Path, global: &Global) -> Result<()> {
    let pairs = PairCache::open_to_read(path)?.export(file)?;
    output::note(global.quiet, &format!("{}: pairs written: {pairs}", file.display()));
    Ok(())
}

/// Adds copies; pairs already there stay.
pub fn import(path: &Path, files: &[std::path::PathBuf], global: &Global) -> Result<()> {
    for file in files {
        // Before a cache is made for nothing, or one file is added and the next is not.
        PairCache::open_source(file)?;
    }
    let cache = PairCache::open(path)?;
    for file in files {
        let added = cache.import(file)?;
        output::note(global.quiet, &format!("{}: pairs added: {added}", file.display()));
    }
    Ok(())
}

/// Removes pairs, or counts them.
pub fn prune(path: &Path, before: Option<i64>, model: Option<&str>, dry_run: bool, global: &Global) -> Result<()> {
    let (pairs, shrunk) = PairCache::open_existing(path)?.prune(before, model, dry_run)?;
    let done = if dry_run { "that would be removed" } else { "removed" };
    output::note(global.quiet, &format!("pairs {done}: {pairs}"));
    if !dry_run && !shrunk {
        output::note(global.quiet, "the file keeps its size: another process is using it");
    }
    Ok(())
}
