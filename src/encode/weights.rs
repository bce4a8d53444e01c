//! Tensors by name out of safetensors files, checked for shape and read as `f32`.
//!
//! In: a [`ModelFolder`], whole or sharded, in f32, f16 or bf16. Out: candle tensors on a device, and the layers made of them.
//! Every error names the tensor, its file, and the shape expected and found.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

use super::ops::{LayerNorm, Linear, Place, Precision};
use super::source::ModelFolder;
use super::tensor_failed;
use crate::{Error, Result};

/// Where tensors come from.
pub(super) enum Weights {
    /// Files on disk.
    Files { files: Vec<(PathBuf, Mmap)>, tensors: BTreeMap<String, Stored> },
    /// Any tensor by name and shape, for models that are made rather than trained.
    #[cfg(test)]
    Made(Maker),
}

/// Numbers of a tensor by its name and shape.
#[cfg(test)]
pub(super) type Maker = Box<dyn Fn(&str, &[usize]) -> Option<Vec<f32>>>;

/// Where one tensor lies.
pub(super) struct Stored {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

impl Weights {
    /// Numbers in all tensors.
    pub fn count(&self) -> u64 {
        match self {
            Self::Files { tensors, .. } => tensors.values().map(|t| t.shape.iter().product::<usize>() as u64).sum(),
            #[cfg(test)]
            Self::Made(_) => 0,
        }
    }

    /// Maps the folder's weights.
    ///
    /// # Errors
    /// A file is missing, or no safetensors file, or cut short.
    pub fn open(folder: &ModelFolder) -> Result<Self> {
        let mut files = Vec::new();
        let mut tensors = BTreeMap::new();
        for path in folder.weight_files()? {
            let file = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
            // SAFETY: the map is read-only and lives only while the model is loaded; changing the file meanwhile is the one thing a
            // user must not do, as with any memory-mapped model.
            let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io("map", &path, e))?;
            let (header, metadata) = SafeTensors::read_metadata(&map).map_err(|e| damaged(&path).with_source(e))?;
            let start = 8 + header;
            if map.len() < start + metadata.data_len() {
                return Err(damaged(&path));
            }
            let names: BTreeMap<_, _> = metadata.tensors().into_iter().collect();
            for (name, info) in names {
                let (from, to) = info.data_offsets;
                let place = Stored {
                    file: files.len(),
                    dtype: info.dtype,
                    shape: info.shape.clone(),
                    bytes: start + from..start + to,
                };
                tensors.insert(name, place);
            }
            files.push((path, map));
        }
        Ok(Self::Files { files, tensors })
    }

    /// Whether there is such a tensor.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Files { tensors, .. } => tensors.contains_key(name),
            #[cfg(test)]
            Self::Made(make) => make(name, &[]).is_some(),
        }
    }

    /// A tensor whose name begins so, if there is one.
    pub fn under(&self, prefix: &str) -> Option<&str> {
        match self {
            Self::Files { tensors, .. } => {
                let (name, _) = tensors.range(prefix.to_owned()..).next()?;
                name.starts_with(prefix).then_some(name.as_str())
            }
            #[cfg(test)]
            Self::Made(_) => None,
        }
    }

    /// The tensor in `f32`, on the CPU.
    ///
    /// # Errors
    /// It is not there, has another shape, or is of a type that holds no real numbers.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let (files, tensors) = match self {
            Self::Files { files, tensors } => (files, tensors),
            #[cfg(test)]
            Self::Made(make) => {
                let numbers = make(name, shape).ok_or_else(|| missing(name, shape, "made weights"))?;
                return Tensor::from_vec(numbers, shape, &Device::Cpu).map_err(tensor_failed);
            }
        };
        let places = || files.iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>().join(", ");
        let place = tensors.get(name).ok_or_else(|| missing(name, shape, &places()))?;
        let (path, map) = &files[place.file];
        if place.shape != shape {
            return Err(Error::request(format!(
                "{}: tensor {name} has shape {:?}, expected {shape:?}",
                path.display(),
                place.shape
            ))
            .with_hint("config.json and the weights must be of the same model"));
        }
        let dtype = match place.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => {
                return Err(Error::request(format!(
                    "{}: tensor {name} is {other:?}, expected F32, F16 or BF16",
                    path.display()
                ))
                .with_hint("use weights that are not quantised"));
            }
        };
        Tensor::from_raw_buffer(&map[place.bytes.clone()], dtype, shape, &Device::Cpu)
            .and_then(|tensor| tensor.to_dtype(DType::F32))
            .map_err(tensor_failed)
    }
}

