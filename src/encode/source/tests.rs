//! Tests of finding models: folders, the hub's cache, offline mode, and a hub made of a loopback listener.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::super::cases;
use super::*;

/// A hub with this cache that asks `endpoint`.
fn hub(cache: &Path, endpoint: &str, offline: bool) -> Hub {
    Hub {
        cache: cache.to_owned(),
        endpoint: endpoint.to_owned(),
        offline,
        token: None,
        patience: Duration::from_secs(20),
    }
}

/// Files of a small model.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let model = cases::folder("bert");
    ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
        .map(|name| (name, fs::read(model.path().join(name)).unwrap()))
        .to_vec()
}

/// Lays files into the cache as the hub's clients do.
fn lay(cache: &Path, id: &str, files: &[(&str, Vec<u8>)]) -> PathBuf {
    let repository = cache.join(format!("models--{}", id.replace('/', "--")));
    let snapshot = repository.join("snapshots/c0ffee");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(repository.join("refs")).unwrap();
    fs::write(repository.join("refs/main"), "c0ffee").unwrap();
    for (name, bytes) in files {
        fs::write(snapshot.join(name), bytes).unwrap();
    }
    snapshot
}

/// Answers requests as the hub does: a file's bytes in the range asked for, 404 for what it does not have. Returns its address and
/// the paths asked for.
fn serve(files: Vec<(&'static str, Vec<u8>)>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap(), &files, &log);
        }
    });
    (address, asked)
}

fn answer(mut stream: TcpStream, files: &[(&str, Vec<u8>)], log: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let request = lines.next().unwrap().unwrap();
    let path = request.split(' ').nth(1).unwrap().to_owned();
    let mut from = 0;
    let mut to = usize::MAX;
    for line in lines.map(Result::unwrap).take_while(|line| !line.is_empty()) {
        if let Some(range) = line.to_lowercase().strip_prefix("range: bytes=") {
            let (a, b) = range.split_once('-').unwrap();
            from = a.parse().unwrap();
            to = b.parse().map_or(usize::MAX, |b: usize| b + 1);
        }
    }
    let found = files.iter().find(|(name, _)| path.ends_with(&format!("/resolve/main/{name}")));
    log.lock().unwrap().push(path.clone());
    let head = match found {
        None => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        Some((name, bytes)) => {
            to = to.min(bytes.len());
            format!(
                "HTTP/1.1 206 Partial Content\r\netag: \"{name}-1\"\r\nx-repo-commit: 1234abcd\r\ncontent-range: bytes {from}-{}/{}\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n",
                to.saturating_sub(1),
                bytes.len(),
                to - from
            )
        }
    };
    let _ = stream.write_all(head.as_bytes());
    if let Some((_, bytes)) = found {
        let _ = stream.write_all(&bytes[from..to]);
    }
}

#[test]
fn names_that_can_be_hub_ids() {
    assert_eq!(hub_id("all-MiniLM-L6-v2").as_deref(), Some("sentence-transformers/all-MiniLM-L6-v2"));
    assert_eq!(hub_id("cross-encoder/nli-deberta-v3-large").as_deref(), Some("cross-encoder/nli-deberta-v3-large"));
    for name in ["", ".", "..", "./model", "/a/b", "a/b/c", "a/", "a b/c", "~/model", "a\\b", "-x"] {
        assert_eq!(hub_id(name), None, "{name}");
    }
}

#[test]
fn a_folder_is_taken_as_it_is() {
    let cache = tempfile::tempdir().unwrap();
    let hub = hub(cache.path(), "http://127.0.0.1:9", false);
    let model = cases::folder("bert");
    let name = model.path().to_str().unwrap();
    assert_eq!(hub.look(name), Found::Folder(model.path().to_owned()));
    let found = hub.locate(name).unwrap();
    assert_eq!((found.path(), found.name(), found.is_hub_copy()), (model.path(), name, false));
    let file = model.path().join("config.json");
    assert!(hub.locate(file.to_str().unwrap()).unwrap_err().to_string().contains("is a file, and a model is a folder"));
    let error = hub.locate("/nowhere/at/all").unwrap_err();
    assert_eq!(error.to_string(), "there is no model folder /nowhere/at/all");
}

/// Offline nothing is asked of the network, whatever is missing.
#[test]
fn offline_the_hub_is_never_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let cache = tempfile::tempdir().unwrap();
    let hub = hub(cache.path(), &format!("http://{}", listener.local_addr().unwrap()), true);
    let error = hub.locate("owner/model").unwrap_err();
    assert!(error.to_string().contains("has no model owner/model; offline mode is on"), "{error}");
    assert!(error.hint().unwrap().contains("`hf download owner/model`"), "{:?}", error.hint());
    assert_eq!(error.exit_code(), 2);
    assert_eq!(hub.look("owner/model"), Found::Missing { command: "hf download owner/model".into() });

    let snapshot = lay(cache.path(), "owner/model", &files());
    assert_eq!(hub.look("owner/model"), Found::Cached(snapshot.clone()));
    let found = hub.locate("owner/model").unwrap();
    assert!(found.is_hub_copy());
    assert_eq!((found.path(), found.name()), (snapshot.as_path(), "owner/model"));

    fs::remove_file(snapshot.join("model.safetensors")).unwrap();
    let error = hub.locate("owner/model").unwrap_err();
    assert!(error.to_string().contains("only a part of model owner/model"), "{error}");
    assert!(error.to_string().contains("has no model.safetensors"), "{error}");
    // What transformers fetched of a sentence encoder is not all of it.
    lay(cache.path(), "sentence-transformers/model", &files());
    let error = hub.locate("model").unwrap_err();
    assert!(error.to_string().contains("has no modules.json"), "{error}");
    assert!(listener.accept().is_err(), "the hub was asked");
}

