//! One run: its plan, store, journal and folder.
//!
//! In: a [`RunPlan`] and a [`Session`]. Out: `plan.toml`, `order.json`, a journal while it works, and at its end `traces.parquet`,
//! `experiences.parquet` and `manifest.json`; finished files appear by rename, the manifest last.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::config::{Method, RunConfig, RunPlan, TemplateSimilarity};
use crate::dataset::orders;
use crate::experience::record::Experience;
use crate::experience::store::ExperienceStore;
use crate::ids::{QuestionId, StreamIndex};
use crate::llm::Ledger;
use crate::math::sparse::SparseVector;
use crate::replay::journal::{Header, Journal};
use crate::replay::parts::Parts;
use crate::replay::session::{Session, Stream};
use crate::trace::manifest::{
    BackendInfo, DatasetInfo, GeneratorInfo, IndexInfo, MANIFEST_FILE, Manifest, ModelInfo, Status,
};
use crate::trace::row::{ExperienceRow, TraceRow};
use crate::trace::{SCHEMA_VERSION, atomic, writer};
use crate::{Error, Result};

/// The journal's name in a run folder; it is gone once the run is finished.
pub const JOURNAL_FILE: &str = "journal.jsonl";
/// The permutation's name in a run folder.
pub const ORDER_FILE: &str = "order.json";
/// Names of the finished tables.
pub const TRACES_FILE: &str = "traces.parquet";
/// See [`TRACES_FILE`].
pub const EXPERIENCES_FILE: &str = "experiences.parquet";

/// A run that is going on.
pub struct Run {
    /// What runs.
    pub plan: RunPlan,
    /// Its results folder.
    pub folder: PathBuf,
    /// Its reader, scorer and prompt.
    pub parts: Parts,
    /// The stream with its opportunities.
    pub stream: Arc<Stream>,
    /// How templates are compared.
    pub template_similarity: TemplateSimilarity,
    /// What the user should hear, for example that a torn record was dropped.
    pub notes: Vec<String>,
    pub(super) store: ExperienceStore,
    pub(super) done: usize,
    /// `None` in a rehearsal.
    pub(super) journal: Option<Journal>,
    /// What was asked of an endpoint and is not in the journal yet.
    spent: Ledger,
    failed: bool,
    counters: BTreeMap<String, u64>,
    started_unix: u64,
}

/// What opening a run came to.
pub enum Opened {
    /// It can go on (or start).
    Ready(Box<Run>),
    /// Its folder is complete.
    Finished(PathBuf),
}

fn now_unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The plan of a configuration on a prepared dataset. Its fingerprint covers everything that the rows depend on beside the
/// configuration: index (with dataset, vectors, annotations), prompt, recording.
///
/// # Errors
/// A configuration that cannot run.
pub fn plan(session: &Session, config: &RunConfig, parts: &Parts) -> Result<RunPlan> {
    plan_of(&session.dataset.name, &session.index().meta.fingerprint, config, parts)
}

/// As [`plan`], before anything is prepared: `index` is the index's fingerprint.
///
/// # Errors
/// As [`plan`].
pub fn plan_of(dataset: &str, index: &str, config: &RunConfig, parts: &Parts) -> Result<RunPlan> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(index.as_bytes());
    hasher.update(parts.fingerprint.as_bytes());
    config.plan(dataset, &hasher.finalize().to_hex())
}

/// Hash of the plan without method, order, seed: equal for runs that differ in nothing else.
fn settings_hash(plan: &RunPlan) -> Result<String> {
    let mut config = plan.config.clone();
    config.method = Method::Living;
    config.order = "file".into();
    config.seed = 0;
    let id = config.plan(&plan.dataset, &plan.fingerprint)?.run_id;
    Ok(id.rsplit('-').next().unwrap_or(&id).to_owned())
}

#[derive(Serialize)]
struct OrderFile<'a> {
    order: &'a str,
    query_ids: Vec<&'a str>,
}

