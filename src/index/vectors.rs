//! Where the vectors of an index come from: the dataset's files first, then what was computed before, then the encoder.
//!
//! In: the texts of every kind and the dataset folder. Out: a matrix a kind, with what must be told of its making. All vectors of an index
//! are of one encoder: files of several, a file and another encoder, or a file whose vectors the encoder does not reproduce, are errors
//! that name both (pitfall 8).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::backend::Matrix;
use crate::dataset::Note;
use crate::dataset::annotations::Span;
use crate::dataset::texts::{TextMeasure, cut_note, cut_note_exact};
use crate::dataset::vectors::{self, VectorTable};
use crate::index::encoder::{AUTO, DEFAULT_ENCODER, Encoders, FoundEncoder, TextEncoder, same_name};
use crate::index::kept::{KeptVectors, Known, Silent, Watch};
use crate::{Error, Result};

/// Vectors of files that are compared with the encoder's, at least, where there are as many.
const SPOT_CHECKS: usize = 3;
/// Cosine from which on two vectors of one text are of one encoder: computed in 16 bits they still reach 0.999.
const SAME_ENCODER: f64 = 0.999;

/// What makes the vectors that a dataset lacks.
pub struct Supply<'a> {
    /// `index.encoder`.
    pub encoder: &'a str,
    /// `index.vectors`.
    pub kept: &'a Path,
    /// Whether template vectors must be there, although an index can do without.
    pub templates: bool,
    /// Masks a question (equation 11).
    pub mask: fn(&str, &[Span]) -> String,
    /// Where encoders come from.
    pub encoders: &'a dyn Encoders,
    /// Hears what is computed.
    pub watch: &'a mut dyn Watch,
}

impl Supply<'_> {
    /// Whether the configuration names an encoder.
    pub fn is_explicit(&self) -> bool {
        self.encoder != AUTO
    }

    /// The encoder asked for, or the one that files name, or the default; both sides are named where they differ.
    ///
    /// # Errors
    /// pitfall 8: the configuration names another encoder than the files.
    pub fn name(&self, of_files: Option<&str>, folder: &Path) -> Result<String> {
        match of_files {
            None => Ok(if self.is_explicit() { self.encoder } else { DEFAULT_ENCODER }.to_owned()),
            Some(found) if !self.is_explicit() => Ok(found.to_owned()),
            Some(found) if same_name(found, self.encoder) => Ok(self.encoder.to_owned()),
            Some(found) => Err(Error::request(format!(
                "index.encoder = {:?}, and the vectors in {} are of {found:?}",
                self.encoder,
                folder.join("embeddings").display()
            ))
            .with_hint(
                "all vectors of an index come from one encoder: leave index.encoder at \"auto\" to keep the files, or move them away to \
                 have all vectors made anew",
            )),
        }
    }
}

/// The texts of one kind, one a row of its matrix; equal texts may repeat.
pub(super) struct Needed<'a> {
    pub kind: &'static str,
    pub texts: Vec<&'a str>,
}

/// The vectors of an index.
#[derive(Default)]
pub(super) struct Gathered {
    /// By kind; no entry where there is no text.
    pub matrices: BTreeMap<&'static str, Matrix>,
    /// Masked question → row of `templates`.
    pub template_rows: HashMap<String, usize>,
    /// Template vectors.
    pub templates: Matrix,
    /// Name of the encoder.
    pub encoder: String,
    /// Its fingerprint, where it computed anything.
    pub encoder_fingerprint: Option<String>,
    /// Texts whose vectors were computed rather than read from the dataset's files, by kind.
    pub computed: BTreeMap<String, usize>,
    /// Where the encoder cuts, tokens.
    pub truncated_at_tokens: Option<usize>,
    /// Numbers a vector.
    pub dim: usize,
    /// Kinds whose vectors are all equal.
    pub constant: Vec<String>,
    /// What a user should know.
    pub notes: Vec<Note>,
}

/// Path of a kind's file.
pub(super) fn file_of(folder: &Path, kind: &str) -> PathBuf {
    folder.join("embeddings").join(format!("{kind}.parquet"))
}