/// A complete copy in the cache needs no network either.
#[test]
fn what_is_in_the_cache_is_not_asked_for_again() {
    let (address, asked) = serve(files());
    let cache = tempfile::tempdir().unwrap();
    let hub = hub(cache.path(), &address, false);
    let found = hub.locate("owner/model").unwrap();
    for (name, bytes) in files() {
        assert_eq!(fs::read(found.path().join(name)).unwrap(), bytes, "{name}");
    }
    let weights_last = asked.lock().unwrap().last().unwrap().ends_with("model.safetensors");
    assert!(weights_last, "{asked:?}");
    assert_eq!(found.fingerprint().unwrap(), cases::folder("bert").fingerprint().unwrap());
    let before = asked.lock().unwrap().len();
    assert_eq!(hub.locate("owner/model").unwrap().path(), found.path());
    assert_eq!(asked.lock().unwrap().len(), before);
}

#[test]
fn sharded_weights_come_with_their_index() {
    let mut files = files();
    let (_, weights) = files.pop().unwrap();
    let index = br#"{"weight_map": {"a": "part-2.safetensors", "b": "part-1.safetensors", "c": "part-1.safetensors"}}"#;
    files.push(("model.safetensors.index.json", index.to_vec()));
    files.push(("part-1.safetensors", weights.clone()));
    files.push(("part-2.safetensors", weights));
    let (address, _) = serve(files);
    let cache = tempfile::tempdir().unwrap();
    let found = hub(cache.path(), &address, false).locate("owner/model").unwrap();
    let names: Vec<_> =
        found.weight_files().unwrap().iter().map(|f| f.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["part-1.safetensors", "part-2.safetensors"]);
}

#[test]
fn what_the_hub_does_not_have_is_said() {
    let cache = tempfile::tempdir().unwrap();
    let (address, _) = serve(Vec::new());
    let error = hub(cache.path(), &address, false).locate("owner/model").unwrap_err();
    assert!(error.to_string().contains("owner/model is neither a folder nor a model"), "{error}");
    assert_eq!(error.exit_code(), 2);

    let mut without_tokenizer = files();
    without_tokenizer.retain(|(name, _)| *name != "tokenizer.json");
    let (address, _) = serve(without_tokenizer);
    let error = hub(cache.path(), &address, false).locate("owner/model").unwrap_err();
    assert!(error.to_string().contains("has no tokenizer.json"), "{error}");
    assert!(error.hint().unwrap().contains("AutoTokenizer"));
}

#[test]
fn a_hub_that_cannot_be_reached_or_does_not_answer_is_one_error() {
    let cache = tempfile::tempdir().unwrap();
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = hub(cache.path(), &format!("http://{free}"), false).locate("owner/model").unwrap_err();
    assert!(error.to_string().contains("did not give the model"), "{error}");
    assert!(error.hint().unwrap().contains("`hf download owner/model`"));
    assert_eq!(error.exit_code(), 1);

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut hub = hub(cache.path(), &format!("http://{}", silent.local_addr().unwrap()), false);
    hub.patience = Duration::from_millis(200);
    let error = hub.locate("owner/model").unwrap_err();
    assert!(error.to_string().contains("no answer within 0 s"), "{error}");
}

#[test]
fn incomplete_folders_say_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let open = || ModelFolder::open(path).unwrap_err();
    assert!(open().to_string().ends_with("has no config.json"), "{}", open());
    fs::write(path.join("config.json"), "{}").unwrap();
    assert!(open().to_string().ends_with("has no tokenizer.json"), "{}", open());
    fs::write(path.join("tokenizer.json"), "{}").unwrap();
    assert!(open().to_string().ends_with("has no model.safetensors"), "{}", open());
    fs::write(path.join("pytorch_model.bin"), "").unwrap();
    assert!(open().to_string().ends_with("holds pytorch_model.bin but no model.safetensors"), "{}", open());
    for (index, says) in [
        ("[]", "has no weight_map"),
        (r#"{"weight_map": {"a": "../b.safetensors"}}"#, "has no weight_map"),
        (r#"{"weight_map": {"a": "b.safetensors"}}"#, "has no b.safetensors"),
    ] {
        fs::write(path.join("model.safetensors.index.json"), index).unwrap();
        assert!(open().to_string().contains(says), "{}", open());
    }
}

#[test]
fn the_fingerprint_sees_every_file_that_matters() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files() {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let model = ModelFolder::open(folder.path()).unwrap();
    let first = model.fingerprint().unwrap();
    assert_eq!(first.len(), 64);
    fs::write(folder.path().join("README.md"), "about").unwrap();
    assert_eq!(model.fingerprint().unwrap(), first);
    let mut seen = vec![first];
    for name in
        ["config.json", "tokenizer.json", "model.safetensors", "tokenizer_config.json", "sentence_bert_config.json"]
    {
        let path = folder.path().join(name);
        let mut bytes = fs::read(&path).unwrap_or_default();
        bytes.push(b' ');
        fs::write(&path, bytes).unwrap();
        let now = model.fingerprint().unwrap();
        assert!(!seen.contains(&now), "{name}");
        seen.push(now);
    }
}
