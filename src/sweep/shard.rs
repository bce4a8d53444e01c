//! Which runs are wanted: a share of them (`--shard i/n`), or those of some name (`--only`).
//!
//! In: the list of runs in the order of the plan, which is the same on every machine. Out: a part of it. The shares are consecutive, so
//! that runs of one dataset and order stay together, and their lengths differ by one at most.

use std::ops::Range;
use std::str::FromStr;

use crate::{Error, Result};

/// Part i of n, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Which part.
    pub part: usize,
    /// Of how many.
    pub of: usize,
}

impl FromStr for Shard {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((part, of)) if part >= 1 && part <= of => Ok(Self { part, of }),
            _ => Err(Error::request(format!("--shard {text} is no part of a whole"))
                .with_hint("write --shard i/n with i from 1 to n, for example --shard 2/4")),
        }
    }
}

impl Shard {
    /// The places of this part among `n` runs.
    pub fn range(self, n: usize) -> Range<usize> {
        (self.part - 1) * n / self.of..self.part * n / self.of
    }
}

/// Whether a run's id fits: a pattern with `*` and `?` must fit the whole id, other text must stand in it.
pub fn fits(pattern: &str, run_id: &str) -> bool {
    if !pattern.contains(['*', '?']) {
        return run_id.contains(pattern);
    }
    // Characters of both; `star` is where to go back to: after the last `*`, one character later.
    let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), run_id.chars().collect());
    let (mut i, mut j, mut star) = (0, 0, None);
    while j < t.len() {
        match p.get(i) {
            Some('*') => {
                star = Some((i + 1, j));
                i += 1;
            }
            Some(&c) if c == '?' || c == t[j] => (i, j) = (i + 1, j + 1),
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    (i, j) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    p[i..].iter().all(|&c| c == '*')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_shard_is_written_from_1() {
        assert_eq!("2/4".parse::<Shard>().unwrap(), Shard { part: 2, of: 4 });
        for wrong in ["0/4", "5/4", "1", "a/b", "1/0", "-1/2", ""] {
            assert!(wrong.parse::<Shard>().unwrap_err().report().contains("--shard i/n"), "{wrong}");
        }
        assert_eq!((Shard { part: 2, of: 3 }).range(7), 2..4);
    }

    #[test]
    fn patterns() {
        let id = "2wiki-living-shuffle1-s0-44613bf30633";
        for yes in
            ["living", "2wiki-living-shuffle1-s0-44613bf30633", "*living*", "2wiki-*-s0-*", "2wiki-??ving-*", "*", ""]
        {
            assert!(fits(yes, id), "{yes}");
        }
        for no in ["linear", "living*", "*living", "2wiki-?ving-*", "?"] {
            assert!(!fits(no, id), "{no}");
        }
    }

    proptest! {
        #[test]
        fn shards_are_a_partition(n in 0_usize..200, of in 1_usize..20) {
            let parts: Vec<_> = (1..=of).flat_map(|part| Shard { part, of }.range(n)).collect();
            prop_assert_eq!(parts, (0..n).collect::<Vec<_>>());
            let sizes: Vec<usize> = (1..=of).map(|part| Shard { part, of }.range(n).len()).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
    }
}
