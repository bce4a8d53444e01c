//! How far long work has come, on standard error.
//!
//! In: counts of things done. Out: a bar where standard error is a terminal; a plain line now and then where it is a file or
//! a pipe; nothing when quiet. Safe to share between threads.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time between two plain lines.
const EVERY: Duration = Duration::from_secs(10);

/// Progress of one piece of work.
pub struct Progress {
    what: String,
    total: u64,
    done: AtomicU64,
    /// Done before this process began; it says nothing about the speed.
    before: u64,
    every: Duration,
    remark: Mutex<String>,
    start: Instant,
    form: Form,
}

enum Form {
    Nothing,
    Bar(ProgressBar),
    /// When the last line was printed.
    Lines(Mutex<Instant>),
}

impl Progress {
    /// Starts counting `total` things; `what` names the work, for example `retrieve`.
    pub fn new(what: &str, total: u64, quiet: bool) -> Self {
        let start = Instant::now();
        let form = if quiet {
            Form::Nothing
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {per_sec:.0} {eta} left") {
                bar.set_style(style);
            }
            bar.set_message(what.to_owned());
            Form::Bar(bar)
        } else {
            Form::Lines(Mutex::new(start))
        };
        Self {
            what: what.to_owned(),
            total,
            done: AtomicU64::new(0),
            before: 0,
            every: EVERY,
            remark: Mutex::default(),
            start,
            form,
        }
    }

    /// Says that `done` things were done before, and how often a plain line is wanted.
    pub fn long(mut self, done: u64, every: Duration) -> Self {
        self.before = done;
        self.every = every;
        if let Form::Bar(bar) = &self.form {
            bar.reset_eta();
        }
        self.set(done);
        self
    }

    /// What else is to be said beside the count, for example how many things failed.
    pub fn remark(&self, text: String) {
        if let Form::Bar(bar) = &self.form {
            bar.set_message(format!("{}{text}", self.what));
        }
        if let Ok(mut remark) = self.remark.lock() {
            *remark = text;
        }
        if let Form::Lines(_) = &self.form {
            self.show(self.done.load(Ordering::Relaxed));
        }
    }

    /// Counts `n` more things as done.
    pub fn add(&self, n: u64) {
        self.show(self.done.fetch_add(n, Ordering::Relaxed) + n);
    }

    /// Sets how many things are done, for work that counts by itself or resumes.
    pub fn set(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.show(done);
    }

    /// Takes the bar away. Dropping does the same.
    pub fn finish(self) {}

    fn show(&self, done: u64) {
        match &self.form {
            Form::Nothing => {}
            Form::Bar(bar) => bar.set_position(done),
            Form::Lines(last) => {
                // Another thread that holds the lock is printing already.
                let Ok(mut last) = last.try_lock() else { return };
                if last.elapsed() >= self.every {
                    *last = Instant::now();
                    let now = done.saturating_sub(self.before);
                    let left = time_left(now, self.total.saturating_sub(self.before), self.start.elapsed());
                    let remark = self.remark.lock().map(|r| r.clone()).unwrap_or_default();
                    let line = format!("{}{remark}", plain_line(&self.what, done, self.total, left));
                    let _ = writeln!(std::io::stderr().lock(), "{line}");
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Form::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }
}

/// `retrieve: 250 of 1000 (25 %), 30 s left`.
fn plain_line(what: &str, done: u64, total: u64, left: Option<Duration>) -> String {
    let percent = if total == 0 { 100 } else { 100 * u128::from(done) / u128::from(total) };
    let left = match left {
        Some(left) => format!(", {} left", readable(left)),
        None => String::new(),
    };
    format!("{what}: {done} of {total} ({percent} %){left}")
}

/// What is left if it goes on at the mean rate so far; unknown before the first thing is done.
fn time_left(done: u64, total: u64, elapsed: Duration) -> Option<Duration> {
    (done > 0).then(|| elapsed.mul_f64(total.saturating_sub(done) as f64 / done as f64))
}

/// `45 s`, `3 min 20 s`, `2 h 5 min`.
pub(super) fn readable(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_says_what_is_done_and_what_is_left() {
        let line =
            |done, total, seconds| plain_line("run", done, total, time_left(done, total, Duration::from_secs(seconds)));
        assert_eq!(line(250, 1000, 10), "run: 250 of 1000 (25 %), 30 s left");
        assert_eq!(line(1, 21, 10), "run: 1 of 21 (4 %), 3 min 20 s left");
        assert_eq!(line(1, 751, 10), "run: 1 of 751 (0 %), 2 h 5 min left");
        assert_eq!(line(0, 5, 10), "run: 0 of 5 (0 %)");
        assert_eq!(line(0, 0, 0), "run: 0 of 0 (100 %)");
    }

    #[test]
    fn counting_from_several_threads_loses_nothing() {
        let progress = Progress::new("count", 4000, true);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| progress.add(1)));
            }
        });
        assert_eq!(progress.done.load(Ordering::Relaxed), 4000);
    }
}
