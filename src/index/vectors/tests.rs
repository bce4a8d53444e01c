//! Vectors of small datasets from files, from what was kept, and from an encoder that draws them from the text's hash.

use std::cell::Cell;

use super::*;
use crate::config::AnnotationSource;
use crate::dataset::Dataset;
use crate::dataset::vectors::{Origin, write_with_origin};
use crate::index::kept::tests::{Hashed, Log, hashed};
use crate::index::{IndexOptions, build, files};

/// A machine with one encoder, `hub/hashed` with the fingerprint `f…`, or with none.
struct Machine {
    there: bool,
    fingerprint: &'static str,
    salt: &'static str,
    log: Log,
    opened: Rc<Cell<usize>>,
    asked: Cell<usize>,
}

const FINGERPRINT: &str = "f00df00df00df00d";

impl Machine {
    fn new() -> Self {
        Self {
            there: true,
            fingerprint: FINGERPRINT,
            salt: "",
            log: Log::default(),
            opened: Rc::default(),
            asked: Cell::new(0),
        }
    }

    fn encoded(&self) -> Vec<String> {
        std::mem::take(&mut self.log.borrow_mut())
    }
}

impl Encoders for Machine {
    fn find(&self, name: &str) -> Result<Box<dyn FoundEncoder>> {
        self.asked.set(self.asked.get() + 1);
        match self.there && same_name(name, "hub/hashed") {
            true => Ok(Box::new(FoundHashed {
                fingerprint: self.fingerprint,
                salt: self.salt,
                log: Rc::clone(&self.log),
                opened: Rc::clone(&self.opened),
            })),
            false => Err(Error::request(format!("there is no model {name}")).with_hint("get it")),
        }
    }
    fn on_machine(&self, name: &str) -> Option<Box<dyn FoundEncoder>> {
        self.find(name).ok()
    }
}

struct FoundHashed {
    fingerprint: &'static str,
    salt: &'static str,
    log: Log,
    opened: Rc<Cell<usize>>,
}

impl FoundEncoder for FoundHashed {
    fn name(&self) -> &str {
        "hub/hashed"
    }
    fn fingerprint(&self) -> &str {
        self.fingerprint
    }
    fn measure(&self) -> Result<Box<dyn TextMeasure>> {
        Ok(Box::new(Bytes))
    }
    fn open(&self) -> Result<Box<dyn TextEncoder>> {
        self.opened.set(self.opened.get() + 1);
        Ok(Box::new(Hashed { log: Rc::clone(&self.log), salt: self.salt }))
    }
}

/// Cuts texts of more than 20 bytes, as [`Hashed`] does.
struct Bytes;

impl TextMeasure for Bytes {
    fn max_tokens(&self) -> usize {
        20
    }
    fn cut(&self, texts: &[&str]) -> Result<Vec<bool>> {
        Ok(texts.iter().map(|t| t.len() > 20).collect())
    }
}

const PASSAGES: [&str; 3] = ["Oslo is a city.", "It rained.", "Oslo is a city."];
const QUESTIONS: [&str; 2] = ["Is it so?", "Where is the town of Oslo?"];
const OPTIONS: IndexOptions = IndexOptions {
    annotations: AnnotationSource::None,
    passage_prefix: crate::config::PassagePrefix::None,
    adjacent_passages: crate::config::AdjacentPassages::All,
    entity_text: crate::config::EntityText::Exact,
};