/// The encoder that the dataset's vector files name, by the first that is there; `None` where there is none or it names none.
pub fn encoder_of_files(folder: &Path) -> Option<String> {
    let kinds = ["passages", "questions", "sentences", "entities", "question_entities", "templates"];
    let path = kinds.iter().map(|kind| file_of(folder, kind)).find(|path| path.is_file())?;
    vectors::read_encoder(&path).ok()
}

/// Vector files of a dataset, checked against each other.
struct Files<'a> {
    folder: &'a Path,
    tables: BTreeMap<&'static str, VectorTable>,
    /// What made each file, where it says.
    fingerprints: BTreeMap<&'static str, String>,
    /// Name, width, limit and kind of the first.
    first: Option<(String, usize, Option<usize>, &'static str)>,
    notes: Vec<Note>,
}

impl Files<'_> {
    /// Reads a kind's file, if it is there.
    fn read(&mut self, kind: &'static str) -> Result<()> {
        let path = file_of(self.folder, kind);
        if !path.is_file() {
            return Ok(());
        }
        let (table, origin, notes) = vectors::read_with_origin(&path)?;
        self.notes.extend(notes);
        match &self.first {
            None => self.first = Some((table.encoder.clone(), table.dim, table.truncated_at_tokens, kind)),
            Some((encoder, dim, _, first)) if *encoder != table.encoder || *dim != table.dim => {
                let (found, before) = match *encoder == table.encoder {
                    true => (format!("{} numbers wide", table.dim), format!("{dim}")),
                    false => (format!("of encoder {:?}", table.encoder), format!("of {encoder:?}")),
                };
                return Err(Error::request(format!(
                    "{}: the vectors are {found}, those of the {first} are {before}",
                    path.display()
                ))
                .with_hint("all vectors of an index must come from one encoder; make the odd file again"));
            }
            Some(_) => {}
        }
        if let Some(fingerprint) = origin.encoder_fingerprint {
            self.fingerprints.insert(kind, fingerprint);
        }
        self.tables.insert(kind, table);
        Ok(())
    }

    /// Texts without a vector, each once, in order.
    fn missing<'t>(&self, kind: &str, texts: &[&'t str]) -> Vec<&'t str> {
        let rows = self.tables.get(kind).map(VectorTable::index);
        let mut seen = HashSet::new();
        let absent = |text: &&str| rows.as_ref().is_none_or(|rows| rows.row(text).is_none());
        texts.iter().copied().filter(absent).filter(|text| seen.insert(*text)).collect()
    }

    /// The error of a kind that lacks vectors.
    fn lack(&self, kind: &str, missing: &[&str], texts: usize) -> Error {
        let path = file_of(self.folder, kind);
        if !self.tables.contains_key(kind) {
            return Error::request(format!("the vectors of the {kind} are missing: {}", path.display())).with_hint(
                "`livingrag dataset texts <dir>` prints every text that needs a vector and scripts/embed_texts.py makes the files; \
                 with --set index.annotations=none only passages and questions are needed",
            );
        }
        let shown: String = missing.first().map(|text| text.chars().take(60).collect()).unwrap_or_default();
        Error::request(format!(
            "{}: no vector for {} of {texts} texts, the first is {shown:?}",
            path.display(),
            missing.len()
        ))
        .with_hint(
            "the vectors were made from other texts (another corpus, passage_prefix or annotations): make them again from \
             `livingrag dataset texts <dir>`",
        )
    }

    /// Texts with a vector to compare with the encoder's: the first of every file, then more of the first file.
    fn probes<'t>(&self, needed: &[Needed<'t>]) -> Vec<(&'static str, &'t str)> {
        let with_vector = |n: &Needed<'t>| -> Vec<(&'static str, &'t str)> {
            let Some(table) = self.tables.get(n.kind) else { return Vec::new() };
            let rows = table.index();
            n.texts.iter().filter(|t| rows.row(t).is_some()).take(SPOT_CHECKS).map(|t| (n.kind, *t)).collect()
        };
        let found: Vec<Vec<_>> = needed.iter().map(with_vector).collect();
        let mut probes: Vec<_> = found.iter().filter_map(|of_kind| of_kind.first().copied()).collect();
        let more = found.iter().flat_map(|of_kind| of_kind.iter().skip(1).copied());
        let wanted = SPOT_CHECKS.saturating_sub(probes.len());
        probes.extend(more.take(wanted));
        probes
    }
}

