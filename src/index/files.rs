//! The index folder: `index.json`, `graph.safetensors`, `vectors.safetensors`, `texts.json`.
//!
//! Written to a neighbour folder and renamed, so a folder is whole or not there. Vectors are memory-mapped on opening; every file's
//! blake3 is checked against `index.json`.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::backend::{Matrix, RetrievalData};
use crate::dataset::{Dataset, vectors};
use crate::index::encoder::same_name;
use crate::index::vectors::{Supply, encoder_of_files};
use crate::index::{INDEX_VERSION, Index, IndexMeta, IndexOptions, IndexedQuestion, build};
use crate::math::graph::{Csr, Graph, WeightedCsr};
use crate::{Error, Result};

const META: &str = "index.json";
const GRAPH: &str = "graph.safetensors";
const VECTORS: &str = "vectors.safetensors";
const TEXTS: &str = "texts.json";

#[derive(Serialize, Deserialize)]
struct Texts {
    entities: Vec<String>,
    sentences: Vec<String>,
    question_entities: Vec<String>,
    templates: Vec<String>,
    questions: Vec<IndexedQuestion>,
}

/// Name of the folder an index of these inputs is kept in.
pub fn folder_name(dataset: &str, fingerprint: &str) -> String {
    let safe: String =
        dataset.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    format!("{safe}-{}", fingerprint.get(..12).unwrap_or(fingerprint))
}

/// Writes an index folder; an existing index of the same fingerprint is left as it is.
///
/// # Errors
/// When something else is at `folder`, or the disk refuses.
pub fn write(index: &Index, folder: &Path) -> Result<()> {
    let taken = |what: String| {
        Err(Error::request(format!("{} {what}", folder.display()))
            .with_hint("choose another --out folder, or remove what is there"))
    };
    if folder.exists() && !folder.is_dir() {
        return taken("is a file, and an index is a folder".into());
    }
    if let Ok(existing) = read_meta(folder) {
        if existing.fingerprint == index.meta.fingerprint {
            return Ok(());
        }
        let other = difference(&existing, &index.meta);
        return taken(format!("holds another index: it {other}"));
    }
    if folder.exists() && fs::read_dir(folder).map_err(|e| Error::io("read", folder, e))?.next().is_some() {
        return taken("is there already and is no index".into());
    }
    let parent = folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, e))?;
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let unfinished = parent.join(format!(".{name}.{}.unfinished", std::process::id()));
    let written = write_into(index, &unfinished)
        .and_then(|()| match fs::remove_dir(folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("replace", folder, e)),
            _ => Ok(()),
        })
        .and_then(|()| fs::rename(&unfinished, folder).map_err(|e| Error::io("rename into place", folder, e)));
    if written.is_err() {
        // Best effort: the error that matters is the one above.
        let _ = fs::remove_dir_all(&unfinished);
        // Another process may have finished the same index first.
        if read_meta(folder).is_ok_and(|m| m.fingerprint == index.meta.fingerprint) {
            return Ok(());
        }
    }
    written
}

fn csr<'a>(name: &str, csr: &'a Csr) -> [Tensor<'a>; 2] {
    [
        (format!("{name}.offsets"), Dtype::U64, csr.offsets.len(), bytemuck::cast_slice::<u64, u8>(&csr.offsets)),
        (format!("{name}.indices"), Dtype::U32, csr.indices.len(), bytemuck::cast_slice::<u32, u8>(&csr.indices)),
    ]
}
fn values<'a>(name: &str, values: &'a [f64]) -> [Tensor<'a>; 1] {
    [(format!("{name}.values"), Dtype::F64, values.len(), bytemuck::cast_slice::<f64, u8>(values))]
}

