//! Tests of reading weights: every type and shard, and what is wrong is named.

use std::collections::BTreeMap;
use std::fs;

use safetensors::tensor::TensorView;

use super::super::cases;
use super::super::{CrossEncoder, Embedder, EncodeDevice};
use super::*;

/// A copy of a case's folder, to be damaged.
struct Copy(tempfile::TempDir);

impl Copy {
    fn of(name: &str) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for name_and_type in fs::read_dir(cases::folder(name).path()).unwrap() {
            let from = name_and_type.unwrap().path();
            if from.is_file() {
                fs::copy(&from, copy.path().join(from.file_name().unwrap())).unwrap();
            }
        }
        Self(copy)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Changes the text of a file.
    fn edit(&self, name: &str, from: &str, to: &str) -> &Self {
        let text = fs::read_to_string(self.path(name)).unwrap();
        assert!(text.contains(from), "{from} is not in {name}");
        fs::write(self.path(name), text.replace(from, to)).unwrap();
        self
    }

    /// Every tensor as `f32`.
    fn tensors(&self) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
        let bytes = fs::read(self.path("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let weights = Weights::open(&ModelFolder::open(self.0.path()).unwrap()).unwrap();
        file.tensors()
            .into_iter()
            .map(|(name, view)| {
                let numbers = weights.tensor(&name, view.shape()).unwrap().flatten_all().unwrap().to_vec1().unwrap();
                (name, (view.shape().to_vec(), numbers))
            })
            .collect()
    }

    fn load(&self) -> Result<CrossEncoder> {
        CrossEncoder::load(&ModelFolder::open(self.0.path())?, &EncodeDevice::cpu(), Precision::F32)
    }

    fn score(&self) -> Result<Vec<f32>> {
        Ok(self.load()?.score(&[("The ferry leaves at noon.", "It is late.")], &mut |_| {})?.logits)
    }
}

/// Writes tensors as a safetensors file in `f32`.
fn write(path: &Path, tensors: &BTreeMap<String, (Vec<usize>, Vec<f32>)>) {
    let bytes: Vec<Vec<u8>> =
        tensors.values().map(|(_, numbers)| numbers.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let views: Vec<_> = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, (shape, _)), bytes)| (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()))
        .collect();
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn shards_and_half_precision_give_what_one_file_in_single_precision_gives() {
    // Half precision in the first case, bfloat16 in the second.
    for name in ["deberta_v3", "deberta_own_projections"] {
        let copy = Copy::of(name);
        let expected = copy.score().unwrap();
        let tensors = copy.tensors();
        write(&copy.path("model.safetensors"), &tensors);
        assert_eq!(copy.score().unwrap(), expected);
        fs::remove_file(copy.path("model.safetensors")).unwrap();
        let mut map = serde_json::Map::new();
        for (part, take) in [("a.safetensors", 0), ("b.safetensors", 1)] {
            let own: BTreeMap<_, _> =
                tensors.clone().into_iter().enumerate().filter(|(i, _)| i % 2 == take).map(|(_, t)| t).collect();
            map.extend(own.keys().map(|name| (name.clone(), part.into())));
            write(&copy.path(part), &own);
        }
        let index = serde_json::json!({"metadata": {}, "weight_map": map});
        fs::write(copy.path("model.safetensors.index.json"), index.to_string()).unwrap();
        assert_eq!(copy.score().unwrap(), expected);
    }
}