/// Three passages, two of them equal, and two questions, one of them longer than the encoder reads.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let questions = QUESTIONS.map(|q| serde_json::json!({"question": q, "answer": "yes"}));
        let put = |name: &str, value: serde_json::Value| {
            std::fs::create_dir_all(folder.data().join("embeddings")).unwrap();
            std::fs::write(folder.data().join(name), value.to_string()).unwrap();
        };
        put("questions.json", questions.as_slice().into());
        put("chunks.json", PASSAGES.as_slice().into());
        folder
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn dataset(&self) -> Dataset {
        Dataset::open(&self.data()).unwrap()
    }

    fn write(&self, kind: &str, encoder: &str, texts: &[&str], salt: &str, fingerprint: Option<&str>) {
        let table = VectorTable {
            encoder: encoder.into(),
            truncated_at_tokens: None,
            dim: 3,
            texts: texts.iter().map(|t| (*t).to_owned()).collect(),
            data: texts.iter().flat_map(|t| hashed(t, salt)).collect(),
        };
        let origin = Origin { encoder_fingerprint: fingerprint.map(str::to_owned), cut_rows: None };
        write_with_origin(&file_of(&self.data(), kind), &table, &origin).unwrap();
    }

    /// Both kinds, all texts.
    fn complete(self) -> Self {
        self.write("passages", "hub/hashed", &PASSAGES[..2], "", None);
        self.write("questions", "hub/hashed", &QUESTIONS, "", None);
        self
    }

    fn with<T>(&self, machine: &Machine, encoder: &str, templates: bool, work: impl FnOnce(&mut Supply<'_>) -> T) -> T {
        work(&mut Supply {
            encoder,
            kept: &self.0.path().join("vectors"),
            templates,
            mask: |question, _| question.replace("Oslo", "[ENTITY]"),
            encoders: machine,
            watch: &mut Silent,
        })
    }

    fn build(&self, machine: &Machine, encoder: &str, templates: bool) -> Result<crate::index::Index> {
        self.with(machine, encoder, templates, |supply| build::build_with(&self.dataset(), &OPTIONS, Some(supply)))
    }

    fn open_or_build(&self, machine: &Machine, encoder: &str) -> (crate::index::Index, bool) {
        let cache = self.0.path().join("indexes");
        self.with(machine, encoder, false, |s| {
            files::open_or_build(&self.dataset(), &OPTIONS, &cache, Some(s)).unwrap()
        })
    }
}

fn report(result: Result<crate::index::Index>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.report()
}

#[test]
fn where_all_vectors_are_there_no_encoder_is_asked_for() {
    let folder = Folder::new().complete();
    let machine = Machine::new();
    let index = folder.build(&machine, AUTO, false).unwrap();
    assert_eq!(machine.asked.get(), 0);
    let plain = build::build(&folder.dataset(), &OPTIONS).unwrap();
    assert_eq!(index.meta, plain.meta);
    assert!(index.meta.encoder_fingerprint.is_none() && index.meta.computed.is_empty());
    assert!(index.template_rows.is_empty());
}

#[test]
fn what_the_files_lack_is_computed_once() {
    let folder = Folder::new();
    let machine = Machine::new();
    folder.write("questions", "hub/hashed", &QUESTIONS[..1], "", None);
    let index = folder.build(&machine, AUTO, false).unwrap();
    // The text that is there is compared, then every missing one is encoded, once each; with them the templates.
    assert_eq!(
        machine.encoded(),
        ["Is it so?", "Oslo is a city.", "It rained.", QUESTIONS[1], "Where is the town of [ENTITY]?"]
    );
    assert_eq!(machine.opened.get(), 1);
    let row = |m: &Matrix, i: usize| m.row(i).to_vec();
    assert_eq!(row(&index.data.passages, 2), hashed(PASSAGES[2], ""));
    assert_eq!(row(&index.question_vectors, 1), hashed(QUESTIONS[1], ""));
    let template = index.template_rows["Where is the town of [ENTITY]?"];
    assert_eq!(row(&index.template_vectors, template), hashed("Where is the town of [ENTITY]?", ""));
    assert_eq!(row(&index.template_vectors, index.template_rows["Is it so?"]), hashed("Is it so?", ""));
    let meta = &index.meta;
    assert_eq!((meta.encoder.as_str(), meta.encoder_fingerprint.as_deref()), ("hub/hashed", Some(FINGERPRINT)));
    let computed: Vec<(&str, usize)> = meta.computed.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    assert_eq!(computed, [("passages", 2), ("questions", 1), ("templates", 2)]);
    // pitfall 10, counted: the question of 26 bytes.
    assert!(
        meta.notes.contains(
            &"questions: 1 of 2 texts (50.0 %) are longer than the encoder's 20 tokens and were cut there".into()
        ),
        "{:?}",
        meta.notes
    );

    let again = folder.build(&machine, AUTO, false).unwrap();
    assert!(machine.encoded().is_empty() && machine.opened.get() == 1, "all of it was kept");
    assert_eq!(again.meta, index.meta);
    assert_eq!(again.data.passages.as_slice(), index.data.passages.as_slice());
}