fn write_into(index: &Index, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    let mut meta = index.meta.clone();
    let graph = &index.data.graph;
    let occurrences = &index.data.occurrences;
    let mut templates = vec![String::new(); index.template_vectors.rows()];
    #[expect(clippy::iter_over_hash_type, reason = "every entry goes to its own place")]
    for (text, &row) in &index.template_rows {
        templates[row].clone_from(text);
    }
    let texts = Texts {
        entities: index.entities.clone(),
        sentences: index.sentences.clone(),
        question_entities: index.question_entities.clone(),
        templates,
        questions: index.questions.clone(),
    };
    let json = serde_json::to_vec(&texts).map_err(|e| Error::work("cannot write the index's texts").with_source(e))?;
    let graph_arrays: Vec<_> = csr("entity_sentences", &graph.entity_sentences)
        .into_iter()
        .chain(csr("sentence_entities", &graph.sentence_entities))
        .chain(csr("passage_entities", &graph.passage_entities))
        .chain(csr("adjacency", &graph.adjacency.shape))
        .chain(values("adjacency", &graph.adjacency.values))
        .chain(csr("occurrences", &occurrences.shape))
        .chain(values("occurrences", &occurrences.values))
        .collect();
    let vector_arrays: Vec<_> = [
        ("passages", &index.data.passages),
        ("sentences", &index.data.sentences),
        ("entities", &index.data.entities),
        ("questions", &index.question_vectors),
        ("question_entities", &index.question_entity_vectors),
        ("templates", &index.template_vectors),
    ]
    .into_iter()
    .map(|(name, m)| {
        let numbers = m.as_slice();
        (name.to_owned(), Dtype::F32, numbers.len(), bytemuck::cast_slice::<f32, u8>(numbers))
    })
    .collect();
    meta.files.insert(TEXTS.into(), blake3::hash(&json).to_hex().to_string());
    write_synced(&folder.join(TEXTS), &json)?;
    for (name, arrays) in [(GRAPH, &graph_arrays), (VECTORS, &vector_arrays)] {
        meta.files.insert(name.into(), write_tensors(&folder.join(name), arrays)?);
    }
    // The library keeps its files to their owner; an index is for whoever may read the rest of it.
    let readers = fs::metadata(folder.join(TEXTS)).map_err(|e| Error::io("read", folder, e))?.permissions();
    for name in [GRAPH, VECTORS] {
        let path = folder.join(name);
        fs::set_permissions(&path, readers.clone()).map_err(|e| Error::io("open to its readers", &path, e))?;
    }
    let json = serde_json::to_vec_pretty(&meta).map_err(|e| Error::work("cannot write index.json").with_source(e))?;
    write_synced(&folder.join(META), &json)
}

/// An array by name.
type Tensor<'a> = (String, Dtype, usize, &'a [u8]);

/// Writes arrays one after the other, without a second copy of them in memory; blake3 of the file.
fn write_tensors(path: &Path, arrays: &[Tensor<'_>]) -> Result<String> {
    let views: Vec<(&str, TensorView<'_>)> = arrays
        .iter()
        .map(|(name, dtype, len, bytes)| Ok((name.as_str(), TensorView::new(*dtype, vec![*len], bytes)?)))
        .collect::<Result<_, safetensors::SafeTensorError>>()
        .map_err(|e| Error::work("cannot lay out the index's arrays").with_source(e))?;
    safetensors::serialize_to_file(views, None, path)
        .map_err(|e| Error::work(format!("cannot write {}", path.display())).with_source(e))?;
    let failed = |e| Error::io("write", path, e);
    let file = File::open(path).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file).map_err(failed)?;
    Ok(hasher.finalize().to_hex().to_string())
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).map_err(|e| Error::io("create", path, e))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|e| Error::io("write", path, e))
}

/// Reads `index.json` alone.
///
/// # Errors
/// When the folder is no index, or one of another version.
pub fn read_meta(folder: &Path) -> Result<IndexMeta> {
    let path = folder.join(META);
    let text = fs::read_to_string(&path).map_err(|e| {
        let error = match (e.kind(), folder.exists()) {
            (std::io::ErrorKind::NotFound, true) => {
                Error::request(format!("{} is no index folder: it holds no {META}", folder.display()))
            }
            (std::io::ErrorKind::NotFound, false) => {
                Error::request(format!("the index folder {} does not exist", folder.display()))
            }
            _ => Error::io("read", &path, e),
        };
        error.with_hint("an index folder is made by `livingrag index <dataset-dir>`, which prints its path")
    })?;
    let version = serde_json::from_str::<serde_json::Value>(&text).ok().and_then(|v| v["version"].as_u64());
    if version.is_some_and(|v| v != u64::from(INDEX_VERSION)) {
        return Err(Error::request(format!(
            "{}: index version {}, this livingrag reads version {INDEX_VERSION}",
            path.display(),
            version.unwrap_or_default()
        ))
        .with_hint("build it again with `livingrag index <dataset-dir>`"));
    }
    serde_json::from_str(&text).map_err(|e| damaged(&path).with_source(e))
}

