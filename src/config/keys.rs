//! The one list of configuration keys: what each may hold, what it means, where its default comes from.
//!
//! In: nothing, or a key and a TOML value. Out: whether the value fits and, in words, what was expected. Loading, range
//! checks, error messages and the generated documents all read [`KEYS`]; tests keep it equal to the fields of
//! [`RunConfig`](super::RunConfig).

use Bound::{Excluding, Including, Open};
use Values::{Integer, Number, OneOf, Order, Path, Switch, Text};

/// One end of a legal range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// No limit.
    Open,
    /// The limit itself is legal.
    Including(f64),
    /// The limit itself is not.
    Excluding(f64),
}

/// What a key may hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Values {
    /// Any text.
    Text,
    /// A path, relative to the working directory.
    Path,
    /// `true` or `false`.
    Switch,
    /// An arrival order.
    Order,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A whole number from the first to the second, both legal.
    Integer(u64, u64),
    /// A finite number.
    Number(Bound, Bound),
}

/// One key of the configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Key {
    /// Dotted, as `--set` takes it.
    pub name: &'static str,
    /// What it may hold.
    pub values: Values,
    /// What it does, without the legal values.
    pub meaning: &'static str,
    /// Where the default comes from: `paper, …`, `recovered`, `reference`, `ours`.
    pub from: &'static str,
}

/// More worker threads than any machine has cores are a slip of the pen.
const MAX_THREADS: u64 = 1024;
/// Likewise for calls at a time.
const MAX_CONCURRENCY: u64 = 1024;
/// A passage has few more sentences than that.
const MAX_WINDOW: u64 = 64;
const U32_MAX: u64 = u32::MAX as u64;
/// TOML's largest integer.
const I64_MAX: u64 = i64::MAX as u64;
const COUNT: Values = Integer(1, U32_MAX);
const COUNT_OR_0: Values = Integer(0, U32_MAX);
const SHARE: Values = Number(Including(0.0), Including(1.0));
const FROM_0: Values = Number(Including(0.0), Open);

const fn key(name: &'static str, values: Values, from: &'static str, meaning: &'static str) -> Key {
    Key { name, values, meaning, from }
}