#[test]
fn without_files_the_default_encoder_is_asked_for_and_named_where_it_is_missing() {
    let folder = Folder::new();
    let mut machine = Machine::new();
    let found = report(folder.build(&machine, AUTO, false));
    assert!(found.contains("the vectors of the passages are missing"), "{found}");
    assert!(found.contains(&format!("they would be made by \"{DEFAULT_ENCODER}\", but there is no model")), "{found}");
    assert!(found.contains("hint: get it; or else: `livingrag dataset texts <dir>`"), "{found}");
    assert!(folder.build(&machine, "models/hashed", false).is_ok());
    machine.there = false;
    assert!(report(folder.build(&machine, "models/hashed", false)).contains("by \"models/hashed\", but"));
    assert!(!folder.0.path().join("indexes").exists());
}

/// pitfall 8: the configuration names another encoder than the files, even where nothing is missing.
#[test]
fn pitfall_8_another_encoder_than_the_files_name_is_refused() {
    let folder = Folder::new().complete();
    let machine = Machine::new();
    let found = report(folder.build(&machine, "hub/other", false));
    assert!(found.contains("index.encoder = \"hub/other\", and the vectors in "), "{found}");
    assert!(found.contains("are of \"hub/hashed\"\nhint: all vectors of an index come from one encoder"), "{found}");
    assert!(folder.build(&machine, "some/where/hashed", false).is_ok());
}

/// pitfall 8: the names agree and the vectors do not.
#[test]
fn pitfall_8_vectors_that_the_encoder_does_not_reproduce_are_refused() {
    let folder = Folder::new();
    let machine = Machine::new();
    folder.write("passages", "hub/hashed", &PASSAGES[..2], "other weights", None);
    let found = report(folder.build(&machine, AUTO, false));
    assert!(
        found.contains("passages.parquet: the vectors are said to be of \"hub/hashed\", and are not those of"),
        "{found}"
    );
    assert!(found.contains("hub/hashed (f00df00df00d): the vector of \"Oslo is a city.\" has cosine "), "{found}");
    assert_eq!(machine.encoded(), PASSAGES[..2], "only the spot check was encoded");
    // One odd file among good ones is found too.
    let folder = Folder::new();
    folder.write("passages", "hub/hashed", &PASSAGES[..1], "", None);
    folder.write("questions", "hub/hashed", &QUESTIONS, "other weights", None);
    assert!(report(folder.build(&machine, AUTO, false)).contains("questions.parquet: the vectors are said"));
}

/// pitfall 8: a file that carries its encoder's fingerprint is not compared but told apart by it.
#[test]
fn pitfall_8_fingerprints_of_files_are_compared() {
    let folder = Folder::new();
    let machine = Machine::new();
    folder.write("questions", "hub/hashed", &QUESTIONS, "", Some(FINGERPRINT));
    folder.build(&machine, AUTO, false).unwrap();
    assert!(!machine.encoded().contains(&QUESTIONS[1].to_owned()));
    folder.write("questions", "hub/hashed", &QUESTIONS, "", Some("beefbeefbeefbeef"));
    let found = report(folder.build(&machine, AUTO, false));
    assert!(
        found.contains("hub/hashed (beefbeefbeef), and those that are missing would be of hub/hashed (f00d"),
        "{found}"
    );
}