fn damaged(path: &Path) -> Error {
    incomplete(path, "is damaged")
}

fn incomplete(path: &Path, what: &str) -> Error {
    Error::request(format!("{} {what}", path.display()))
        .with_hint("remove the index folder and build it again with `livingrag index <dataset-dir>`")
}

/// A mapped file's numbers.
struct MappedFloats {
    file: Arc<Mmap>,
    bytes: Range<usize>,
}

impl AsRef<[f32]> for MappedFloats {
    fn as_ref(&self) -> &[f32] {
        // Alignment and length were checked when the range was made.
        bytemuck::cast_slice(&self.file[self.bytes.clone()])
    }
}

fn map(folder: &Path, name: &str, meta: &IndexMeta) -> Result<Arc<Mmap>> {
    let path = folder.join(name);
    let file = File::open(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => incomplete(&path, "is missing"),
        _ => Error::io("open", &path, e),
    })?;
    // SAFETY: the map is read-only and the file lies in a finished index folder, which nothing writes to again; changing it
    // from outside while a run reads it is the one thing a user must not do, as with any memory-mapped index.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io("map", &path, e))?;
    let expected = meta.files.get(name).map(String::as_str);
    if expected != Some(blake3::hash(&map).to_hex().as_str()) {
        return Err(damaged(&path));
    }
    Ok(Arc::new(map))
}

/// Opens an index folder.
///
/// # Errors
/// When it is no index, of another version, or damaged.
pub fn open(folder: &Path) -> Result<Index> {
    let meta = read_meta(folder)?;
    let texts = map(folder, TEXTS, &meta)?;
    let texts: Texts = serde_json::from_slice(&texts).map_err(|e| damaged(&folder.join(TEXTS)).with_source(e))?;

    let graph_path = folder.join(GRAPH);
    let bytes = map(folder, GRAPH, &meta)?;
    let arrays = SafeTensors::deserialize(&bytes).map_err(|e| damaged(&graph_path).with_source(e))?;
    let csr = |name: &str| -> Result<Csr> {
        let array =
            |part: &str| arrays.tensor(&format!("{name}.{part}")).map_err(|e| damaged(&graph_path).with_source(e));
        let offsets: Vec<u64> = numbers(array("offsets")?.data()).ok_or_else(|| damaged(&graph_path))?;
        let indices: Vec<u32> = numbers(array("indices")?.data()).ok_or_else(|| damaged(&graph_path))?;
        Ok(Csr { offsets, indices })
    };
    let weighted = |name: &str| -> Result<WeightedCsr<f64>> {
        let view = arrays.tensor(&format!("{name}.values")).map_err(|e| damaged(&graph_path).with_source(e))?;
        let values: Vec<f64> = numbers(view.data()).ok_or_else(|| damaged(&graph_path))?;
        Ok(WeightedCsr { shape: csr(name)?, values })
    };
    let graph = Graph {
        entity_sentences: csr("entity_sentences")?,
        sentence_entities: csr("sentence_entities")?,
        passage_entities: csr("passage_entities")?,
        adjacency: weighted("adjacency")?,
    };
    let occurrences = weighted("occurrences")?;

    let vector_path = folder.join(VECTORS);
    let file = map(folder, VECTORS, &meta)?;
    let arrays = SafeTensors::deserialize(&file).map_err(|e| damaged(&vector_path).with_source(e))?;
    // The other files carry hashes; that their description fits them is checked here.
    let matrix = |name: &str, rows: usize| -> Result<Matrix> {
        let data = arrays.tensor(name).map_err(|e| damaged(&vector_path).with_source(e))?.data();
        if rows.checked_mul(meta.dim).and_then(|n| n.checked_mul(size_of::<f32>())) != Some(data.len()) {
            return Err(damaged(&folder.join(META)));
        }
        let start = data.as_ptr() as usize - file.as_ptr() as usize;
        let bytes = start..start + data.len();
        if bytemuck::try_cast_slice::<u8, f32>(&file[bytes.clone()]).is_err() {
            return Err(damaged(&vector_path));
        }
        Ok(Matrix::shared(meta.dim, Arc::new(MappedFloats { file: Arc::clone(&file), bytes })))
    };
    let counts = meta.counts;
    let described = (counts.entities, counts.sentences, counts.questions, counts.question_entities);
    let there = (texts.entities.len(), texts.sentences.len(), texts.questions.len(), texts.question_entities.len());
    if described != there || counts.edges != graph.n_edges() || counts.occurrences != occurrences.values.len() {
        return Err(damaged(&folder.join(META)));
    }
    let template_rows: HashMap<String, usize> = texts.templates.into_iter().enumerate().map(|(i, t)| (t, i)).collect();
    Ok(Index {
        entities: texts.entities,
        sentences: texts.sentences,
        questions: texts.questions,
        question_entities: texts.question_entities,
        question_vectors: matrix("questions", counts.questions)?,
        question_entity_vectors: matrix("question_entities", counts.question_entities)?,
        template_rows,
        template_vectors: matrix("templates", counts.templates)?,
        data: Arc::new(RetrievalData {
            graph,
            occurrences,
            passages: matrix("passages", counts.passages)?,
            sentences: matrix("sentences", counts.sentences)?,
            entities: matrix("entities", counts.entities)?,
        }),
        meta,
    })
}

