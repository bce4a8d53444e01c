//! From tokens to US dollars.
//!
//! In: a price list (`configs/prices.toml`, built in) and what a run will ask. Out: a model's [`Prices`], by which
//! [`crate::generate::cost_usd`] counts a call, and a quote.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;

use crate::generate::Prices;
use crate::{Error, Result};

/// The list that is built in.
const BUILT_IN: &str = include_str!("../../configs/prices.toml");

/// A price list with its version.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceTable {
    version: String,
    models: BTreeMap<String, Prices>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceFile {
    version: String,
    #[serde(default)]
    models: BTreeMap<String, PriceRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceRow {
    prompt: f64,
    completion: f64,
    cached: Option<f64>,
}

impl PriceTable {
    /// The built-in list.
    ///
    /// # Errors
    /// Never in a released build: a test reads the list.
    pub fn built_in() -> Result<Self> {
        Self::parse(BUILT_IN, "configs/prices.toml")
    }

    /// A list of one's own.
    ///
    /// # Errors
    /// Names file, line and value.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
        Self::parse(&text, &path.display().to_string())
    }

    fn parse(text: &str, name: &str) -> Result<Self> {
        let file: PriceFile =
            toml::from_str(text).map_err(|e| Error::request(format!("{name} is no price list")).with_source(e))?;
        let mut models = BTreeMap::new();
        for (model, PriceRow { prompt, completion, cached }) in file.models {
            for (key, value) in [("prompt", prompt), ("completion", completion), ("cached", cached.unwrap_or(0.0))] {
                if !value.is_finite() || value < 0.0 {
                    return Err(Error::request(format!(
                        "{name}: models.{model:?}.{key} = {value}, expected a price from 0 up"
                    )));
                }
            }
            models.insert(model, Prices { prompt, cached, completion });
        }
        Ok(Self { version: file.version, models })
    }

    /// The list's version, for manifests, since prices change.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The prices of a model, named exactly as requested; `None` when the list has none, and then costs are null.
    pub fn of(&self, model: &str) -> Option<Prices> {
        self.models.get(model).copied()
    }
}

/// What a run will take, before it starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quote {
    /// Calls that will go out.
    pub new_calls: u64,
    /// Calls that the cache answers.
    pub cached_calls: u64,
    /// Prompt tokens of the new calls, estimated.
    pub prompt_tokens: u64,
    /// Completion tokens of the new calls, estimated.
    pub completion_tokens: u64,
    /// US dollars; `None` without a price.
    pub usd: Option<f64>,
    /// Minutes; `None` when nothing is known about the endpoint's speed.
    pub minutes: Option<f64>,
}

impl Quote {
    /// Quotes `new_calls` with their tokens; `seconds_per_call` at `concurrency` calls at a time.
    pub fn new(
        (new_calls, cached_calls): (u64, u64),
        (prompt_tokens, completion_tokens): (u64, u64),
        prices: Option<Prices>,
        seconds_per_call: Option<f64>,
        concurrency: u32,
    ) -> Self {
        let usd = prices.map(|p| (prompt_tokens as f64 * p.prompt + completion_tokens as f64 * p.completion) / 1e6);
        let minutes = seconds_per_call.map(|s| s * new_calls as f64 / f64::from(concurrency.max(1)) / 60.0);
        Self { new_calls, cached_calls, prompt_tokens, completion_tokens, usd, minutes }
    }
}

impl Quote {
    /// Both together: one after the other at the same endpoint. What one does not know neither does the sum, unless it asks
    /// nothing.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let sum = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (a, None) if other.new_calls == 0 => a,
            (None, b) if self.new_calls == 0 => b,
            _ => None,
        };
        Self {
            new_calls: self.new_calls + other.new_calls,
            cached_calls: self.cached_calls + other.cached_calls,
            prompt_tokens: self.prompt_tokens + other.prompt_tokens,
            completion_tokens: self.completion_tokens + other.completion_tokens,
            usd: sum(self.usd, other.usd),
            minutes: sum(self.minutes, other.minutes),
        }
    }
}

impl fmt::Display for Quote {
    /// `100 new calls, 20 cached, about $0.62 and 3 minutes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.new_calls == 1 { "" } else { "s" };
        write!(f, "{} new call{plural}, {} cached", self.new_calls, self.cached_calls)?;
        match self.usd {
            Some(usd) if usd > 0.0 && usd < 0.01 => write!(f, ", under $0.01")?,
            Some(usd) => write!(f, ", about ${usd:.2}")?,
            None if self.new_calls == 0 => {}
            None => write!(f, ", cost unknown (no price for this model)")?,
        }
        match self.minutes {
            Some(minutes) if self.new_calls > 0 => match minutes.ceil() {
                few if few <= 1.0 => write!(f, " and a minute"),
                many => write!(f, " and {many} minutes"),
            },
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    /// The paper's model, prices and first row of its table 3: 1,000 queries of 6038.2 and 1067.6 tokens cost $6.22.
    #[test]
    fn the_papers_price() {
        let table = PriceTable::built_in().unwrap();
        let price = table.of("qwen3.6-plus").unwrap();
        assert_eq!((price.prompt, price.completion), (0.5, 3.0));
        let quote = Quote::new((1000, 0), (6_038_200, 1_067_600), Some(price), Some(8.0), 16);
        assert_eq!(quote.to_string(), "1000 new calls, 0 cached, about $6.22 and 9 minutes");
        assert_eq!((table.of("qwen"), table.version()), (None, "2026-1"));
    }

    #[test]
    fn quotes() {
        let said = |new, cached, price| Quote::new((new, cached), (10, 10), price, None, 1).to_string();
        assert_eq!(said(1, 3, None), "1 new call, 3 cached, cost unknown (no price for this model)");
        let price = Prices { prompt: 1.0, completion: 1.0, cached: None };
        assert_eq!(said(2, 0, Some(price)), "2 new calls, 0 cached, under $0.01");
        assert_eq!(
            Quote::new((0, 60), (0, 0), Some(price), Some(1.0), 4).to_string(),
            "0 new calls, 60 cached, about $0.00"
        );
    }

    #[test]
    fn quotes_add_up_and_what_one_does_not_know_the_sum_does_not() {
        let price = Some(Prices { prompt: 1e6, completion: 0.0, cached: None });
        let quote = |new, price, seconds| Quote::new((new, 1), (new, 0), price, seconds, 1);
        let sum = quote(2, price, Some(60.0)).and(quote(3, price, Some(60.0)));
        assert_eq!(sum.to_string(), "5 new calls, 2 cached, about $5.00 and 5 minutes");
        assert_eq!(quote(2, price, None).and(quote(3, None, None)).usd, None);
        assert_eq!(quote(2, price, None).and(quote(0, None, None)).usd, Some(2.0));
    }

    #[test]
    fn a_bad_list_is_named() {
        let error =
            PriceTable::parse("version = \"1\"\n[models.m]\nprompt = -1.0\ncompletion = 1.0\n", "p.toml").unwrap_err();
        assert!(error.to_string().contains("p.toml: models.\"m\".prompt = -1"), "{error}");
        assert!(PriceTable::parse("[models.m]\n", "p.toml").unwrap_err().to_string().contains("p.toml"));
    }
}
