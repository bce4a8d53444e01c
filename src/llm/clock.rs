//! Time, behind a trait so that tests of waiting do not wait.
//!
//! In: nothing. Out: time passed, time of day, and a pause.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the client takes time from.
pub trait Clock: Send + Sync {
    /// Time since some fixed moment; never goes back.
    fn now(&self) -> Duration;
    /// Seconds since 1970, for HTTP dates and the age of cached answers.
    fn unix_seconds(&self) -> i64;
    /// Waits.
    fn sleep(&self, pause: Duration);
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn unix_seconds(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
    }

    fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}