impl Run {
    /// Opens a run under `out`: starts it, or with `resume` goes on with it.
    ///
    /// # Errors
    /// A results folder that is taken, an unknown order, a journal that does not fit.
    pub fn open(session: &Session, config: &RunConfig, parts: Parts, out: &Path, resume: bool) -> Result<Opened> {
        let plan = plan(session, config, &parts)?;
        let folder = out.join(&plan.run_id);
        let journal_path = folder.join(JOURNAL_FILE);
        if folder.join(MANIFEST_FILE).is_file() {
            let manifest = Manifest::read(&folder)?;
            if manifest.status == Status::Complete {
                if !resume {
                    return Err(Error::request(format!("{} is finished already", folder.display()))
                        .with_hint("read it with `livingrag report`, or choose another --out folder"));
                }
                // Killed between the last rename and the journal's end.
                let _ = std::fs::remove_file(&journal_path);
                return Ok(Opened::Finished(folder));
            }
        }
        if folder.exists() && !resume {
            return Err(Error::request(format!("{} holds an unfinished run", folder.display()))
                .with_hint("go on with it: add --resume; or choose another --out folder"));
        }
        let mut run = Self::start(session, plan, parts, folder.clone())?;
        let plan = &run.plan;

        std::fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, e))?;
        plan.write(&folder)?;
        let ids = run.stream.questions.iter().map(|&q| session.dataset.questions[q].id.as_str()).collect();
        let json = serde_json::to_vec_pretty(&OrderFile { order: &plan.config.order, query_ids: ids })
            .map_err(|e| Error::work("cannot write the order").with_source(e))?;
        atomic::write(&folder.join(ORDER_FILE), &json)?;

        let header = Header::new(&plan.run_id, &session.index().meta.fingerprint);
        let mut restored = Restored::new(session);
        let mut spent = Ledger::default();
        let journal = if journal_path.exists() {
            let (journal, dropped) = Journal::resume(&journal_path, &header, |record| {
                spent.add(&record.spent.unwrap_or_default());
                restored.take(&record.row, record.experience.as_ref())
            })?;
            run.notes.extend(dropped);
            spent.add(journal.spent_apart());
            journal
        } else {
            Journal::create(&journal_path, &header)?
        };
        // The journal is ours now, so nobody else writes here.
        atomic::remove_leftovers(&folder);
        if let Some(endpoint) = &run.parts.endpoint {
            endpoint.add_before(&spent);
        }
        (run.store, run.done, run.journal) = (restored.store, restored.done, Some(journal));
        Ok(Opened::Ready(Box::new(run)))
    }

    /// A run at its beginning, with nothing on the disk: for a quote, or to be opened.
    fn start(session: &Session, plan: RunPlan, parts: Parts, folder: PathBuf) -> Result<Self> {
        let template_similarity = session.template_similarity(plan.config.experience.template_similarity)?;
        let questions = order(session, &plan.config)?;
        let stream = session.stream(&questions, &plan.config.retrieve)?;
        Ok(Self {
            folder,
            stream,
            template_similarity,
            notes: parts.notes.clone(),
            parts,
            store: ExperienceStore::default(),
            done: 0,
            journal: None,
            spent: Ledger::default(),
            failed: false,
            counters: BTreeMap::new(),
            started_unix: now_unix(),
            plan,
        })
    }

    /// A run that is only planned: it can be quoted, and leaves nothing on the disk.
    ///
    /// # Errors
    /// A configuration that cannot run.
    pub fn planned(session: &Session, config: &RunConfig, parts: Parts) -> Result<Self> {
        let plan = plan(session, config, &parts)?;
        Self::start(session, plan, parts, PathBuf::new())
    }

    /// A copy as far as it is, with other parts and without a journal.
    pub(super) fn rehearsal(&self, parts: Parts) -> Self {
        Self {
            plan: self.plan.clone(),
            folder: self.folder.clone(),
            parts,
            stream: Arc::clone(&self.stream),
            template_similarity: self.template_similarity,
            notes: Vec::new(),
            store: self.store.clone(),
            done: self.done,
            journal: None,
            spent: Ledger::default(),
            failed: false,
            counters: BTreeMap::new(),
            started_unix: self.started_unix,
        }
    }

    /// Takes the folder away again if nothing was committed yet: the run was refused before it began.
    pub fn discard(self) {
        if self.done == 0 && self.journal.is_some() {
            // What cannot be removed is an unfinished run, which is what it looks like.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    /// Queries of the whole run.
    pub fn total(&self) -> usize {
        self.stream.questions.len()
    }

    /// Queries that are committed.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Whether every query is committed.
    pub fn is_done(&self) -> bool {
        self.done == self.total()
    }

    /// Takes the run out of the following blocks.
    pub(super) fn fail(&mut self) {
        self.failed = true;
    }

    /// Whether this question will not come again.
    pub(super) fn has_passed(&self, question: usize) -> bool {
        self.failed || self.stream.place(question).is_none_or(|place| place < self.done)
    }

    /// Bytes that this run adds to its session: its store.
    pub fn store_bytes(&self) -> usize {
        self.store.bytes()
    }

    /// Experiences stored so far.
    pub fn stored(&self) -> usize {
        self.store.len()
    }

    /// Adds to a counter of the manifest.
    pub(super) fn count(&mut self, name: &str, n: u64) {
        *self.counters.entry(name.to_owned()).or_default() += n;
    }

    /// Notes what was asked of the endpoint since this was last called by any run that shares it.
    pub(super) fn charge(&mut self) {
        if let Some(endpoint) = self.parts.endpoint.as_ref().filter(|_| self.journal.is_some()) {
            self.spent.add(&endpoint.take_spent());
        }
    }

    /// Writes down what a block cost that could not be finished, so that a cap counts it after a resume.
    pub(super) fn journal_spent(&mut self) -> Result<()> {
        self.charge();
        match (self.take_spent(), &mut self.journal) {
            (Some(spent), Some(journal)) => journal.append_spent(spent),
            _ => Ok(()),
        }
    }

    /// What was charged and is not in the journal yet.
    pub(super) fn take_spent(&mut self) -> Option<Ledger> {
        Some(std::mem::take(&mut self.spent)).filter(|spent| *spent != Ledger::default())
    }

    /// Questions of the next block: at most the lag, or fewer when the configuration says so.
    pub(super) fn next_block(&self) -> &[usize] {
        let replay = &self.plan.config.replay;
        let block = if replay.block == 0 { replay.lag } else { replay.block.min(replay.lag) };
        let end = if self.failed { self.done } else { (self.done + block as usize).min(self.total()) };
        &self.stream.questions[self.done..end]
    }

    /// Writes the finished tables and the manifest, from the journal, and removes it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(mut self, session: &Session) -> Result<PathBuf> {
        let journal = self.journal.take().ok_or_else(|| Error::work("a run that is only planned has no results"))?;
        let (mut rows, mut experiences): (Vec<TraceRow>, Vec<ExperienceRow>) = (Vec::new(), Vec::new());
        journal.replay(|record| {
            rows.push(record.row);
            experiences.extend(record.experience);
            Ok(())
        })?;
        writer::write_rows(&self.folder.join(TRACES_FILE), &rows)?;
        writer::write_rows(&self.folder.join(EXPERIENCES_FILE), &experiences)?;
        self.manifest(session, &rows)?.write(&self.folder)?;
        let path = self.folder.join(JOURNAL_FILE);
        drop(journal);
        match std::fs::remove_file(&path) {
            // Somebody who opened the finished run took it away first.
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &path, e)),
            _ => Ok(self.folder),
        }
    }

    /// Its own counters, and those of client and scorer, which count for every run that shares them.
    fn all_counters(&self) -> BTreeMap<String, u64> {
        let of_client = self.parts.endpoint.iter().flat_map(|e| e.client().ledger().counters());
        let gated = self.plan.config.method.is_gated();
        let of_scorer = if gated { self.parts.grounding.counters() } else { BTreeMap::new() };
        self.counters.clone().into_iter().chain(of_client).chain(of_scorer).collect()
    }

    fn manifest(&self, session: &Session, rows: &[TraceRow]) -> Result<Manifest> {
        let config = &self.plan.config;
        let meta = &session.index().meta;
        let backend = session.prepared.backend.description();
        let graph = config.method != Method::Vanilla;
        let with_store = config.method.has_store();
        let timings = config.replay.timings;
        let simulated = self.parts.simulated;
        // What happened on the way, for example a record torn by a kill, is left out with the times: files are then equal byte for byte.
        let notes = if timings { &self.notes } else { &self.parts.notes };
        let heard = self.parts.endpoint.iter().filter(|_| timings).flat_map(|e| e.client().heard());
        let heard = heard.map(|(kind, text)| format!("the first {kind} call heard \"{text}\""));
        Ok(Manifest {
            schema_version: SCHEMA_VERSION,
            run_id: self.plan.run_id.clone(),
            livingrag_version: env!("CARGO_PKG_VERSION").into(),
            status: Status::Complete,
            rows: rows.len() as u64,
            dataset: DatasetInfo {
                name: session.dataset.name.clone(),
                fingerprint: session.dataset.fingerprint.clone(),
                passages: session.dataset.passages.len() as u64,
                questions: session.dataset.questions.len() as u64,
                gold_known: session.dataset.questions.iter().filter(|q| q.gold_passages.is_some()).count() as u64,
            },
            index: IndexInfo {
                fingerprint: meta.fingerprint.clone(),
                encoder: meta.encoder.clone(),
                encoder_fingerprint: meta.encoder_fingerprint.clone(),
                computed_vectors: meta.computed.values().map(|&n| n as u64).sum(),
                entities: meta.counts.entities as u64,
                sentences: meta.counts.sentences as u64,
                edges: meta.counts.edges as u64,
                annotations: meta.options.annotations.as_str().into(),
                adjacent_passages: meta.options.adjacent_passages.as_str().into(),
                constant_vectors: meta.constant_vectors.clone(),
            },
            method: config.method.as_str().into(),
            order: config.order.clone(),
            seed: config.seed,
            lag: config.replay.lag,
            settings: settings_hash(&self.plan)?,
            propagation: graph.then(|| config.retrieve.propagation.as_str().to_owned()),
            template_similarity: (with_store && config.method != Method::NoScaffold)
                .then(|| self.template_similarity.as_str().to_owned()),
            generator: GeneratorInfo {
                name: self.parts.reader.name().into(),
                model: self.parts.model.clone(),
                simulated,
            },
            prompt_hash: Some(self.parts.prompt.hash().into()),
            grounding: config.method.is_gated().then(|| {
                let (name, model) = (self.parts.grounding.name(), self.parts.grounding.model());
                // A scorer without a model is its own name.
                ModelInfo { name: name.into(), model: if model == name { String::new() } else { model } }
            }),
            judge: self
                .parts
                .judge
                .as_ref()
                .map(|judge| ModelInfo { name: judge.name.into(), model: judge.model.clone() }),
            backend: BackendInfo {
                name: backend.name,
                device: backend.device,
                // How many workers there were changes no row; where times are switched off it is left out with them.
                threads: if timings { backend.threads as u32 } else { 0 },
                requested: config.backend.kind.as_str().into(),
            },
            // How many calls were new depends on what the cache held; where times are switched off it is left out with them.
            counters: if timings { self.all_counters() } else { BTreeMap::new() },
            notes: meta
                .notes
                .iter()
                .chain(&self.parts.facts)
                .cloned()
                .chain(cut(rows))
                .chain(notes.iter().chain(&backend.note).cloned())
                .chain(heard)
                .collect(),
            started_unix: timings.then_some(self.started_unix),
            finished_unix: timings.then(now_unix),
        })
    }
}