/// What the configuration leaves out would be left out of the result in silence.
#[test]
fn weights_that_hold_more_than_the_configuration_are_refused() {
    let copy = Copy::of("bert");
    copy.edit("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    let error = copy.load().err().unwrap().to_string();
    assert!(error.contains("encoder.layer.1.") && error.contains("num_hidden_layers = 1"), "{error}");
    let copy = Copy::of("bert");
    copy.edit("config.json", "\"type_vocab_size\": 2", "\"type_vocab_size\": 0");
    let error = copy.load().err().unwrap().to_string();
    assert!(error.contains("token_type_embeddings") && error.contains("type_vocab_size = 0"), "{error}");
}

/// A copy without the folder that says how to pool, and one that says it for another width.
#[test]
fn a_sentence_encoder_without_its_pooling_is_refused() {
    let copy = Copy::of("bert_cls");
    let load = || Embedder::load(&ModelFolder::open(copy.0.path()).unwrap(), &EncodeDevice::cpu(), Precision::F32);
    let error = load().err().unwrap().to_string();
    assert!(error.contains("1_Pooling/config.json is missing"), "{error}");
    fs::create_dir(copy.path("1_Pooling")).unwrap();
    let settings = fs::read_to_string(cases::folder("bert_cls").path().join("1_Pooling/config.json")).unwrap();
    fs::write(copy.path("1_Pooling/config.json"), &settings).unwrap();
    assert!(load().is_ok());
    let wrong = settings.replace("\"word_embedding_dimension\": 32", "\"word_embedding_dimension\": 77");
    fs::write(copy.path("1_Pooling/config.json"), wrong).unwrap();
    let error = load().err().unwrap().to_string();
    assert!(error.contains("word_embedding_dimension = 77, expected 32"), "{error}");
    copy.edit("modules.json", "1_Pooling", "../elsewhere");
    assert!(load().err().unwrap().to_string().contains("is no folder of the model"));
    fs::write(copy.path("modules.json"), "[]").unwrap();
    assert!(load().err().unwrap().to_string().contains("has no Pooling module"));
}

#[test]
fn norms_under_their_old_names_are_read() {
    let copy = Copy::of("bert");
    let expected = copy.score().unwrap();
    let old = copy.tensors().into_iter().map(|(name, tensor)| {
        (name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"), tensor)
    });
    write(&copy.path("model.safetensors"), &old.collect());
    assert_eq!(copy.score().unwrap(), expected);
}

/// A weight that overflows, or is NaN already: an error with the layer's name, and never NaN.
#[test]
fn numbers_that_are_not_finite_are_an_error_with_the_layers_name() {
    for (case, tensor, value, place) in [
        ("deberta_v3", "deberta.embeddings.word_embeddings.weight", f32::NAN, "deberta.embeddings are"),
        ("deberta_v3", "deberta.encoder.layer.1.intermediate.dense.weight", 3e38, "deberta.encoder.layer.1 are"),
        ("deberta_v3", "deberta.encoder.layer.0.attention.self.query_proj.weight", 3e38, "deberta.encoder.layer.0 are"),
        ("deberta_v3", "deberta.encoder.rel_embeddings.weight", f32::INFINITY, "deberta.encoder.layer.0 are"),
        ("bert", "bert.encoder.layer.1.output.dense.bias", f32::NEG_INFINITY, "bert.encoder.layer.1 are"),
        ("mpnet", "mpnet.encoder.relative_attention_bias.weight", f32::NAN, "mpnet.encoder.layer.0 are"),
        ("roberta", "roberta.embeddings.LayerNorm.weight", f32::INFINITY, "roberta.embeddings are"),
        ("bert", "classifier.weight", 3e38, "the classifier are"),
    ] {
        let copy = Copy::of(case);
        let mut tensors = copy.tensors();
        tensors.get_mut(tensor).unwrap_or_else(|| panic!("{case} has no {tensor}")).1.fill(value);
        write(&copy.path("model.safetensors"), &tensors);
        let error = copy.score().unwrap_err();
        assert!(error.to_string().contains(place), "{tensor}: {error}");
        assert!(error.to_string().contains("not finite") && error.hint().is_some(), "{error}");
        assert_eq!(error.exit_code(), 1);
    }
}

#[test]
fn missing_and_misshapen_tensors_are_named_with_both_shapes() {
    let more = Copy::of("bert");
    more.edit("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    let error = more.load().err().unwrap();
    assert!(
        error.to_string().contains("no tensor bert.encoder.layer.2.attention.self.query.weight [32, 32] in"),
        "{error}"
    );

    let wide = Copy::of("bert");
    wide.edit("config.json", "\"intermediate_size\": 64", "\"intermediate_size\": 65");
    let error = wide.load().err().unwrap();
    let says = "tensor bert.encoder.layer.0.intermediate.dense.weight has shape [64, 32], expected [65, 32]";
    assert!(error.to_string().contains(says), "{error}");
    assert!(error.hint().is_some() && error.exit_code() == 2);

    let other = Copy::of("bert");
    other.edit("config.json", "\"model_type\": \"bert\"", "\"model_type\": \"roberta\"");
    assert!(other.load().err().unwrap().to_string().contains("no tensor classifier.dense.weight"));
}

#[test]
fn damaged_files_are_named() {
    let cut = Copy::of("bert");
    let bytes = fs::read(cut.path("model.safetensors")).unwrap();
    for end in [0, 7, 100, bytes.len() - 1] {
        fs::write(cut.path("model.safetensors"), &bytes[..end]).unwrap();
        let error = cut.load().err().unwrap();
        assert!(error.to_string().contains("model.safetensors is no safetensors file, or is cut short"), "{error}");
    }

    let integers = Copy::of("bert");
    let mut tensors = integers.tensors();
    let (shape, numbers) = tensors.remove("classifier.weight").unwrap();
    let bytes = vec![0u8; numbers.len()];
    let view = TensorView::new(Dtype::I8, shape, &bytes).unwrap();
    let path = integers.path("model.safetensors");
    write(&path, &tensors);
    let rest = fs::read(&path).unwrap();
    let rest = SafeTensors::deserialize(&rest).unwrap();
    let views = rest.tensors().into_iter().chain([("classifier.weight".to_owned(), view)]);
    let whole = safetensors::serialize(views, None).unwrap();
    fs::write(&path, whole).unwrap();
    let error = integers.load().err().unwrap();
    assert!(error.to_string().contains("tensor classifier.weight is I8, expected F32, F16 or BF16"), "{error}");
}

#[test]
fn the_tokenizer_must_be_the_models() {
    let small = Copy::of("bert");
    small.edit("config.json", "\"vocab_size\": 120", "\"vocab_size\": 50");
    let error = small.load().err().unwrap();
    assert!(error.to_string().contains("has token ids up to"), "{error}");
    let none = Copy::of("bert");
    fs::write(none.path("tokenizer.json"), "[]").unwrap();
    assert!(none.load().err().unwrap().to_string().contains("tokenizer.json is no tokenizer file"));
    let bare = Copy::of("bert");
    let mut json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(bare.path("tokenizer.json")).unwrap()).unwrap();
    json["post_processor"] = serde_json::Value::Null;
    fs::write(bare.path("tokenizer.json"), json.to_string()).unwrap();
    assert!(bare.load().err().unwrap().to_string().contains("adds no special tokens"));
}
