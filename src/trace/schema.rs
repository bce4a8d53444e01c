//! The columns of `traces.parquet`, `experiences.parquet` and of `retrieve`'s file: name, type and meaning in one place.
//!
//! In: rows. Out: Arrow schemas and record batches, and rows again. A column's type follows from the field of the row struct, so
//! the table below and the struct cannot disagree about it; the test at the end holds their names and order together.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::SCHEMA_VERSION;
use super::cell::Stored;
pub use super::cell::{Problem, type_name};
use super::row::{
    ActivationCell, ActiveCell, ClaimCell, ExperienceRow, MatchCell, PassageCell, RetrieveRow, SeedCell, TraceRow,
    WeightCell,
};
use crate::gates::Decision;
use crate::generate::{Judgement, LlmStatus};

/// Key of the file's metadata that holds the schema version.
pub const VERSION_KEY: &str = "livingrag.schema_version";

/// Key of a field's metadata that holds its description.
pub const DESCRIPTION_KEY: &str = "description";

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its Arrow type; [`type_name`] gives the documented spelling.
    pub data_type: DataType,
    /// Whether it may be null.
    pub nullable: bool,
    /// What it means.
    pub description: &'static str,
}

/// A row struct that is stored as a table.
pub trait Row: Sized {
    /// Every column, in file order.
    fn columns() -> Vec<Column>;

    /// The columns of these rows.
    ///
    /// # Errors
    /// When a float is not finite; names the column and the entry.
    fn encode(rows: &[Self]) -> Result<Vec<ArrayRef>, Problem>;

    /// The rows of a batch. Columns are found by name; others are ignored.
    ///
    /// # Errors
    /// When a column is missing, of another type, or null where it may not be.
    fn decode(batch: &RecordBatch) -> Result<Vec<Self>, Problem>;

    /// The Arrow schema, with the schema version and each column's description as metadata.
    fn schema() -> Arc<Schema> {
        let fields: Vec<Field> = Self::columns()
            .into_iter()
            .map(|c| {
                Field::new(c.name, c.data_type, c.nullable)
                    .with_metadata([(DESCRIPTION_KEY.to_string(), c.description.to_string())])
            })
            .collect();
        let metadata = [(VERSION_KEY.to_string(), SCHEMA_VERSION.to_string())];
        Arc::new(Schema::new_with_metadata(fields, metadata))
    }
}

/// The values of one column; `$old` where files of earlier programs do not have it.
macro_rules! column {
    ($batch:ident, $name:ident: $kind:ty) => {{
        let column = $batch
            .column_by_name(stringify!($name))
            .ok_or_else(|| Problem::new("is missing").inside(stringify!($name)))?;
        <$kind as Stored>::decode(column).map_err(|p| p.inside(stringify!($name)))?
    }};
    ($batch:ident, $name:ident: $kind:ty, $old:expr) => {
        match $batch.column_by_name(stringify!($name)) {
            Some(column) => <$kind as Stored>::decode(column).map_err(|p| p.inside(stringify!($name)))?,
            None => vec![$old; $batch.num_rows()],
        }
    };
}

macro_rules! columns {
    ($row:ident { $($name:ident: $kind:ty = $description:literal $(or $old:expr)?,)+ }) => {
        impl Row for $row {
            fn columns() -> Vec<Column> {
                vec![$(Column {
                    name: stringify!($name),
                    data_type: <$kind as Stored>::data_type(),
                    nullable: <$kind as Stored>::NULLABLE,
                    description: $description,
                }),+]
            }

            fn encode(rows: &[Self]) -> Result<Vec<ArrayRef>, Problem> {
                Ok(vec![$(
                    <$kind as Stored>::encode(&rows.iter().map(|r| &r.$name).collect::<Vec<_>>())
                        .map_err(|p| p.inside(stringify!($name)))?
                ),+])
            }

            fn decode(batch: &RecordBatch) -> Result<Vec<Self>, Problem> {
                $(let mut $name = column!(batch, $name: $kind $(, $old)?).into_iter();)+
                let mut rows = Vec::with_capacity(batch.num_rows());
                while let ($(Some($name),)+) = ($($name.next(),)+) {
                    rows.push(Self { $($name),+ });
                }
                Ok(rows)
            }
        }
    };
}

