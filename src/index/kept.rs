//! Computed vectors, kept for every index, run and process that needs the same text encoded by the same encoder.
//!
//! In: texts. Out: their vectors, from part files under `<root>/<encoder>-<fingerprint>/` or from the encoder, which is opened only when
//! something is missing. Part files have the form of `embeddings/*.parquet` and appear by rename, so a kill loses at most the part in
//! work. A part is claimed by a lock while it is made, so processes that need the same texts divide them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::dataset::texts::estimate_tokens;
use crate::dataset::vectors::{self, Origin, VectorTable};
use crate::index::encoder::{Encoded, TextEncoder, last_part};
use crate::{Error, Result};

/// A part holds at most so many texts,
const PART_TEXTS: usize = 4096;
/// and about so many tokens: half a minute of a base-size encoder on two cores.
const PART_TOKENS: usize = 32_768;
/// Tokens, roughly, that the encoder is given at a time: enough to fill a device's batches, few enough to see how it goes on.
const CHUNK_TOKENS: usize = 16_384;

/// Vectors by text.
#[derive(Debug, Clone, Default)]
pub struct Known {
    dim: usize,
    /// Looked up only, never iterated.
    rows: HashMap<String, usize>,
    data: Vec<f32>,
    cut: Vec<bool>,
}

impl Known {
    /// Vector of a text.
    pub fn vector(&self, text: &str) -> Option<&[f32]> {
        let row = *self.rows.get(text)?;
        Some(&self.data[row * self.dim..(row + 1) * self.dim])
    }

    /// Whether a text was cut.
    pub fn is_cut(&self, text: &str) -> bool {
        self.rows.get(text).is_some_and(|&row| self.cut[row])
    }

    /// Numbers a vector; 0 where there is none.
    pub fn dim(&self) -> usize {
        self.dim
    }

    fn add(&mut self, text: &str, vector: &[f32], cut: bool) {
        if !self.rows.contains_key(text) {
            self.dim = vector.len();
            self.rows.insert(text.to_owned(), self.cut.len());
            self.data.extend_from_slice(vector);
            self.cut.push(cut);
        }
    }
}

/// Hears what is computed.
pub trait Watch {
    /// The encoder is about to be opened; `texts` of about `tokens` tokens are to be encoded, `kept` others were kept before.
    fn begin(&mut self, encoder: &str, texts: usize, tokens: usize, kept: usize);
    /// It is open, and runs there.
    fn opened(&mut self, device: &str);
    /// So many of the tokens are encoded, roughly.
    fn at(&mut self, tokens: usize);
    /// Something a user should know.
    fn note(&mut self, text: &str);
    /// Nothing is left to encode.
    fn end(&mut self);
}

/// Hears nothing.
pub struct Silent;

impl Watch for Silent {
    fn begin(&mut self, _: &str, _: usize, _: usize, _: usize) {}
    fn opened(&mut self, _: &str) {}
    fn at(&mut self, _: usize) {}
    fn note(&mut self, _: &str) {}
    fn end(&mut self) {}
}

/// The kept vectors of one encoder.
#[derive(Debug, Clone)]
pub struct KeptVectors {
    folder: PathBuf,
    encoder: String,
    fingerprint: String,
    max_tokens: usize,
}

