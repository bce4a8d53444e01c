//! A Slurm array job for a sweep.
//!
//! In: how the command is called and in how many parts. Out: the text of a script for `sbatch`. Every task does its shard of the runs with
//! `--resume`, so the whole job may be submitted again after a failure or a time limit.

use std::path::Path;

use super::shard::Shard;

/// What the script calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job<'a> {
    /// Name of the sweep.
    pub name: &'a str,
    /// Tasks of the array.
    pub tasks: usize,
    /// The program.
    pub program: &'a Path,
    /// Working directory: every path of the command is relative to it.
    pub directory: &'a Path,
    /// `sweep` and its arguments, without shard, resume and threads.
    pub arguments: &'a [String],
    /// Where the tasks' output goes.
    pub logs: &'a Path,
}

/// A word of the shell, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The script.
pub fn script(job: &Job<'_>) -> String {
    let arguments: Vec<String> = job.arguments.iter().map(|a| quoted(a)).collect();
    let last = Shard { part: job.tasks, of: job.tasks };
    format!(
        "#!/bin/bash\n\
         #SBATCH --job-name=livingrag-{name}\n\
         #SBATCH --array=1-{tasks}\n\
         #SBATCH --cpus-per-task=1\n\
         #SBATCH --output={logs}/%A_%a.log\n\
         # Task i of {tasks} does part i of the runs (the last is --shard {part}/{of}). Add --partition, --time, --mem and --gres as your\n\
         # cluster wants them; more processors a task speed it up, and change no result.\n\
         set -euo pipefail\n\
         cd {directory}\n\
         exec {program} {arguments} --resume --shard \"${{SLURM_ARRAY_TASK_ID}}/{tasks}\" \\\n    \
         --threads \"${{SLURM_CPUS_PER_TASK:-1}}\"\n",
        name = job.name,
        tasks = job.tasks,
        logs = job.logs.display(),
        part = last.part,
        of = last.of,
        directory = quoted(&job.directory.display().to_string()),
        program = quoted(&job.program.display().to_string()),
        arguments = arguments.join(" "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_does_one_shard_a_task() {
        let arguments = ["sweep".to_owned(), "it's.toml".to_owned(), "--out".to_owned(), "r".to_owned()];
        let text = script(&Job {
            name: "mine",
            tasks: 4,
            program: Path::new("/opt/livingrag"),
            directory: Path::new("/home/a b"),
            arguments: &arguments,
            logs: Path::new("/logs"),
        });
        assert!(text.starts_with("#!/bin/bash\n#SBATCH --job-name=livingrag-mine\n#SBATCH --array=1-4\n"), "{text}");
        assert!(text.contains("\ncd '/home/a b'\n"), "{text}");
        assert!(
            text.contains(
                r#"exec '/opt/livingrag' 'sweep' 'it'\''s.toml' '--out' 'r' --resume --shard "${SLURM_ARRAY_TASK_ID}/4" \"#
            ),
            "{text}"
        );
    }
}