columns! { TraceRow {
    run_id: String = "The run: a readable prefix and a hash of its resolved plan.",
    dataset: String = "Name of the dataset.",
    method: String = "The system replayed: vanilla, linear, living, no_fusion, no_scaffold, no_gate.",
    order: String = "Arrival order of the stream: file, shuffle:<seed>, reverse, clustered, spread, drift.",
    seed: u64 = "Seed of everything drawn at random.",
    stream_index: u32 = "t, the query's place in the stream, from 1.",
    query_id: String = "The publisher's id of the question.",
    question: String = "The question as published.",
    gold_answers: Vec<String> = "Gold answers, the main one first.",
    prediction: String = "The answer read from the response; empty when there is none.",
    raw_response: String = "The response as it came.",
    lag: u32 = "W: the query sees the experiences accepted from queries up to t - W.",
    store_visible: u32 = "Experiences this query could see.",
    store_committed: u32 = "Experiences committed before its gate.",
    fallback: Option<String> = "Why the ranking is dense: dense_no_seed, dense_zero_reset; null when it is not.",
    seeds: Vec<SeedCell> = "Seed entities after linking, with their cosine.",
    activation_base_n: u32 = "Non-zero entries of the base activation.",
    activation_fused_n: u32 = "Non-zero entries of the fused activation.",
    activation_final_n: u32 = "Non-zero entries of the final activation.",
    fused_new_above_threshold: u32 = "Entities that reach the iteration threshold only through fusion.",
    matches: Vec<MatchCell> = "Top-K matched experiences: score of equation 7, its two cosines, weight of equation 10.",
    scaffold: Option<u32> = "Experience used as the scaffold, equation 13; null when none was.",
    scaffold_score: Option<f32> = "Its score, equation 12.",
    scaffold_template_tfidf: Option<f32> = "TF-IDF cosine of its masked question and this one's.",
    passages: Vec<PassageCell> = "Passages as given to the reader, with their ranking scores.",
    gold_passages: Option<Vec<u32>> = "Gold passages, ascending; null where the data does not tell.",
    prompt_tokens: Option<u32> = "Prompt tokens, cached ones included; null when the endpoint did not say.",
    completion_tokens: Option<u32> = "Completion tokens, reasoning included; null when the endpoint did not say.",
    reasoning_tokens: Option<u32> = "Reasoning tokens among the completion tokens.",
    cached_tokens: Option<u32> = "Cached tokens among the prompt tokens.",
    tokens_estimated: bool = "Whether the token counts were made here instead of reported.",
    cost_usd: Option<f64> = "Price of the call in US dollars; null when tokens or prices are unknown.",
    llm_status: LlmStatus = "How the reader's call ended: ok, truncated, empty, error, simulated.",
    prompt_cut: bool = "Whether far fewer prompt tokens were counted than were sent, so that the prompt was probably cut." or false,
    passages_cut: u32 = "Passages that generate.passage_budget shortened or left out of the prompt." or 0,
    contain: Option<bool> = "Whether the normalised answer contains a normalised gold answer; null when no gold can be scored.",
    contain_word: Option<bool> = "The same at token boundaries.",
    judge: Judgement = "What the judge said: correct, incorrect, unscored, not_run.",
    judge_raw: Vec<String> = "The judge's text, one a repeat; empty where it was not asked." or Vec::new(),
    judge_agreement: Option<f32> = "Share of the repeats that agree with it; null where it was not asked." or None,
    novelty: Option<f32> = "NS, equation 18.",
    novelty_nearest: Option<u32> = "The experience that decided it.",
    grounding: Option<f32> = "GS, equation 16; null when it was not computed.",
    grounding_model: Option<String> = "What computed it; a model with the start of its fingerprint and its precision.",
    claims: Vec<ClaimCell> = "Claims with their support (equation 15), best evidence, and how far that contradicts them where the model says.",
    stored: bool = "Whether the candidate became an experience.",
    decision: Decision = "Why: stored, not_novel, not_grounded, no_claims, no_answer, gate_off.",
    reuse_entity: Option<bool> = "An earlier query shares a seed entity; null on the first query.",
    reuse_graph: Option<bool> = "An earlier query's graph neighbourhood overlaps; null on the first query.",
    reuse_template: Option<bool> = "An earlier query has the template without sharing a seed; null on the first query.",
    ranked: Vec<u32> = "The first 20 passages of the ranking, for recall beyond what the reader saw.",
    retrieval_us: Option<u64> = "Wall time of retrieval in microseconds.",
    llm_us: Option<u64> = "Wall time of the reader's call in microseconds.",
    judge_us: Option<u64> = "Wall time of the judge's call in microseconds.",
    novelty_us: Option<u64> = "Wall time of the novelty gate in microseconds.",
    grounding_us: Option<u64> = "Wall time of the grounding gate in microseconds; null when it did not run.",
} }