/// Template vectors are optional: made when an encoder is named, when they are asked for, or when the encoder is needed anyway.
#[test]
fn templates_are_made_when_something_asks_for_them() {
    let folder = Folder::new().complete();
    let mut machine = Machine::new();
    for (encoder, wanted, rows) in [(AUTO, false, 0), (AUTO, true, 2), ("hub/hashed", false, 2)] {
        let index = folder.build(&machine, encoder, wanted).unwrap();
        assert_eq!((index.template_rows.len(), index.template_vectors.rows()), (rows, rows), "{encoder} {wanted}");
        assert_eq!(index.meta.encoder_fingerprint.is_some(), rows > 0);
    }
    // Some are there: the others are made where the encoder is at hand, else a note says so.
    folder.write("templates", "hub/hashed", &QUESTIONS[..1], "", None);
    let index = folder.build(&machine, AUTO, false).unwrap();
    assert_eq!((index.template_rows.len(), index.meta.computed["templates"]), (2, 1));
    machine.there = false;
    let index = folder.build(&machine, AUTO, false).unwrap();
    assert_eq!((index.template_rows.len(), index.meta.encoder_fingerprint), (1, None));
    assert!(
        index.meta.notes.iter().any(|n| n.contains("no vector for 1 of 2 masked questions")),
        "{:?}",
        index.meta.notes
    );
    assert!(
        report(folder.build(&machine, AUTO, true))
            .contains("1 of 2 masked questions have no vector; they would be made by")
    );
}

#[test]
fn an_index_with_computed_vectors_is_found_again_by_encoder() {
    let folder = Folder::new();
    let mut machine = Machine::new();
    let (first, built) = folder.open_or_build(&machine, "hub/hashed");
    assert!(built);
    let (again, built) = folder.open_or_build(&machine, "models/hashed");
    assert!(!built && again.meta == first.meta);
    // Other weights under the same name: another index beside it.
    (machine.fingerprint, machine.salt) = ("beefbeefbeefbeef", "other");
    let (other, built) = folder.open_or_build(&machine, "hub/hashed");
    assert!(built && other.meta.fingerprint != first.meta.fingerprint);
    assert_ne!(other.data.passages.as_slice(), first.data.passages.as_slice());
}

#[test]
fn an_index_without_templates_is_not_taken_where_they_are_wanted() {
    let folder = Folder::new().complete();
    let machine = Machine::new();
    let (plain, _) = folder.open_or_build(&machine, AUTO);
    let (again, built) = folder.open_or_build(&machine, AUTO);
    assert!(!built && again.meta == plain.meta && plain.template_rows.is_empty());
    let (with, built) = folder.open_or_build(&machine, "hub/hashed");
    assert!(built && with.template_rows.len() == 2);
    assert!(!folder.open_or_build(&machine, "hub/hashed").1);
    assert_eq!(folder.open_or_build(&machine, AUTO).0.meta, plain.meta);
}

/// pitfall 8: index with A, run with B; both are named.
#[test]
fn pitfall_8_opening_an_index_with_another_encoder_names_both() {
    let folder = Folder::new();
    let mut machine = Machine::new();
    folder.open_or_build(&machine, "hub/hashed");
    let cache = folder.0.path().join("indexes");
    let path = std::fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
    let open = |machine: &Machine, encoder: &str| {
        folder.with(machine, encoder, false, |s| files::open_for(&path, &folder.dataset(), &OPTIONS, Some(s)))
    };
    open(&machine, AUTO).unwrap();
    open(&machine, "models/hashed").unwrap();
    let found = report(open(&machine, "hub/other"));
    assert!(found.contains("holds vectors of \"hub/hashed\", and index.encoder = \"hub/other\""), "{found}");
    machine.fingerprint = "beefbeefbeefbeef";
    let found = report(open(&machine, "hub/hashed"));
    assert!(
        found.contains("of \"hub/hashed\" (f00df00df00d), and index.encoder = \"hub/hashed\" (beefbeefbeef)"),
        "{found}"
    );
    // On a machine without the encoder the name must do.
    machine.there = false;
    open(&machine, "hub/hashed").unwrap();
}
