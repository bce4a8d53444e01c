//! `livingrag run`: one method over one question stream, from start or from where it was broken off.
//!
//! In: configuration files and `--set`. Out: a results folder `<out>/<run-id>/`; its path on standard output.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::progress::Progress;
use super::{Global, check_out_folder, endpoint, output, session};
use crate::Result;
use crate::config::RunConfig;
use crate::replay::{self, Opened, Parts, Run, Session};

/// Replays a question stream and writes its traces
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  livingrag run configs/presets/hotpotqa.toml --set dataset.path=data/mine\n  \
                        livingrag run configs/gate-only.toml configs/presets/2wiki.toml --set dataset.path=data/x\n  \
                        livingrag run results/RUN-ID/plan.toml --resume")]
pub struct RunArgs {
    /// Configuration files; the later one wins key by key
    #[arg(required = true, value_name = "CONFIG")]
    pub configs: Vec<PathBuf>,
    /// Sets a key of the configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// The folder that gets a folder per run
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub out: PathBuf,
    /// Continues a run that was broken off; a finished run is left as it is
    #[arg(long)]
    pub resume: bool,
    /// Prints the plan, an estimate of the work and a quote of its calls, and ends
    #[arg(long)]
    pub dry_run: bool,
}

impl RunArgs {
    /// The configuration asked for.
    ///
    /// # Errors
    /// A file, key or value that is wrong.
    pub fn config(&self, global: &Global) -> Result<RunConfig> {
        RunConfig::load_layers(&self.configs, &global.with_threads(&self.sets))
    }
}

/// Replays the stream.
pub fn run(args: &RunArgs, global: &Global) -> Result<()> {
    let config = args.config(global)?;
    config.validate()?;
    check_out_folder(&args.out)?;
    let parts = Parts::new(&config)?;
    let opened = session::open(&config, session::needs_templates(&config), &args.out, global)?;
    let estimate = opened.estimate(&config, &parts)?;
    output::note(global.quiet, &format!("estimate: {estimate}"));
    let session = opened.session(&config)?;
    if let Some(plan) = session.prepared.plan() {
        output::note(global.quiet, &plan);
    }
    if args.dry_run {
        let mut run = [Run::planned(&session, &config, parts.clone())?];
        endpoint::prepare(&session, &mut run, true, global)?;
        return output::data(&replay::plan(&session, &config, &parts)?.to_toml()?);
    }
    let run = match Run::open(&session, &config, parts, &args.out, args.resume)? {
        Opened::Finished(folder) => {
            output::note(global.quiet, "finished already");
            return output::data(&folder.display().to_string());
        }
        Opened::Ready(run) => run,
    };
    for note in &run.notes {
        output::warning(note);
    }
    let mut runs = vec![*run];
    if let Err(error) = endpoint::prepare(&session, &mut runs, false, global) {
        runs.into_iter().for_each(Run::discard);
        return Err(error);
    }
    let run = &runs[0];
    if run.done() > 0 {
        output::note(global.quiet, &format!("going on after {} of {} queries", run.done(), run.total()));
    }
    let folder = replay_all(&session, runs, global)?.remove(0);
    output::data(&folder.display().to_string())
}

/// Replays runs in step with a progress bar and finishes them; their folders come back in order.
pub fn replay_all(session: &Session, mut runs: Vec<Run>, global: &Global) -> Result<Vec<PathBuf>> {
    let total = runs.iter().map(Run::total).sum::<usize>() as u64;
    let bar = Arc::new(Progress::new("replay", total, global.quiet));
    bar.set(runs.iter().map(Run::done).sum::<usize>() as u64);
    for run in &runs {
        let bar = Arc::clone(&bar);
        run.parts.grounding.watch(Box::new(move |done, of| bar.remark(format!(", grounding {done} of {of} pairs"))));
    }
    let replayed = replay::replay(session, &mut runs, |advanced| {
        bar.remark(String::new());
        bar.set(advanced.done as u64);
    });
    // The scorers outlive the bar.
    runs.iter().for_each(|run| run.parts.grounding.watch(Box::new(|_, _| ())));
    drop(bar);
    replayed?;
    endpoint::after(&runs);
    runs.into_iter()
        .map(|run| {
            let (id, queries, stored) = (run.plan.run_id.clone(), run.total(), run.stored());
            let folder = run.finish(session)?;
            output::note(global.quiet, &format!("{id}: {queries} queries, {stored} experiences stored"));
            Ok(folder)
        })
        .collect()
}
