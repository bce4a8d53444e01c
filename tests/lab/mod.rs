//! Whole runs of the program against a server that behaves as told: a folder, a configuration, and what the server answers.
//!
//! In: a script of [`FaultServer`]. Out: run folders and logs, in none of which the key may be.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "every test binary uses its own part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use livingrag::trace::reader::{Run, read_run};
use serde_json::Value;

use crate::fault_server::{FaultServer, Play, Seen};
use crate::support::{Sandbox, repository};

/// The key of every run; it must be seen nowhere but at the server.
pub const KEY: &str = "sk-never-to-be-seen-0123456789";
/// A number below `n` that depends on the body alone.
pub fn draw(seen: &Seen, n: u64) -> u64 {
    let hash = blake3::hash(seen.body.as_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().unwrap()) % n
}

/// A text of the body.
pub fn field(seen: &Seen, path: &str) -> String {
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    body.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Whether the judge is asked.
pub fn is_judge(seen: &Seen) -> bool {
    field(seen, "/model") == "judge-model"
}

/// Whether a probe asks.
pub fn is_probe(seen: &Seen) -> bool {
    seen.body.contains("capital of Norway") || seen.body.contains("Reply with the word yes")
}

/// An answer that quotes the first passage, so that the grounding gate can let it pass.
pub fn answer(seen: &Seen) -> String {
    if is_judge(seen) {
        return if draw(seen, 2) == 0 { "Correct." } else { "**incorrect**" }.into();
    }
    let user = field(seen, "/messages/1/content");
    let passage = user.lines().find(|line| line.contains(". ")).unwrap_or("Nothing is known. ");
    let sentence = passage.split(". ").next().unwrap();
    let name: Vec<&str> = sentence.split(' ').take(3).collect();
    format!("Thought: {sentence}.\nAnswer: {}", name.join(" "))
}

/// A folder with a configuration of the demo's data, and a server.
pub struct Lab {
    pub sandbox: Sandbox,
    pub server: FaultServer,
}

impl Lab {
    /// Sixty questions of the demo, answered by `script`.
    pub fn new(script: impl Fn(&Seen) -> Play + Send + Sync + 'static) -> Self {
        let (sandbox, server) = (Sandbox::new(), FaultServer::start(script));
        let text = format!(
            "[dataset]\npath = {:?}\n[replay]\nlag = 4\nlimit = 60\ntimings = false\n[gates]\ntau_novel = 0.3\n\
             [generate]\nkind = \"api\"\nbase_url = {:?}\nmodel = \"test-model\"\napi_key_env = \"TEST_KEY\"\nmax_tokens = 64\n\
             cache = \"cache.sqlite\"\nprobe_tokens = 500\n",
            repository().join("data/demo"),
            server.base_url()
        );
        sandbox.write("run.toml", text);
        Self { sandbox, server }
    }

    /// `run` into the folder `out`, not yet started.
    pub fn command(&self, out: &str, sets: &[&str], more: &[&str]) -> Command {
        let mut args = vec!["run", "run.toml", "--out", out];
        sets.iter().for_each(|set| args.extend(["--set", *set]));
        args.extend(more);
        let mut command = self.sandbox.command(&args);
        command.env("TEST_KEY", KEY);
        command
    }

    /// What came out; the key must not be in it.
    pub fn output(&self, out: &str, sets: &[&str], more: &[&str]) -> Output {
        let output = self.command(out, sets, more).output().unwrap();
        for stream in [&output.stdout, &output.stderr] {
            assert!(!String::from_utf8_lossy(stream).contains("never-to-be-seen"), "the key was printed");
        }
        output
    }

    /// Runs to the end; the run folder and standard error.
    pub fn works(&self, out: &str, sets: &[&str], more: &[&str]) -> (PathBuf, String) {
        let output = self.output(out, sets, more);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{log}");
        (self.sandbox.path().join(String::from_utf8(output.stdout).unwrap().trim()), log)
    }

    /// Runs; exit code and standard error.
    pub fn fails(&self, out: &str, sets: &[&str], more: &[&str]) -> (i32, String) {
        let output = self.output(out, sets, more);
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// The request cache.
    pub fn cache(&self) -> PathBuf {
        self.sandbox.path().join("cache.sqlite")
    }
}

/// Every file of a folder.
pub fn bytes(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    entries.map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&p).unwrap())).collect()
}

/// A finished run.
pub fn rows(folder: &Path) -> Run {
    read_run(folder, false).unwrap()
}