/// Little-endian numbers as they lie in the file, copied so that alignment does not matter.
fn numbers<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(bytes: &[u8]) -> Option<Vec<T>> {
    bytes.len().is_multiple_of(size_of::<T>()).then(|| bytemuck::pod_collect_to_vec(bytes))
}

/// Opens `folder` and checks that it was made from this dataset with these options and, where `supply` names one, this encoder.
///
/// # Errors
/// pitfall 8: an index of another corpus, encoder or options; the error names both sides.
pub fn open_for(
    folder: &Path,
    dataset: &Dataset,
    options: &IndexOptions,
    supply: Option<&Supply<'_>>,
) -> Result<Index> {
    let index = open(folder)?;
    let (inputs, base) = build::fingerprint(dataset, options)?;
    let meta = &index.meta;
    if let Some(supply) = supply.filter(|supply| supply.is_explicit()) {
        check_encoder(folder, meta, supply)?;
    }
    if meta.fingerprint == fingerprint_of(&base, meta.encoder_fingerprint.as_deref()) {
        return Ok(index);
    }
    let wanted = IndexMeta {
        dataset: dataset.name.clone(),
        dataset_fingerprint: dataset.fingerprint.clone(),
        // Vectors that were removed since name no encoder; then the files' names say what differs.
        encoder: vectors::read_encoder(&dataset.folder.join("embeddings/questions.parquet"))
            .unwrap_or_else(|_| meta.encoder.clone()),
        options: *options,
        inputs,
        ..meta.clone()
    };
    let what = difference(meta, &wanted);
    Err(Error::request(format!("the index in {} does not fit: it {what}", folder.display())).with_hint(format!(
        "leave index.path empty, and the run finds or builds the right one, or build it yourself: livingrag index {} --out …",
        dataset.folder.display()
    )))
}

fn fingerprint_of(base: &str, encoder: Option<&str>) -> String {
    encoder.map_or_else(|| base.to_owned(), |encoder| build::with_encoder(base, encoder))
}

/// pitfall 8: the encoder that the configuration names made this index; by fingerprint where both are known, else by name.
fn check_encoder(folder: &Path, meta: &IndexMeta, supply: &Supply<'_>) -> Result<()> {
    let asked = supply.encoders.on_machine(supply.encoder);
    let pair = meta.encoder_fingerprint.as_deref().zip(asked.as_ref().map(|found| found.fingerprint()));
    let (there, wanted) = match pair {
        Some((there, wanted)) if there == wanted => return Ok(()),
        Some((there, wanted)) => {
            let short = |f: &str| f.get(..12).unwrap_or(f).to_owned();
            (format!(" ({})", short(there)), format!(" ({})", short(wanted)))
        }
        None if same_name(&meta.encoder, supply.encoder) => return Ok(()),
        None => Default::default(),
    };
    Err(Error::request(format!(
        "the index in {} holds vectors of {:?}{there}, and index.encoder = {:?}{wanted}",
        folder.display(),
        meta.encoder,
        supply.encoder
    ))
    .with_hint(
        "leave index.path empty, and the run finds or builds the right index; or name the encoder that made this one",
    ))
}