/// An encoder that is needed, with what it made.
struct Computing<'a> {
    found: Box<dyn FoundEncoder>,
    measure: Box<dyn TextMeasure>,
    kept: KeptVectors,
    open: Option<Rc<dyn TextEncoder>>,
    files: &'a Files<'a>,
}

impl<'a> Computing<'a> {
    fn new(found: Box<dyn FoundEncoder>, root: &Path, files: &'a Files<'a>) -> Result<Self> {
        let measure = found.measure()?;
        let kept = KeptVectors::new(root, found.name(), found.fingerprint(), measure.max_tokens());
        Ok(Self { found, measure, kept, open: None, files })
    }

    fn vectors(&mut self, texts: &[&str], watch: &mut dyn Watch) -> Result<Known> {
        let (found, open) = (&self.found, &mut self.open);
        let mut opener = || -> Result<Rc<dyn TextEncoder>> {
            match open {
                Some(encoder) => Ok(Rc::clone(encoder)),
                None => Ok(Rc::clone(open.insert(Rc::from(found.open()?)))),
            }
        };
        self.kept.ensure(texts, &mut opener, watch)
    }

    /// pitfall 8: the files' vectors are those of this encoder, by fingerprint where they carry one, else by comparison.
    fn check_files(&mut self, needed: &[Needed<'_>]) -> Result<()> {
        let (name, fingerprint) = (self.found.name().to_owned(), self.found.fingerprint().to_owned());
        let short = |f: &str| f.get(..12).unwrap_or(f).to_owned();
        let hint = "the files were made by another encoder of that name, or in another way: name the one that made them as \
                    index.encoder, or move the files away to have all vectors made anew";
        let files = self.files;
        if let Some((kind, of_file)) = files.fingerprints.iter().find(|(_, f)| **f != fingerprint) {
            return Err(Error::request(format!(
                "{}: the vectors are of encoder {} ({}), and those that are missing would be of {name} ({})",
                file_of(files.folder, kind).display(),
                files.tables[kind].encoder,
                short(of_file),
                short(&fingerprint)
            ))
            .with_hint(hint));
        }
        let mut probes = files.probes(needed);
        probes.retain(|(kind, _)| !files.fingerprints.contains_key(kind));
        if probes.is_empty() {
            return Ok(());
        }
        let texts: Vec<&str> = probes.iter().map(|(_, text)| *text).collect();
        let computed = self.vectors(&texts, &mut Silent)?;
        for (kind, text) in probes {
            let table = &files.tables[kind];
            let (Some(of_file), Some(of_encoder)) = (table.index().vector(text), computed.vector(text)) else {
                continue;
            };
            let difference = if table.dim != computed.dim() {
                format!("has {} numbers there and {} from the encoder", table.dim, computed.dim())
            } else {
                let cosine = cosine(of_file, of_encoder);
                if cosine >= SAME_ENCODER {
                    continue;
                }
                format!("has cosine {cosine:.4} with that of the encoder")
            };
            let shown: String = text.chars().take(60).collect();
            return Err(Error::request(format!(
                "{}: the vectors are said to be of {:?}, and are not those of {name} ({}): the vector of {shown:?} {difference}",
                file_of(files.folder, kind).display(),
                table.encoder,
                short(&fingerprint)
            ))
            .with_hint(hint));
        }
        Ok(())
    }
}

/// Cosine of two vectors of length 1.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
}