/// What was cut on the way to the model: passages by the budget, prompts by the endpoint.
fn cut(rows: &[TraceRow]) -> Vec<String> {
    let passages: u64 = rows.iter().map(|row| u64::from(row.passages_cut)).sum();
    let with_cut = rows.iter().filter(|row| row.passages_cut > 0).count();
    let prompts = rows.iter().filter(|row| row.prompt_cut).count();
    let n = rows.len();
    let mut notes = Vec::new();
    if passages > 0 {
        notes.push(format!(
            "{passages} passages of {with_cut} of {n} questions were shortened or left out to fit the passage budget"
        ));
    }
    if prompts > 0 {
        notes.push(format!(
            "{prompts} of {n} prompts were probably cut by the endpoint: it counted far fewer tokens than were sent"
        ));
    }
    notes
}

/// The stream of a configuration as places in the file.
fn order(session: &Session, config: &RunConfig) -> Result<Vec<usize>> {
    let similarity = |a: usize, b: usize| session.question_cosine(a, b);
    let ordered = orders::order(&config.order, &session.dataset.questions, Some(&similarity))?;
    let limit = if config.replay.limit == 0 { ordered.len() } else { config.replay.limit as usize };
    Ok(ordered.into_iter().take(limit).map(QuestionId::at).collect())
}