columns! { ExperienceRow {
    experience: u32 = "Number of the experience, by order of commits, from 0.",
    run_id: String = "The run that made it.",
    stream_index: u32 = "t of the query it came from.",
    query_id: String = "Id of that question.",
    query: String = "That question.",
    answer: String = "The answer given to it.",
    summary: String = "Key sentences of the explanation, equation 6.",
    confidence: f32 = "conf: its grounding score, 1 without gates.",
    activation: Vec<ActivationCell> = "The sparsified activation map, equation 5.",
} }

columns! { RetrieveRow {
    query_id: String = "The publisher's id of the question.",
    question: String = "The question as published.",
    fallback: Option<String> = "Why the ranking is dense: dense_no_seed, dense_zero_reset; null when it is not.",
    seeds: Vec<SeedCell> = "Seed entities after linking, with their cosine.",
    active: Vec<ActiveCell> = "Entities active after propagation, with score and tier.",
    weights: Vec<WeightCell> = "Non-zero entity weights of the reset vector.",
    passages: Vec<PassageCell> = "The first 20 passages with their ranking scores.",
} }

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::fixture;

    fn names<R: Row>() -> Vec<&'static str> {
        R::columns().iter().map(|c| c.name).collect()
    }

    /// The serialised field names of a row, in declaration order.
    fn field_names(row: &impl serde::Serialize) -> Vec<String> {
        let value = serde_json::to_value(row).unwrap();
        value.as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn rows_and_columns_agree_in_name_and_order() {
        assert_eq!(names::<TraceRow>(), field_names(&fixture::row(1)));
        assert_eq!(names::<ExperienceRow>(), field_names(&fixture::experience(0)));
        assert_eq!(names::<RetrieveRow>(), field_names(&fixture::retrieved("q0")));
    }

    /// The documented types, written out by hand: a change here is a change of the published format.
    #[test]
    fn the_types_are_the_documented_ones() {
        let types: Vec<String> = TraceRow::columns()
            .iter()
            .map(|c| format!("{}: {}{}", c.name, type_name(&c.data_type), if c.nullable { ", null" } else { "" }))
            .collect();
        let expected = "run_id: string|dataset: string|method: string|order: string|seed: u64|stream_index: u32|\
            query_id: string|question: string|gold_answers: list<string>|prediction: string|raw_response: string|\
            lag: u32|store_visible: u32|store_committed: u32|fallback: string, null|\
            seeds: list<struct<entity: string, score: f32>>|activation_base_n: u32|activation_fused_n: u32|\
            activation_final_n: u32|fused_new_above_threshold: u32|\
            matches: list<struct<experience: u32, score: f32, cos_query: f32, cos_activation: f32, weight: f32>>|\
            scaffold: u32, null|scaffold_score: f32, null|scaffold_template_tfidf: f32, null|\
            passages: list<struct<passage: u32, score: f64>>|gold_passages: list<u32>, null|\
            prompt_tokens: u32, null|completion_tokens: u32, null|reasoning_tokens: u32, null|\
            cached_tokens: u32, null|tokens_estimated: bool|cost_usd: f64, null|llm_status: string|\
            prompt_cut: bool|passages_cut: u32|contain: bool, null|contain_word: bool, null|judge: string|\
            judge_raw: list<string>|judge_agreement: f32, null|novelty: f32, null|novelty_nearest: u32, null|\
            grounding: f32, null|grounding_model: string, null|\
            claims: list<struct<text: string, support: f32, passage: u32, evidence: string, contradiction: f32>>|stored: bool|\
            decision: string|reuse_entity: bool, null|reuse_graph: bool, null|reuse_template: bool, null|\
            ranked: list<u32>|retrieval_us: u64, null|llm_us: u64, null|judge_us: u64, null|\
            novelty_us: u64, null|grounding_us: u64, null";
        assert_eq!(types.join("|"), expected);
        let experience: Vec<String> = ExperienceRow::columns().iter().map(|c| type_name(&c.data_type)).collect();
        assert_eq!(
            experience.join("|"),
            "u32|string|u32|string|string|string|string|f32|list<struct<entity: string, weight: f32>>"
        );
    }

    #[test]
    fn descriptions_are_sentences_and_travel_with_the_schema() {
        for column in TraceRow::columns().into_iter().chain(ExperienceRow::columns()).chain(RetrieveRow::columns()) {
            assert!(column.description.ends_with('.'), "{}", column.name);
        }
        let schema = TraceRow::schema();
        assert_eq!(schema.metadata()[VERSION_KEY], "1");
        assert_eq!(schema.field(5).metadata()[DESCRIPTION_KEY], "t, the query's place in the stream, from 1.");
    }
}
