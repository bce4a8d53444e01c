//! How many calls may be out at a time, and whether another may go out at all.
//!
//! In: calls that want to leave and how they ended. Out: permission. After a 429 the number is halved, once for all calls that
//! were out together; each success gives back its share, so that one full round of successes adds one. Caps are hard: a call
//! reserves the most it can cost before it leaves, and what is reserved counts.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::locked;
use crate::Error;

/// What to do at a cap.
const GO_ON: &str = "nothing is lost: raise generate.max_calls or generate.max_usd and go on with --resume";

/// Where a client stops. `None` is no cap.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Caps {
    /// Most requests sent, every try counted.
    pub calls: Option<u64>,
    /// Most US dollars spent.
    pub usd: Option<f64>,
}

/// How a call ended, as far as the gate cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Success,
    RateLimited,
    Otherwise,
}

/// Leave to send one request; given back with [`Gate::leave`].
#[derive(Debug)]
pub(super) struct Permit {
    epoch: u64,
    reserved: f64,
}

#[derive(Debug)]
struct State {
    limit: f64,
    out: usize,
    /// Counts halvings, so that calls that left before one do not halve again.
    epoch: u64,
    calls: u64,
    spent: f64,
    reserved: f64,
}

/// The gate of one client.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    most: f64,
    caps: Caps,
}

impl Gate {
    /// At most `most` calls at a time.
    pub fn new(most: u32, caps: Caps) -> Self {
        let most = f64::from(most.max(1));
        let state = State { limit: most, out: 0, epoch: 0, calls: 0, spent: 0.0, reserved: 0.0 };
        Self { state: Mutex::new(state), changed: Condvar::new(), most, caps }
    }

    /// Counts what an earlier part of a resumed run spent.
    pub fn add_before(&self, calls: u64, usd: f64) {
        let mut state = locked(&self.state);
        state.calls += calls;
        state.spent += usd;
    }

    /// Waits until a call that may cost `usd` can leave.
    ///
    /// # Errors
    /// When a cap forbids it, now and after every call that is still out has come home.
    pub fn enter(&self, usd: f64) -> Result<Permit, Error> {
        let mut state = locked(&self.state);
        loop {
            if let Some(most) = self.caps.calls
                && state.calls >= most
            {
                return Err(Error::work(format!("the cap of {most} calls is reached")).with_hint(GO_ON));
            }
            let room = (state.out as f64) < state.limit.floor();
            let affordable = self.caps.usd.is_none_or(|most| state.spent + state.reserved + usd <= most);
            if room && affordable {
                state.out += 1;
                state.calls += 1;
                state.reserved += usd;
                return Ok(Permit { epoch: state.epoch, reserved: usd });
            }
            if let Some(most) = self.caps.usd
                && !affordable
                && state.out == 0
            {
                return Err(Error::work(format!(
                    "the cap of ${most} is reached: ${:.4} are spent and the next call may cost ${usd:.4}",
                    state.spent
                ))
                .with_hint(GO_ON));
            }
            state = self.wait(state);
        }
    }

    /// Takes a permit back. True when it slowed the client down.
    pub fn leave(&self, permit: Permit, ended: Ended, usd: f64) -> bool {
        let mut state = locked(&self.state);
        state.out = state.out.saturating_sub(1);
        state.spent += usd;
        // With nothing out nothing is reserved: rounding must not add up over a long run.
        state.reserved = if state.out == 0 { 0.0 } else { (state.reserved - permit.reserved).max(0.0) };
        let slowed = ended == Ended::RateLimited && permit.epoch == state.epoch && state.limit > 1.0;
        match ended {
            Ended::RateLimited if permit.epoch == state.epoch => {
                state.limit = (state.limit / 2.0).max(1.0);
                state.epoch += 1;
            }
            Ended::Success => state.limit = (state.limit + 1.0 / state.limit).min(self.most),
            Ended::RateLimited | Ended::Otherwise => {}
        }
        self.changed.notify_all();
        slowed
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn limit(gate: &Gate) -> f64 {
        locked(&gate.state).limit
    }

    #[test]
    fn a_rate_limit_halves_once_for_all_that_were_out() {
        let gate = Gate::new(16, Caps::default());
        let out: Vec<_> = (0..8).map(|_| gate.enter(0.0).unwrap()).collect();
        let slowed: Vec<_> = out.into_iter().map(|permit| gate.leave(permit, Ended::RateLimited, 0.0)).collect();
        assert_eq!(slowed, [true, false, false, false, false, false, false, false]);
        assert_eq!(limit(&gate), 8.0);
        for expected in [4.0, 2.0, 1.0, 1.0] {
            let permit = gate.enter(0.0).unwrap();
            gate.leave(permit, Ended::RateLimited, 0.0);
            assert_eq!(limit(&gate), expected);
        }
    }

    #[test]
    fn it_recovers_slowly_and_not_beyond() {
        let gate = Gate::new(4, Caps::default());
        let permit = gate.enter(0.0).unwrap();
        gate.leave(permit, Ended::RateLimited, 0.0);
        let mut rounds = 0;
        while limit(&gate) < 4.0 {
            let permit = gate.enter(0.0).unwrap();
            gate.leave(permit, Ended::Success, 0.0);
            rounds += 1;
        }
        // 2, 2.5, 2.9, 3.24, 3.55, 3.83, then 4.09 which is cut to 4: six successes.
        assert_eq!(rounds, 6);
        assert_eq!(limit(&gate), 4.0);
    }

    #[test]
    fn a_cap_on_calls_counts_what_was_sent_before() {
        let gate = Gate::new(4, Caps { calls: Some(3), usd: None });
        gate.add_before(1, 0.0);
        for _ in 0..2 {
            let permit = gate.enter(0.0).unwrap();
            gate.leave(permit, Ended::Otherwise, 0.0);
        }
        assert!(gate.enter(0.0).unwrap_err().to_string().contains("3 calls"));
    }

    #[test]
    fn a_cap_on_dollars_is_never_passed() {
        let gate = Gate::new(4, Caps { calls: None, usd: Some(1.0) });
        let first = gate.enter(0.6).unwrap();
        std::thread::scope(|scope| {
            // 0.6 reserved and 0.5 wanted: it waits, and goes when the first came home with 0.2.
            let second = scope.spawn(|| gate.enter(0.5).map(|permit| gate.leave(permit, Ended::Success, 0.5)));
            gate.leave(first, Ended::Success, 0.2);
            assert!(second.join().unwrap().is_ok());
        });
        let error = gate.enter(0.5).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("$0.7000"), "{error}");
    }
}
