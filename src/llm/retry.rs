//! How long to wait before asking again.
//!
//! In: which try failed, and what the endpoint asked for. Out: a pause. The jitter comes from the call's key and a seed, so it
//! does not depend on timing.

use std::time::Duration;

use super::{CacheKey, date};

/// When and how often a call is asked again.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// Most times one call is sent, the first included.
    pub max_tries: u32,
    /// Pause before the second try; it doubles with each.
    pub first_pause: Duration,
    /// No pause is longer, whatever the endpoint asks for.
    pub longest_pause: Duration,
    /// Most retries of the whole client.
    pub budget: u64,
    /// Seed of the jitter.
    pub seed: u64,
}

impl Default for RetryPolicy {
    /// Eight tries, pauses from half a second to a minute, 10,000 retries in all.
    fn default() -> Self {
        Self {
            max_tries: 8,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(60),
            budget: 10_000,
            seed: 0,
        }
    }
}

impl RetryPolicy {
    /// Pause after try number `tries` (from 1) of a call failed.
    ///
    /// Exponential, between half and all of `first_pause · 2^(tries-1)`; at least what the endpoint asked for; at most
    /// `longest_pause`. A server whose clock or mind is off ("come back in 2031") cannot stop a run.
    pub(super) fn pause(&self, key: &CacheKey, tries: u32, asked: Option<Duration>) -> Duration {
        let doubled = self.first_pause.saturating_mul(1 << tries.saturating_sub(1).min(20)).min(self.longest_pause);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&key.0).update(&self.seed.to_le_bytes()).update(&tries.to_le_bytes());
        let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
        let jitter = f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX);
        let own = doubled.mul_f64(0.5 + 0.5 * jitter);
        asked.map_or(own, |asked| asked.max(own)).min(self.longest_pause)
    }
}

/// What `retry-after-ms` or `Retry-After` (seconds or a date) ask for; `None` when neither is there or can be read.
pub(super) fn asked_pause(after: Option<&str>, after_ms: Option<&str>, unix_seconds: i64) -> Option<Duration> {
    let number = |text: &str, unit: f64| {
        let seconds = text.trim().parse::<f64>().ok().filter(|n| n.is_finite())?;
        Duration::try_from_secs_f64((seconds * unit).max(0.0)).ok()
    };
    after_ms.and_then(|text| number(text, 1e-3)).or_else(|| {
        let text = after?;
        number(text, 1.0).or_else(|| {
            let wait = date::http_date(text)?.saturating_sub(unix_seconds);
            Some(Duration::from_secs(u64::try_from(wait).unwrap_or(0)))
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    const KEY: CacheKey = CacheKey([7; 32]);

    #[test]
    fn pauses_double_within_their_jitter() {
        let policy = RetryPolicy::default();
        for (tries, most) in [(1, 500), (2, 1000), (3, 2000), (7, 32_000), (8, 60_000), (4_000_000_000, 60_000)] {
            let pause = policy.pause(&KEY, tries, None).as_millis();
            assert!((most / 2..=most).contains(&pause), "try {tries}: {pause} ms");
        }
        let other = RetryPolicy { seed: 1, ..policy.clone() };
        assert_ne!(policy.pause(&KEY, 3, None), other.pause(&KEY, 3, None));
        assert_eq!(policy.pause(&KEY, 3, None), policy.pause(&KEY, 3, None));
    }

    #[test]
    fn the_endpoint_is_heard_within_reason() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.pause(&KEY, 1, Some(Duration::from_secs(9))), Duration::from_secs(9));
        assert_eq!(policy.pause(&KEY, 1, Some(Duration::from_secs(100_000_000))), Duration::from_secs(60));
        assert!(policy.pause(&KEY, 1, Some(Duration::ZERO)) >= Duration::from_millis(250));
    }

    /// Pitfall 32: `Retry-After: Wed, 01 Jan 2031 00:00:00 GMT`, which is 1,924,992,000 by `date +%s`.
    #[test]
    fn pitfall_32_every_form_of_retry_after() {
        let asked = |after, ms| asked_pause(after, ms, 1_924_991_990);
        assert_eq!(asked(Some("7"), None), Some(Duration::from_secs(7)));
        assert_eq!(asked(Some(" 0.5 "), None), Some(Duration::from_millis(500)));
        assert_eq!(asked(Some("-3"), None), Some(Duration::ZERO));
        assert_eq!(asked(Some("Wed, 01 Jan 2031 00:00:00 GMT"), None), Some(Duration::from_secs(10)));
        assert_eq!(asked(Some("Sun, 06 Nov 1994 08:49:37 GMT"), None), Some(Duration::ZERO));
        assert_eq!(asked(Some("7"), Some("1500")), Some(Duration::from_millis(1500)));
        assert_eq!(asked(Some("7"), Some("soon")), Some(Duration::from_secs(7)));
        for nothing in [None, Some("soon"), Some(""), Some("nan"), Some("inf")] {
            assert_eq!(asked(nothing, None), None, "{nothing:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_header_is_survived(after in ".*", now in proptest::prelude::any::<i64>()) {
            let policy = RetryPolicy::default();
            let pause = policy.pause(&KEY, 1, asked_pause(Some(&after), Some(&after), now));
            proptest::prop_assert!(pause <= policy.longest_pause);
        }
    }
}