fn damaged(path: &Path) -> Error {
    Error::request(format!("{} is no safetensors file, or is cut short", path.display()))
        .with_hint("get the model again")
}

fn missing(name: &str, shape: &[usize], place: &str) -> Error {
    Error::request(format!("there is no tensor {name} {shape:?} in {place}"))
        .with_hint("the weights are of another kind of model than config.json says, or not of this use of it")
}

/// A place in the tree of tensor names, with what layers need to be made there.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    weights: &'a Weights,
    prefix: String,
    /// Where tensors go and operations run.
    pub on: &'a Place,
    /// Precision of products.
    pub precision: Precision,
}

impl<'a> Scope<'a> {
    /// The root.
    pub fn root(weights: &'a Weights, on: &'a Place, precision: Precision) -> Self {
        Self { weights, prefix: String::new(), on, precision }
    }

    /// candle's device there.
    pub fn device(&self) -> &'a Device {
        self.on.device()
    }

    /// `name` below this place.
    pub fn sub(&self, name: &str) -> Self {
        Self { prefix: format!("{}{name}.", self.prefix), ..self.clone() }
    }

    /// The model's own part: below `name` where files were saved with a head, else here.
    pub fn model(&self, name: &str) -> Self {
        let inner = self.sub(name);
        let probe = "embeddings.word_embeddings.weight";
        if inner.weights.has(&format!("{}{probe}", inner.prefix)) { inner } else { self.clone() }
    }

    /// Refuses weights that hold what the configuration does not: they would be left out in silence.
    ///
    /// # Errors
    /// A tensor's name begins with `name` below this place; `key` is the configuration's.
    pub fn has_no(&self, name: &str, key: &str) -> Result<()> {
        match self.weights.under(&format!("{}{name}", self.prefix)) {
            None => Ok(()),
            Some(tensor) => {
                Err(Error::request(format!("the weights hold {tensor}, which {key} of config.json leaves out"))
                    .with_hint("config.json and the weights must be of the same model"))
            }
        }
    }

    /// Name of this place, for messages.
    pub fn place(&self) -> &str {
        self.prefix.trim_end_matches('.')
    }

    /// A tensor.
    ///
    /// # Errors
    /// As [`Weights::tensor`].
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        self.weights.tensor(&format!("{}{name}", self.prefix), shape)?.to_device(self.device()).map_err(tensor_failed)
    }

    /// Weight and bias of a linear layer, \[out, in\] and \[out\].
    pub fn pair(&self, name: &str, out: usize, input: usize) -> Result<(Tensor, Tensor)> {
        Ok((self.tensor(&format!("{name}.weight"), &[out, input])?, self.tensor(&format!("{name}.bias"), &[out])?))
    }

    /// A linear layer.
    pub fn linear(&self, name: &str, out: usize, input: usize) -> Result<Linear> {
        let (weight, bias) = self.pair(name, out, input)?;
        Linear::on(self.on, &[(&weight, &bias)], self.precision)
    }

    /// Several linear layers of one input as one.
    pub fn fused(&self, names: &[&str], out: usize, input: usize) -> Result<Linear> {
        let pairs = names.iter().map(|name| self.pair(name, out, input)).collect::<Result<Vec<_>>>()?;
        let parts: Vec<_> = pairs.iter().map(|(weight, bias)| (weight, bias)).collect();
        Linear::on(self.on, &parts, self.precision)
    }

    /// A layer norm; old files call its parameters gamma and beta.
    pub fn norm(&self, name: &str, width: usize, eps: f32) -> Result<LayerNorm> {
        let old = self.weights.has(&format!("{}{name}.gamma", self.prefix));
        let [gamma, beta] = if old { ["gamma", "beta"] } else { ["weight", "bias"] };
        let gamma = self.tensor(&format!("{name}.{gamma}"), &[width])?;
        let beta = self.tensor(&format!("{name}.{beta}"), &[width])?;
        LayerNorm::on(self.on, &gamma, &beta, eps)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