/// How an index that is there differs from the one that is wanted; both sides are named (pitfall 8).
fn difference(there: &IndexMeta, wanted: &IndexMeta) -> String {
    let short = |s: &str| s.get(..12).unwrap_or(s).to_owned();
    if there.dataset_fingerprint != wanted.dataset_fingerprint {
        return format!(
            "was made from dataset {:?} ({}), and {:?} ({}) is asked for",
            there.dataset,
            short(&there.dataset_fingerprint),
            wanted.dataset,
            short(&wanted.dataset_fingerprint)
        );
    }
    let options: Vec<String> = option_values(&there.options)
        .into_iter()
        .zip(option_values(&wanted.options))
        .filter(|((_, there), (_, wanted))| there != wanted)
        .map(|((key, there), (_, wanted))| format!("index.{key} = \"{there}\", and \"{wanted}\" is asked for"))
        .collect();
    if !options.is_empty() {
        return format!("was made with {}", options.join("; "));
    }
    if there.encoder != wanted.encoder {
        return format!("holds vectors of {:?}, and the dataset's vectors are of {:?}", there.encoder, wanted.encoder);
    }
    let changed =
        wanted.inputs.iter().filter(|(name, hash)| there.inputs.get(*name) != Some(hash)).map(|(name, _)| name);
    let gone = there.inputs.keys().filter(|name| !wanted.inputs.contains_key(*name));
    let files: Vec<&str> = changed.chain(gone).map(String::as_str).collect();
    format!("was made from another {} of dataset {:?}", files.join(", "), wanted.dataset)
}

fn option_values(options: &IndexOptions) -> [(&'static str, &'static str); 4] {
    [
        ("annotations", options.annotations.as_str()),
        ("passage_prefix", options.passage_prefix.as_str()),
        ("adjacent_passages", options.adjacent_passages.as_str()),
        ("entity_text", options.entity_text.as_str()),
    ]
}

/// Opens the index of a dataset under `cache`, building and writing it when it is not there yet. The flag says whether it was built.
///
/// # Errors
/// Those of building, writing and opening.
pub fn open_or_build(
    dataset: &Dataset,
    options: &IndexOptions,
    cache: &Path,
    mut supply: Option<&mut Supply<'_>>,
) -> Result<(Index, bool)> {
    let (_, base) = build::fingerprint(dataset, options)?;
    let folder = |fingerprint: &str| cache.join(folder_name(&dataset.name, fingerprint));
    let is_there = |fingerprint: &str| read_meta(&folder(fingerprint)).is_ok_and(|m| m.fingerprint == fingerprint);
    if is_there(&base) {
        let index = open(&folder(&base))?;
        // An index all of whose vectors lay beside the dataset is whole, unless template vectors are wanted as well.
        if supply.as_ref().is_none_or(|supply| !lacks_templates(&index, supply)) {
            if let Some(supply) = &supply {
                supply.name(Some(&index.meta.encoder), &dataset.folder)?;
            }
            return Ok((index, false));
        }
    }
    if let Some(supply) = &supply {
        let name = supply.name(encoder_of_files(&dataset.folder).as_deref(), &dataset.folder)?;
        let found = supply.encoders.on_machine(&name);
        if let Some(fingerprint) = found.map(|found| build::with_encoder(&base, found.fingerprint()))
            && is_there(&fingerprint)
        {
            return Ok((open(&folder(&fingerprint))?, false));
        }
    }
    let built = build::build_with(dataset, options, supply.take())?;
    let folder = folder(&built.meta.fingerprint);
    write(&built, &folder)?;
    // Its vectors are mapped from now on.
    drop(built);
    Ok((open(&folder)?, true))
}

/// Whether an index lacks template vectors that an encoder should add.
fn lacks_templates(index: &Index, supply: &Supply<'_>) -> bool {
    let mut templates = index.questions.iter().map(|q| (supply.mask)(&q.question.text, &q.mentions));
    let wanted = supply.templates || supply.is_explicit() || !index.template_rows.is_empty();
    wanted && templates.any(|template| !index.template_rows.contains_key(&template))
}