impl KeptVectors {
    /// Those under `root` of the encoder with this name and fingerprint, which cuts at `max_tokens`. Nothing is made yet.
    pub fn new(root: &Path, encoder: &str, fingerprint: &str, max_tokens: usize) -> Self {
        let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let name: String = last_part(encoder).chars().map(safe).collect();
        let folder = root.join(format!("{name}-{}", fingerprint.get(..12).unwrap_or(fingerprint)));
        Self { folder, encoder: encoder.to_owned(), fingerprint: fingerprint.to_owned(), max_tokens }
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Finished parts, by name.
    fn parts(&self) -> Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("read", &self.folder, e)),
        };
        let mut paths = entries
            .map(|entry| entry.map(|e| e.path()))
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(|e| Error::io("read", &self.folder, e))?;
        paths.retain(|path| path.extension().is_some_and(|e| e == "parquet"));
        paths.sort();
        Ok(paths)
    }

    /// Adds to `known` what is kept of `wanted`.
    ///
    /// # Errors
    /// A part that cannot be read, or one of another encoder.
    fn look(&self, known: &mut Known, wanted: &HashSet<&str>) -> Result<()> {
        for path in self.parts()? {
            let (texts, _) = vectors::read_texts(&path).map_err(|e| unusable(e, &path))?;
            if texts.iter().any(|text| wanted.contains(text.as_str()) && known.vector(text).is_none()) {
                self.take(known, &path, wanted)?;
            }
        }
        Ok(())
    }

    fn take(&self, known: &mut Known, path: &Path, wanted: &HashSet<&str>) -> Result<()> {
        let (table, origin, _) = vectors::read_with_origin(path).map_err(|e| unusable(e, path))?;
        if origin.encoder_fingerprint.as_deref() != Some(self.fingerprint.as_str()) {
            return Err(Error::request(format!(
                "{}: the vectors are of encoder {} ({}), those beside it of {} ({})",
                path.display(),
                table.encoder,
                origin.encoder_fingerprint.as_deref().map_or("no fingerprint", short),
                self.encoder,
                short(&self.fingerprint)
            ))
            .with_hint("remove the file; its texts are encoded again"));
        }
        if known.dim() != 0 && known.dim() != table.dim {
            return Err(Error::request(format!(
                "{}: the vectors are {} numbers wide, those beside it {}",
                path.display(),
                table.dim,
                known.dim()
            ))
            .with_hint("remove the file; its texts are encoded again"));
        }
        let cut: HashSet<usize> = origin.cut_rows.unwrap_or_default().into_iter().collect();
        for (row, text) in table.texts.iter().enumerate().filter(|(_, text)| wanted.contains(text.as_str())) {
            known.add(text, table.row(row), cut.contains(&row));
        }
        Ok(())
    }

    /// Vectors of all `texts`: kept ones, and the others computed and kept. `open` opens the encoder and is called at most once.
    ///
    /// # Errors
    /// When the encoder cannot be opened or gives no numbers, or the folder cannot be written. What was computed before is kept.
    pub fn ensure(
        &self,
        texts: &[&str],
        open: &mut dyn FnMut() -> Result<Rc<dyn TextEncoder>>,
        watch: &mut dyn Watch,
    ) -> Result<Known> {
        let wanted: HashSet<&str> = texts.iter().copied().collect();
        let mut known = Known::default();
        self.look(&mut known, &wanted)?;
        let mut seen = HashSet::new();
        let missing: Vec<&str> =
            texts.iter().copied().filter(|text| known.vector(text).is_none() && seen.insert(*text)).collect();
        if missing.is_empty() {
            return Ok(known);
        }
        watch.begin(&self.encoder, missing.len(), self.tokens(&missing), wanted.len() - missing.len());
        // Before the weights are read for nothing.
        fs::create_dir_all(&self.folder).map_err(|e| Error::io("create", &self.folder, e))?;
        let encoder = open()?;
        watch.opened(&encoder.device());
        let mut done = 0;
        let mut later: Vec<&[&str]> = Vec::new();
        let parts = self.divide(&missing, PART_TEXTS, PART_TOKENS);
        for part in parts {
            match self.claim(part, false)? {
                Some(_claim) => self.make(part, &*encoder, &mut known, &mut done, watch)?,
                None => later.push(part),
            }
        }
        if !later.is_empty() {
            let texts: usize = later.iter().map(|part| part.len()).sum();
            watch.note(&format!("another process is encoding {texts} of the texts; waiting for it"));
        }
        for part in later {
            let _claim = self.claim(part, true)?;
            self.make(part, &*encoder, &mut known, &mut done, watch)?;
        }
        watch.end();
        Ok(known)
    }

    fn tokens(&self, texts: &[&str]) -> usize {
        texts.iter().map(|text| estimate_tokens(text).min(self.max_tokens)).sum()
    }

    /// Texts in runs of at most so many, and of about so many tokens.
    fn divide<'t, 'a>(&self, texts: &'t [&'a str], most: usize, most_tokens: usize) -> Vec<&'t [&'a str]> {
        let mut parts = Vec::new();
        let (mut start, mut tokens) = (0, 0);
        for (i, text) in texts.iter().enumerate() {
            tokens += estimate_tokens(text).min(self.max_tokens);
            if tokens >= most_tokens || i + 1 - start >= most {
                parts.push(&texts[start..=i]);
                (start, tokens) = (i + 1, 0);
            }
        }
        if start < texts.len() {
            parts.push(&texts[start..]);
        }
        parts
    }

    /// The part's file: named by its texts, so that processes that need the same part meet.
    fn file(&self, part: &[&str]) -> PathBuf {
        let mut hasher = blake3::Hasher::new();
        for text in part {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        self.folder.join(format!("part-{}.parquet", &hasher.finalize().to_hex()[..16]))
    }

    /// The right to make a part; `None` when another process has it and `wait` is not set.
    fn claim(&self, part: &[&str], wait: bool) -> Result<Option<Claim>> {
        let path = self.file(part).with_extension("lock");
        let file = File::create(&path).map_err(|e| Error::io("create", &path, e))?;
        let locked = match file.try_lock() {
            Err(TryLockError::WouldBlock) if !wait => return Ok(None),
            Err(TryLockError::WouldBlock) => file.lock(),
            Ok(()) => Ok(()),
            Err(TryLockError::Error(e)) => Err(e),
        };
        match locked {
            Ok(()) => Ok(Some(Claim { path, _file: file })),
            // A file system without locks: then two processes may do the same work, and no harm.
            Err(e) if e.kind() == std::io::ErrorKind::Unsupported => Ok(Some(Claim { path, _file: file })),
            Err(e) => Err(Error::io("lock", &path, e)),
        }
    }

    /// Reads a part that was finished meanwhile, or encodes and keeps it.
    fn make(
        &self,
        part: &[&str],
        encoder: &dyn TextEncoder,
        known: &mut Known,
        done: &mut usize,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let path = self.file(part);
        if path.is_file() {
            self.take(known, &path, &part.iter().copied().collect())?;
        } else {
            self.remove_leftovers(&path);
            let Encoded { dim, vectors, cut } = self.encode(part, encoder, *done, watch)?;
            if dim == 0 || vectors.len() != part.len() * dim || cut.len() != part.len() {
                return Err(Error::work(format!(
                    "the encoder {} gave {} numbers of width {dim} for {} texts",
                    self.encoder,
                    vectors.len(),
                    part.len()
                )));
            }
            let cut_rows = (0..part.len()).filter(|&row| cut[row]).collect();
            let origin = Origin { encoder_fingerprint: Some(self.fingerprint.clone()), cut_rows: Some(cut_rows) };
            let table = VectorTable {
                encoder: self.encoder.clone(),
                truncated_at_tokens: Some(self.max_tokens),
                dim,
                texts: part.iter().map(|text| (*text).to_owned()).collect(),
                data: vectors,
            };
            vectors::write_with_origin(&path, &table, &origin)?;
            for (row, text) in part.iter().enumerate() {
                known.add(text, table.row(row), cut[row]);
            }
        }
        *done += self.tokens(part);
        watch.at(*done);
        Ok(())
    }

    /// Encodes a part chunk by chunk, telling how far it is; `before` tokens were done before it.
    fn encode(
        &self,
        part: &[&str],
        encoder: &dyn TextEncoder,
        mut before: usize,
        watch: &mut dyn Watch,
    ) -> Result<Encoded> {
        let mut all = Encoded::default();
        for chunk in self.divide(part, PART_TEXTS, CHUNK_TOKENS) {
            let tokens = self.tokens(chunk);
            let Encoded { dim, vectors, cut } =
                encoder.encode(chunk, &mut |n| watch.at(before + tokens * n / chunk.len()))?;
            all.dim = dim;
            all.vectors.extend(vectors);
            all.cut.extend(cut);
            before += tokens;
        }
        Ok(all)
    }

    /// Removes what writers of this part that were killed have left; the claim says that nobody is writing it now.
    fn remove_leftovers(&self, path: &Path) {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let found = entry.file_name();
            let found = found.to_string_lossy();
            if found.starts_with(&name) && found.ends_with(".part") {
                // A leftover does no harm, so neither does failing to remove it.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn short(fingerprint: &str) -> &str {
    fingerprint.get(..12).unwrap_or(fingerprint)
}

fn unusable(error: Error, path: &Path) -> Error {
    error.with_hint(format!("remove {}; its texts are encoded again", path.display()))
}

/// The right to make one part; ends when dropped.
struct Claim {
    path: PathBuf,
    _file: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Who waits for this lock finds the part finished, so it does no harm that it waits for a file that is gone.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
pub(super) mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Every text that was encoded.
    pub type Log = Rc<RefCell<Vec<String>>>;

    /// Vectors from a text's hash; cuts texts of more than 20 bytes; fails at the text `stop`.
    pub struct Hashed {
        pub log: Log,
        pub salt: &'static str,
    }

    pub fn hashed(text: &str, salt: &str) -> [f32; 3] {
        let hash = blake3::hash(format!("{salt}{text}").as_bytes());
        let v = [0, 1, 2].map(|i| f32::from(hash.as_bytes()[i]) - 127.5);
        let length = v.iter().map(|x| x * x).sum::<f32>().sqrt();
        v.map(|x| x / length)
    }

    impl TextEncoder for Hashed {
        fn encode(&self, texts: &[&str], done: &mut dyn FnMut(usize)) -> Result<Encoded> {
            if texts.contains(&"stop") {
                return Err(Error::work("stopped"));
            }
            self.log.borrow_mut().extend(texts.iter().map(|t| (*t).to_owned()));
            done(texts.len());
            Ok(Encoded {
                dim: 3,
                vectors: texts.iter().flat_map(|t| hashed(t, self.salt)).collect(),
                cut: texts.iter().map(|t| t.len() > 20).collect(),
            })
        }
        fn device(&self) -> String {
            "nowhere".into()
        }
    }

    fn ensure(kept: &KeptVectors, texts: &[&str]) -> (Result<Known>, Vec<String>) {
        let log = Log::default();
        let encoder = Rc::clone(&log);
        let mut open = || -> Result<Rc<dyn TextEncoder>> { Ok(Rc::new(Hashed { log: Rc::clone(&encoder), salt: "" })) };
        let known = kept.ensure(texts, &mut open, &mut Silent);
        let encoded = log.borrow().clone();
        (known, encoded)
    }

    fn kept(root: &Path) -> KeptVectors {
        KeptVectors::new(root, "hub/some encoder", "0123456789abcdef", 64)
    }

    #[test]
    fn what_is_kept_is_not_encoded_again() {
        let root = tempfile::tempdir().unwrap();
        let kept = kept(root.path());
        assert_eq!(kept.folder(), root.path().join("some-encoder-0123456789ab"));
        let (known, encoded) = ensure(&kept, &["a", "é", "a", "a text of more than twenty bytes"]);
        let known = known.unwrap();
        assert_eq!(encoded, ["a", "é", "a text of more than twenty bytes"]);
        assert_eq!((known.vector("é"), known.vector("b")), (Some(&hashed("é", "")[..]), None));
        assert!(known.is_cut("a text of more than twenty bytes") && !known.is_cut("a"));
        // Other texts, other order, another process.
        let (known, encoded) = ensure(&kept, &["b", "a text of more than twenty bytes", "é"]);
        let known = known.unwrap();
        assert_eq!(encoded, ["b"]);
        assert_eq!(known.vector("é"), Some(&hashed("é", "")[..]));
        assert!(known.is_cut("a text of more than twenty bytes"));
        let (_, encoded) = ensure(&kept, &["a", "b"]);
        assert!(encoded.is_empty());
        let names: Vec<String> =
            fs::read_dir(kept.folder()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        assert!(names.len() == 2 && names.iter().all(|n| n.ends_with(".parquet")), "{names:?}");
    }

    #[test]
    fn a_broken_off_run_has_kept_the_parts_before() {
        let root = tempfile::tempdir().unwrap();
        let kept = kept(root.path());
        let texts: Vec<String> = (0..PART_TEXTS + 3).map(|i| format!("t{i}")).collect();
        let mut views: Vec<&str> = texts.iter().map(String::as_str).collect();
        views.push("stop");
        assert_eq!(ensure(&kept, &views).0.unwrap_err().to_string(), "stopped");
        views.pop();
        let (known, encoded) = ensure(&kept, &views);
        assert_eq!(encoded, texts[PART_TEXTS..], "only the part in work is encoded again");
        let known = known.unwrap();
        assert!(texts.iter().all(|t| known.vector(t) == Some(&hashed(t, "")[..])));
    }

    #[test]
    fn parts_are_bounded_in_tokens() {
        let root = tempfile::tempdir().unwrap();
        let long = "word ".repeat(70);
        let texts: Vec<String> = (0..2500).map(|i| format!("{i} {long}")).collect();
        let views: Vec<&str> = texts.iter().map(String::as_str).collect();
        let parts = kept(root.path()).divide(&views, PART_TEXTS, PART_TOKENS);
        assert_eq!(parts.concat(), views);
        // 64 tokens each, so 512 texts fill a part.
        assert_eq!(parts.iter().map(|p| p.len()).collect::<Vec<_>>(), [512, 512, 512, 512, 452]);
    }

    #[test]
    fn a_part_of_another_encoder_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let kept = kept(root.path());
        ensure(&kept, &["a"]).0.unwrap();
        let other = KeptVectors::new(root.path(), "hub/some encoder", "0123456789abffff", 64);
        assert_eq!(other.folder(), kept.folder());
        let error = ensure(&other, &["a"]).0.unwrap_err();
        assert!(error.to_string().contains("are of encoder hub/some encoder (0123456789ab)"), "{}", error.report());
        assert!(error.hint().unwrap().contains("remove the file"));
    }

    #[test]
    fn a_damaged_part_is_named() {
        let root = tempfile::tempdir().unwrap();
        let kept = kept(root.path());
        fs::create_dir_all(kept.folder()).unwrap();
        fs::write(kept.folder().join("part-x.parquet"), "no").unwrap();
        let error = ensure(&kept, &["a"]).0.unwrap_err();
        assert!(error.report().contains("part-x.parquet; its texts are encoded again"), "{}", error.report());
    }

    /// A part that another process has claimed is left to it, and read when it is finished.
    #[test]
    fn two_that_need_the_same_texts_divide_them() {
        let root = tempfile::tempdir().unwrap();
        let texts: Vec<String> = (0..3 * PART_TEXTS).map(|i| format!("t{i}")).collect();
        let counts: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let views: Vec<&str> = texts.iter().map(String::as_str).collect();
                        let (known, encoded) = ensure(&kept(root.path()), &views);
                        let known = known.unwrap();
                        assert!(texts.iter().all(|t| known.vector(t) == Some(&hashed(t, "")[..])));
                        encoded.len()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(counts.iter().sum::<usize>(), texts.len(), "{counts:?}");
    }
}
