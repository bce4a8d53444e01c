//! A small harness for command tests: runs the built binary in a folder of its own and prints what came out as one text.
//!
//! In: arguments. Out: exit code, standard output and standard error, with what differs between machines replaced
//! (`[TMP]` this test's folder, `[REPO]` the repository, `[VERSION]`).

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "every test binary uses its own part")]

pub mod small;
pub mod world;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The repository.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A folder of its own for one test, which is removed with it.
pub struct Sandbox {
    folder: tempfile::TempDir,
}

impl Sandbox {
    /// An empty folder.
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file below the folder, making folders as needed.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// Every file below the folder, sorted: to show that nothing half-written is left.
    pub fn files(&self) -> Vec<String> {
        fn walk(folder: &Path, out: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, out) } else { out.push(path) }
            }
        }
        let mut paths = Vec::new();
        walk(self.path(), &mut paths);
        let mut names: Vec<_> =
            paths.iter().map(|path| path.strip_prefix(self.path()).unwrap().display().to_string()).collect();
        names.sort();
        names
    }

    /// The command, not yet started: working directory, no input, no environment that could change the text.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_livingrag"));
        command.args(args).current_dir(self.path()).stdin(Stdio::null());
        for variable in ["COLUMNS", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LIVINGRAG_API_KEY", "RUST_BACKTRACE"] {
            command.env_remove(variable);
        }
        // No test may fetch a model, or find one that this machine happens to have.
        command.env("HF_HUB_OFFLINE", "1").env("HF_HOME", self.path().join("hf"));
        command
    }

    /// Runs the command and returns what came out.
    pub fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs the command and returns exit code, standard output and standard error as one text for a snapshot.
    pub fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let part = |name: &str, bytes: &[u8]| format!("----- {name} -----\n{}", self.normalise(bytes));
        let code = output.status.code().map_or("killed".to_owned(), |code| code.to_string());
        format!("exit code: {code}\n{}{}", part("stdout", &output.stdout), part("stderr", &output.stderr))
    }

    fn normalise(&self, bytes: &[u8]) -> String {
        let text = String::from_utf8(bytes.to_vec()).expect("the program prints UTF-8");
        text.replace(&self.path().display().to_string(), "[TMP]")
            .replace(&repository().display().to_string(), "[REPO]")
            .replace(env!("CARGO_PKG_VERSION"), "[VERSION]")
    }
}