/// Vectors of all `needed` texts and of the masked questions. Without `supply` only the dataset's files are looked at.
///
/// # Errors
/// A file that cannot be used, vectors that are nowhere and cannot be made, vectors of two encoders.
pub(super) fn gather(
    folder: &Path,
    needed: &[Needed<'_>],
    templates: &[&str],
    mut supply: Option<&mut Supply<'_>>,
) -> Result<Gathered> {
    let mut files =
        Files { folder, tables: BTreeMap::new(), fingerprints: BTreeMap::new(), first: None, notes: Vec::new() };
    for n in needed.iter().filter(|n| !n.texts.is_empty()) {
        files.read(n.kind)?;
    }
    files.read("templates")?;
    let notes = std::mem::take(&mut files.notes);
    let mut out = Gathered { notes, ..Gathered::default() };
    let of_files = files.first.as_ref().map(|(encoder, ..)| encoder.clone());
    let lacking: Vec<(&Needed<'_>, Vec<&str>)> = needed
        .iter()
        .map(|n| (n, files.missing(n.kind, &n.texts)))
        .filter(|(_, missing)| !missing.is_empty())
        .collect();
    let computing = match &mut supply {
        Some(supply) => encoder_needed(supply, &files, of_files.as_deref(), &lacking, templates, &mut out.notes)?,
        None => match lacking.first() {
            Some((n, missing)) => return Err(files.lack(n.kind, missing, n.texts.len())),
            None => None,
        },
    };
    let mut computed = Known::default();
    let mut measure = None;
    if let (Some(mut computing), Some(supply)) = (computing, supply) {
        computing.check_files(needed)?;
        let missing_templates = files.missing("templates", templates);
        let missing: Vec<&str> = lacking.iter().flat_map(|(_, m)| m).chain(&missing_templates).copied().collect();
        computed = computing.vectors(&missing, supply.watch)?;
        out.computed = lacking.iter().map(|(n, missing)| (n.kind.to_owned(), missing.len())).collect();
        if !missing_templates.is_empty() {
            out.computed.insert("templates".into(), missing_templates.len());
        }
        out.encoder = of_files.clone().unwrap_or_else(|| computing.found.name().to_owned());
        out.encoder_fingerprint = Some(computing.found.fingerprint().to_owned());
        out.truncated_at_tokens = Some(computing.measure.max_tokens());
        measure = Some(computing.measure);
    }
    if let Some((encoder, dim, limit, _)) = &files.first {
        (out.encoder, out.dim) = (encoder.clone(), *dim);
        out.truncated_at_tokens = out.truncated_at_tokens.or(*limit);
    }
    if computed.dim() != 0 {
        out.dim = computed.dim();
    }
    for n in needed.iter().filter(|n| !n.texts.is_empty()) {
        let data = rows(files.tables.get(n.kind), &computed, &n.texts)
            .ok_or_else(|| files.lack(n.kind, &files.missing(n.kind, &n.texts), n.texts.len()))?;
        let constant = match files.tables.get(n.kind).filter(|_| !out.computed.contains_key(n.kind)) {
            Some(table) => table.is_constant(),
            None => is_constant(&data, out.dim, &n.texts),
        };
        if constant {
            out.constant.push(n.kind.to_owned());
        }
        out.notes.extend(cut_texts(n, files.tables.get(n.kind), &computed, measure.as_deref())?);
        out.matrices.insert(n.kind, Matrix::new(out.dim, data));
    }
    take_templates(&mut out, files.tables.remove("templates"), &computed, templates);
    if let Some(note) = constant_note(&out.constant) {
        out.notes.push(note);
    }
    Ok(out)
}

/// The encoder, if anything must be computed.
fn encoder_needed<'a>(
    supply: &mut Supply<'_>,
    files: &'a Files<'a>,
    of_files: Option<&str>,
    lacking: &[(&Needed<'_>, Vec<&str>)],
    templates: &[&str],
    notes: &mut Vec<Note>,
) -> Result<Option<Computing<'a>>> {
    // Said even where nothing is missing: the configuration asks for another encoder than the files'.
    let name = supply.name(of_files, files.folder)?;
    let templates_missing = files.missing("templates", templates).len();
    let wanted = !lacking.is_empty() || templates_missing > 0 && (supply.templates || supply.is_explicit());
    if wanted {
        let found = supply.encoders.find(&name).map_err(|error| {
            let lack = match lacking.first() {
                Some((n, missing)) => files.lack(n.kind, missing, n.texts.len()),
                None => Error::request(format!(
                    "{templates_missing} of {} masked questions have no vector",
                    templates.len()
                )),
            };
            let hint = match (error.hint(), lack.hint()) {
                (Some(own), Some(other)) => format!("{own}; or else: {other}"),
                (own, other) => own.or(other).unwrap_or_default().to_owned(),
            };
            Error::request(format!("{lack}; they would be made by {name:?}, but {}", error.sentence())).with_hint(hint)
        })?;
        return Computing::new(found, supply.kept, files).map(Some);
    }
    if templates_missing > 0 && files.tables.contains_key("templates") {
        // Most are there: the others are made where the encoder is at hand, and nothing is fetched for them.
        if let Some(found) = supply.encoders.on_machine(&name) {
            return Computing::new(found, supply.kept, files).map(Some);
        }
        notes.push(Note {
            code: "missing_templates",
            text: format!(
                "embeddings/templates.parquet has no vector for {templates_missing} of {} masked questions, and the encoder {name:?} \
                 that would make them is not on this machine",
                templates.len()
            ),
        });
    }
    Ok(None)
}

/// One row a text; `None` where one has no vector.
fn rows(table: Option<&VectorTable>, computed: &Known, texts: &[&str]) -> Option<Vec<f32>> {
    let of_file = table.map(VectorTable::index);
    let mut data = Vec::new();
    for text in texts {
        let vector = of_file.as_ref().and_then(|rows| rows.vector(text)).or_else(|| computed.vector(text))?;
        data.extend_from_slice(vector);
    }
    Some(data)
}

/// Whether two or more different texts all have the same vector.
fn is_constant(data: &[f32], dim: usize, texts: &[&str]) -> bool {
    const SAME: f32 = 1e-6;
    let first = &data[..dim.min(data.len())];
    texts.iter().any(|text| Some(text) != texts.first())
        && data.chunks_exact(dim.max(1)).all(|row| row.iter().zip(first).all(|(a, b)| (a - b).abs() <= SAME))
}

/// What should be said about vectors that are all equal.
fn constant_note(constant: &[String]) -> Option<Note> {
    (!constant.is_empty()).then(|| Note {
        code: "constant_vectors",
        text: format!(
            "all texts have the same vector in the vectors of {}: similarity says nothing there, and rankings do not depend on the \
             question",
            constant.join(", ")
        ),
    })
}

/// pitfall 10: how many texts of a kind were cut; counted where the tokenizer is at hand, else estimated.
fn cut_texts(
    n: &Needed<'_>,
    table: Option<&VectorTable>,
    computed: &Known,
    measure: Option<&dyn TextMeasure>,
) -> Result<Option<Note>> {
    let mut seen = HashSet::new();
    let distinct: Vec<&str> = n.texts.iter().copied().filter(|text| seen.insert(*text)).collect();
    let of_file = table.map(VectorTable::index);
    let (from_file, made): (Vec<&str>, Vec<&str>) =
        distinct.iter().copied().partition(|text| of_file.as_ref().is_some_and(|rows| rows.row(text).is_some()));
    let Some(measure) = measure else {
        let file = format!("embeddings/{}.parquet", n.kind);
        let limit = table.and_then(|t| t.truncated_at_tokens);
        return Ok(limit.and_then(|limit| cut_note(&file, n.texts.iter().copied(), limit)).map(|(_, note)| note));
    };
    let cut_there = measure.cut(&from_file)?.into_iter().filter(|cut| *cut).count();
    let cut_here = made.iter().filter(|text| computed.is_cut(text)).count();
    Ok(cut_note_exact(n.kind, cut_there + cut_here, distinct.len(), measure.max_tokens()))
}

/// Template vectors: all of the file, and the computed ones after them.
fn take_templates(out: &mut Gathered, table: Option<VectorTable>, computed: &Known, templates: &[&str]) {
    let (mut texts, mut data) = match table {
        Some(table) => {
            if table.is_constant() {
                out.constant.push("templates".into());
            }
            (table.texts, table.data)
        }
        None => (Vec::new(), Vec::new()),
    };
    out.template_rows = texts.iter().enumerate().rev().map(|(i, t)| (t.clone(), i)).collect();
    for template in templates {
        if let Some(vector) = computed.vector(template).filter(|_| !out.template_rows.contains_key(*template)) {
            out.template_rows.insert((*template).to_owned(), texts.len());
            texts.push((*template).to_owned());
            data.extend_from_slice(vector);
        }
    }
    out.templates = Matrix::new(out.dim, data);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