/// Every key, in the order of the file; keys of one section stand together.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("method", OneOf(&["vanilla", "linear", "living", "no_fusion", "no_scaffold", "no_gate"]), "ours",
        "The system that is replayed: dense top-k; LinearRAG; LivingRAG; LivingRAG without fusion, without scaffolds, without gates"),
    key("order", Order, "ours",
        "Arrival order of the questions, the same for every method of a comparison"),
    key("seed", Integer(0, I64_MAX), "ours",
        "Seed of everything drawn at random: simulated reader, bernoulli grounding"),

    key("dataset.path", Path, "ours",
        "The dataset folder; there is no default"),

    key("index.path", Path, "ours",
        "An index folder; empty builds one under the results folder, or finds it again by fingerprint"),
    key("index.encoder", Text, "recovered",
        "What makes the vectors that the dataset's `embeddings/` lacks: a model folder, a hub id, or `auto`, the encoder that its vector files name, else sentence-transformers/all-mpnet-base-v2"),
    key("index.vectors", Path, "ours",
        "The folder that keeps computed vectors, by encoder; shared by datasets, runs and processes"),
    key("index.annotations", OneOf(&["file", "none"]), "reference",
        "`file` reads annotations.jsonl and question_entities.jsonl of the dataset folder; `none` makes a graph without entities, which ranks by dense cosine"),
    key("index.passage_prefix", OneOf(&["index", "none"]), "reference",
        "`index` puts \"{i}:\" with the corpus index before each passage text"),
    key("index.adjacent_passages", OneOf(&["all", "same_document", "none"]), "reference",
        "Which corpus neighbours are joined by an edge of weight 1"),
    key("index.entity_text", OneOf(&["exact", "trim"]), "reference",
        "Entity strings exactly as annotated, or with white space stripped at both ends"),

    key("retrieve.propagation", OneOf(&["bfs", "matrix"]), "reference",
        "Form of entity propagation; the two are different algorithms"),
    key("retrieve.max_iterations", COUNT, "reference",
        "One more than the number of hops, as the reference counts"),
    key("retrieve.iteration_threshold", FROM_0, "reference",
        "Scores below it do not spread"),
    key("retrieve.passage_ratio", FROM_0, "reference",
        "Weight of dense similarity in passage weights"),
    key("retrieve.top_k_sentence", COUNT, "reference",
        "Sentences an entity may pick in one hop"),
    key("retrieve.passage_node_weight", FROM_0, "reference",
        "Weight of passage nodes in the reset vector"),
    key("retrieve.damping", Number(Excluding(0.0), Excluding(1.0)), "reference",
        "Damping of personalised PageRank"),
    key("retrieve.top_k", COUNT, "reference",
        "Passages given to the reader"),
    key("retrieve.length_b", SHARE, "ours",
        "b of equation 27, length normalisation; 0 switches it off, the paper has 0.1 on WixQA (appendix F.2)"),

    key("experience.top_k", COUNT, "recovered",
        "K, experiences matched per query; 5 on 2wiki and wixqa"),
    key("experience.alpha", SHARE, "recovered",
        "α of equation 7, share of query similarity beside activation similarity"),
    key("experience.beta", FROM_0, "ours",
        "β of equation 8, weight of stored activation maps"),
    key("experience.tau_s", Number(Excluding(0.0), Open), "ours",
        "τ_s of equation 9, temperature of the softmax over the matches"),
    key("experience.lambda", SHARE, "recovered",
        "λ of equation 12, share of template similarity in the scaffold score"),
    key("experience.epsilon", SHARE, "ours",
        "ε of equation 5, entries of an activation map below it are dropped"),
    key("experience.max_entities", COUNT_OR_0, "ours",
        "H, entries of an activation map kept at most; 0 keeps all"),
    key("experience.normalize", OneOf(&["max", "l1", "l2", "none"]), "ours",
        "`normalize` of equation 8: largest entry 1, sum 1, length 1, or as it is"),
    key("experience.activation_scale", OneOf(&["max", "none"]), "ours",
        "Scale of a stored activation map: largest entry 1, or as it is"),
    key("experience.key_sentences", COUNT, "ours",
        "Sentences of a summary at most (equation 6)"),
    key("experience.template_similarity", OneOf(&["auto", "embedding", "tokens"]), "ours",
        "How two masked questions are compared: by template vectors (the paper's) or by token counts; `auto` takes the vectors where the index has them, and the manifest says which"),

    key("gates.tau_novel", SHARE, "paper, appendix D",
        "τ_novel, novelty a candidate needs"),
    key("gates.tau_gs", SHARE, "paper, appendix D",
        "τ_gs, share of grounded claims a candidate needs"),
    key("gates.tau_nli", SHARE, "ours",
        "τ_nli, support a claim needs to count as grounded"),
    key("gates.evidence_per_claim", COUNT, "ours",
        "K_g, evidence sentences compared with each claim"),
    key("gates.grounding.kind", OneOf(&["nli", "lexical", "bernoulli"]), "ours",
        "What computes support: the paper's entailment model; containment of tokens and numbers (no model, no entailment); a seeded coin for simulation"),
    key("gates.grounding.p", SHARE, "ours",
        "Pass rate of `bernoulli`"),
    key("gates.grounding.model", Text, "paper, appendix B",
        "Model folder or hub id of `nli`, a cross-encoder with labels for entailment and contradiction"),
    key("gates.grounding.window", Integer(0, MAX_WINDOW), "ours",
        "Sentences before and after an evidence sentence that `nli` reads with it, as far as they stand in its passage; 0 is the sentence alone"),
    key("gates.grounding.precision", OneOf(&["auto", "f32", "bf16", "f16"]), "ours",
        "Precision of the model's products; sums, scores and norms are in 32 bits always; `auto` is `f32` on the CPU and `f16` on a GPU; `bf16` is for CPUs only, `f16` for GPUs only"),
    key("gates.grounding.cache", Path, "ours",
        "The file that keeps every scored pair of `nli`; shared by runs and processes; empty keeps none"),

    key("replay.lag", COUNT, "recovered",
        "W: query t sees the experiences accepted from queries up to t - W; 1 is strict"),
    key("replay.block", COUNT_OR_0, "ours",
        "Queries computed as one batch, at most the lag; 0 takes the lag; never changes a row"),
    key("replay.limit", COUNT_OR_0, "ours",
        "Only the first so many queries of the order; 0 is all"),
    key("replay.timings", Switch, "ours",
        "Write wall times into the rows; `false` gives byte-equal files"),

    key("generate.kind", OneOf(&["api", "recorded", "simulated", "gguf"]), "ours",
        "The reader: an OpenAI-compatible endpoint; answers of one from a file; a deterministic stand-in that looks at the gold data and says so in every row; a local model file"),
    key("generate.base_url", Text, "ours",
        "Endpoint of `api`"),
    key("generate.model", Text, "ours",
        "Model name of `api`, file of `gguf`, recording of `recorded` (what `livingrag cache export --recorded` writes)"),
    key("generate.api_key_env", Text, "ours",
        "Name of the environment variable that holds the key of `api`; where it is not set no key is sent"),
    key("generate.profile", OneOf(&["plain", "vllm", "dashscope", "ollama"]), "ours",
        "Whose endpoint it is, for what providers want said differently"),
    key("generate.thinking", OneOf(&["default", "on", "off"]), "ours",
        "Whether a reasoning model thinks before it answers; `default` says nothing; `on` and `off` need the profile vllm or dashscope"),
    key("generate.stream", Switch, "ours",
        "Ask for answers in pieces; some models can do nothing else"),
    key("generate.max_tokens", COUNT, "reference",
        "Completion limit"),
    key("generate.temperature", Number(Including(0.0), Including(2.0)), "reference",
        "Sampling temperature; above 0 `seed` is sent along"),
    key("generate.prompt", Path, "ours",
        "Prompt file; empty is the built-in prompt"),
    key("generate.passage_budget", COUNT_OR_0, "ours",
        "Most tokens of the passages of one prompt, the best ranked first; what does not fit is shortened or left out and counted in the row; 0 is no limit"),
    key("generate.tokenizer", Path, "ours",
        "The model's tokenizer.json, by which tokens are counted here: for the budget, where an endpoint reports none, and to see that it cut a prompt; empty estimates"),
    key("generate.answer_marker", OneOf(&["first", "last"]), "reference",
        "Which `Answer:` counts: what stands between the first and the second, or after the last"),
    key("generate.simulated_accuracy", SHARE, "ours",
        "Chance that `simulated` answers correctly where no gold passages are known"),
    key("generate.usd_per_million_prompt", FROM_0, "paper, table 3",
        "US dollars per million prompt tokens of `simulated`; the others go by `generate.prices`"),
    key("generate.usd_per_million_completion", FROM_0, "paper, table 3",
        "US dollars per million completion tokens of `simulated`; the others go by `generate.prices`"),
    key("generate.prices", Path, "ours",
        "Price list; empty is the built-in list; a model it does not list has no cost"),
    key("generate.timeout_s", Integer(1, 86_400), "ours",
        "Seconds one try of a call may take, to the last byte"),
    key("generate.concurrency", Integer(0, MAX_CONCURRENCY), "ours",
        "Most calls at a time; 0 is the lag; halved while the endpoint says it is too much"),
    key("generate.max_tries", COUNT, "ours",
        "Most times one call is sent before it is given up"),
    key("generate.retry_budget", COUNT_OR_0, "ours",
        "Most retries of all calls together"),
    key("generate.max_calls", COUNT_OR_0, "ours",
        "Most requests a run may send, every try and the judge's counted; it stops there and goes on with --resume; 0 is no cap"),
    key("generate.max_usd", FROM_0, "ours",
        "Most US dollars a run may spend, the judge's counted; it stops there and goes on with --resume; 0 is no cap"),
    key("generate.probe_tokens", COUNT_OR_0, "ours",
        "Length of the long prompt by which an endpoint is probed before anything new is asked; 0 probes nothing"),
    key("generate.cache", Path, "ours",
        "The file that keeps every answer of a model; shared by runs and processes; empty keeps none"),
    key("generate.cache_mode", OneOf(&["use", "refresh", "only"]), "ours",
        "`use` asks what is not kept, `refresh` asks everything anew, `only` asks nothing and stops at what is not kept"),

    key("judge.kind", OneOf(&["none", "api", "recorded", "gguf"]), "ours",
        "What judges answers: nothing, an OpenAI-compatible endpoint, judgements from a file, a local model file"),
    key("judge.base_url", Text, "ours",
        "Endpoint of the judge; empty is the reader's"),
    key("judge.model", Text, "ours",
        "Model name of `api`, recording of `recorded`, file of `gguf`; empty is the reader's file"),
    key("judge.api_key_env", Text, "ours",
        "Name of the environment variable that holds the judge's key; empty is the reader's"),
    key("judge.profile", OneOf(&["short", "support"]), "ours",
        "What kind of answers is judged: short spans or support answers"),
    key("judge.prompt", Path, "ours",
        "Prompt file of the judge; empty is the profile's own"),
    key("judge.max_tokens", COUNT, "ours",
        "Completion limit of a judgement; a thinking judge needs more"),
    key("judge.repeats", Integer(1, 99), "ours",
        "How often each answer is judged; the majority counts, and an even vote is unscored"),

    key("backend.kind", OneOf(&["auto", "cpu", "cuda"]), "ours",
        "Where the arithmetic runs; `auto` takes the GPU where there is one, else the CPU, and the manifest says which"),
    key("backend.threads", Integer(0, MAX_THREADS), "ours",
        "Worker threads; 0 is one a core; never changes a row"),
];