/// A store read back from a journal.
struct Restored<'a> {
    session: &'a Session,
    questions: BTreeMap<&'a str, usize>,
    entities: BTreeMap<&'a str, u32>,
    store: ExperienceStore,
    done: usize,
}

impl<'a> Restored<'a> {
    fn new(session: &'a Session) -> Self {
        let questions = session.dataset.questions.iter().enumerate().map(|(i, q)| (q.id.as_str(), i)).collect();
        let entities = session.index().entities.iter().enumerate().map(|(i, e)| (e.as_str(), i as u32)).collect();
        Self { session, questions, entities, store: ExperienceStore::default(), done: 0 }
    }

    fn take(&mut self, row: &TraceRow, experience: Option<&ExperienceRow>) -> Result<()> {
        let foreign = |what: &str| {
            Error::request(format!(
                "the journal names {what}, which the dataset {:?} does not have",
                self.session.dataset.name
            ))
        };
        self.done += 1;
        let Some(e) = experience else { return Ok(()) };
        let question =
            *self.questions.get(e.query_id.as_str()).ok_or_else(|| foreign(&format!("query {:?}", e.query_id)))?;
        let activation = e
            .activation
            .iter()
            .map(|cell| match self.entities.get(cell.entity.as_str()) {
                Some(&id) => Ok((id, f64::from(cell.weight))),
                None => Err(foreign(&format!("entity {:?}", cell.entity))),
            })
            .collect::<Result<Vec<_>>>()?;
        self.store.append(Experience {
            question: QuestionId::from(question),
            stream_index: StreamIndex(row.stream_index),
            activation: SparseVector::from_assignments(activation),
            summary: e.summary.clone(),
            answer: e.answer.clone(),
            confidence: e.confidence,
        });
        Ok(())
    }
}