/// The key of this dotted name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Whether `name` is a section, that is a dotted prefix of some key.
pub fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

/// Up to three known keys or sections most like `unknown`, best first. The last part counts most, so that a key in the wrong
/// section is near and another key of the same section is not.
pub fn nearest(unknown: &str) -> Vec<&'static str> {
    /// Below it, two names have little in common.
    const ALIKE: f64 = 0.6;
    let mut known: Vec<&str> = KEYS.iter().flat_map(|key| [key.name, key.section()]).collect();
    known.retain(|name| !name.is_empty());
    known.sort_unstable();
    known.dedup();
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let alike = strsim::normalized_damerau_levenshtein;
    let mut scored: Vec<_> = known
        .into_iter()
        .map(|name| (0.9 * alike(&last(unknown), &last(name)) + 0.1 * alike(unknown, name), name))
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

impl Key {
    /// The section it stands in; empty at the top level.
    pub fn section(&self) -> &'static str {
        self.name.rsplit_once('.').map_or("", |(section, _)| section)
    }

    /// Its name within the section.
    pub fn leaf(&self) -> &'static str {
        self.name.rsplit_once('.').map_or(self.name, |(_, leaf)| leaf)
    }

    /// Whether the key may hold `value`: type and range.
    pub fn accepts(&self, value: &toml::Value) -> bool {
        match self.values {
            Text | Path => value.is_str(),
            Switch => value.is_bool(),
            Order => value.as_str().is_some_and(is_order),
            OneOf(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Integer(low, high) => {
                value.as_integer().and_then(|n| u64::try_from(n).ok()).is_some_and(|n| (low..=high).contains(&n))
            }
            // `alpha = 1` is as good as `alpha = 1.0`.
            Number(low, high) => value
                .as_float()
                .or_else(|| value.as_integer().map(|n| n as f64))
                .is_some_and(|x| x.is_finite() && above(low, x) && below(high, x)),
        }
    }

    /// What the key may hold, in words that follow "expected".
    pub fn expected(&self) -> String {
        match self.values {
            Text => "text".into(),
            Path => "a path".into(),
            Switch => "`true` or `false`".into(),
            Order => "`file`, `shuffle:<seed>`, `reverse`, `clustered`, `spread` or `drift`".into(),
            OneOf(words) => either(words),
            Integer(low, U32_MAX) => format!("a whole number from {low} to 2^32 - 1"),
            Integer(low, I64_MAX) => format!("a whole number from {low} to 2^63 - 1"),
            Integer(low, high) => format!("a whole number from {low} to {high}"),
            Number(low, high) => match (low, high) {
                (Including(a), Including(b)) => format!("a number from {a} to {b}"),
                (Excluding(a), Excluding(b)) => format!("a number above {a} and below {b}"),
                (Including(a), Excluding(b)) => format!("a number from {a} and below {b}"),
                (Excluding(a), Including(b)) => format!("a number above {a} and at most {b}"),
                (Including(a), Open) => format!("a number, at least {a}"),
                (Excluding(a), Open) => format!("a number above {a}"),
                (Open, Including(b)) => format!("a number, at most {b}"),
                (Open, Excluding(b)) => format!("a number below {b}"),
                (Open, Open) => "a number".into(),
            },
        }
    }
}

fn above(low: Bound, x: f64) -> bool {
    match low {
        Open => true,
        Including(limit) => x >= limit,
        Excluding(limit) => x > limit,
    }
}

fn below(high: Bound, x: f64) -> bool {
    match high {
        Open => true,
        Including(limit) => x <= limit,
        Excluding(limit) => x < limit,
    }
}

/// `` `a`, `b` or `c` ``.
fn either(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        Some((only, _)) => only.clone(),
        None => String::new(),
    }
}

/// Whether `text` names an arrival order.
fn is_order(text: &str) -> bool {
    match text.strip_prefix("shuffle:") {
        // Digits alone: `parse` would also take "+3", and one order must have one name.
        Some(seed) => seed.bytes().all(|b| b.is_ascii_digit()) && seed.parse::<u64>().is_ok(),
        None => matches!(text, "file" | "reverse" | "clustered" | "spread" | "drift"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::super::RunConfig;
    use super::super::load::flatten;
    use super::*;

    #[test]
    fn the_list_names_exactly_the_fields_of_the_configuration() {
        let fields: Vec<_> = flatten(&RunConfig::default()).unwrap().into_iter().map(|(name, _)| name).collect();
        let listed: Vec<_> = KEYS.iter().map(|key| key.name.to_owned()).collect();
        let (mut a, mut b) = (fields, listed);
        a.sort();
        b.sort();
        assert_eq!(a, b);
    }

    #[test]
    fn every_default_is_legal() {
        for (name, value) in flatten(&RunConfig::default()).unwrap() {
            let key = find(&name).unwrap();
            assert!(key.accepts(&value), "{name} = {value}, expected {}", key.expected());
        }
    }

    #[test]
    fn every_listed_word_is_a_value_of_its_field_and_a_foreign_word_is_none() {
        for key in KEYS {
            let OneOf(words) = key.values else { continue };
            for word in words.iter().chain(&["nonsense"]) {
                let mut nested = toml::Value::String((*word).into());
                for part in key.name.rsplit('.') {
                    nested = toml::Value::Table(toml::Table::from_iter([(part.to_owned(), nested)]));
                }
                assert_eq!(nested.try_into::<RunConfig>().is_ok(), *word != "nonsense", "{} = {word}", key.name);
            }
        }
    }

    #[test]
    fn sections_stand_together_and_parents_come_first() {
        let mut seen: Vec<&str> = Vec::new();
        for key in KEYS {
            if seen.last() != Some(&key.section()) {
                assert!(!seen.contains(&key.section()), "{} stands apart from its section", key.name);
                seen.push(key.section());
            }
        }
    }

    #[test]
    fn ranges_end_where_they_say() {
        let legal = |name: &str, value: f64| find(name).unwrap().accepts(&toml::Value::Float(value));
        assert!(legal("experience.alpha", 0.0) && legal("experience.alpha", 1.0));
        assert!(!legal("experience.alpha", -0.001) && !legal("experience.alpha", 1.001));
        assert!(!legal("retrieve.damping", 0.0) && !legal("retrieve.damping", 1.0) && legal("retrieve.damping", 0.5));
        assert!(!legal("experience.tau_s", 0.0) && legal("experience.tau_s", 1e-9));
        assert!(!legal("experience.beta", f64::NAN) && !legal("experience.beta", f64::INFINITY));
        let whole = |name: &str, value: i64| find(name).unwrap().accepts(&toml::Value::Integer(value));
        assert!(!whole("replay.lag", 0) && whole("replay.lag", 1) && !whole("replay.lag", 1 << 32));
        assert!(whole("experience.alpha", 1), "a whole number is a number");
    }

    #[test]
    fn an_order_has_one_name() {
        for order in ["file", "reverse", "clustered", "spread", "drift", "shuffle:0", "shuffle:18446744073709551615"] {
            assert!(is_order(order), "{order}");
        }
        for order in
            ["", "File", "shuffle", "shuffle:", "shuffle:x", "shuffle:+3", "shuffle:-1", "shuffle:18446744073709551616"]
        {
            assert!(!is_order(order), "{order}");
        }
    }

    #[test]
    fn a_slip_of_the_pen_and_a_wrong_section_find_the_key() {
        assert_eq!(nearest("retrieve.dampign"), ["retrieve.damping"]);
        assert_eq!(nearest("lag").first(), Some(&"replay.lag"));
        assert_eq!(nearest("top_k"), ["retrieve.top_k", "experience.top_k"]);
        assert_eq!(nearest("retreive.top_k"), ["retrieve.top_k", "experience.top_k"]);
        assert_eq!(nearest("retreive"), ["retrieve"]);
        assert!(nearest("zzzzzzzzzz").is_empty());
    }
}
