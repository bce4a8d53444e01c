//! [`ModelEncoders`] in a build with encoders: models as encoders of texts.

use super::encoder::{Encoded, Encoders, FoundEncoder, ModelEncoders, TextEncoder};
use crate::Result;
use crate::config::BackendKind;
use crate::dataset::texts::TextMeasure;
use crate::encode::{Embedder, EncodeDevice, Found, ModelFolder, Precision, TextLimit, locate, look};

impl Encoders for ModelEncoders {
    fn find(&self, name: &str) -> Result<Box<dyn FoundEncoder>> {
        self.take(locate(name)?)
    }

    fn on_machine(&self, name: &str) -> Option<Box<dyn FoundEncoder>> {
        match look(name) {
            Found::Missing { .. } => None,
            // Nothing is fetched for what is there.
            Found::Folder(_) | Found::Cached(_) => self.find(name).ok(),
        }
    }
}

impl ModelEncoders {
    fn take(&self, folder: ModelFolder) -> Result<Box<dyn FoundEncoder>> {
        Ok(Box::new(FoundModel {
            name: folder.short_name(),
            fingerprint: folder.fingerprint()?,
            folder,
            device: self.device,
        }))
    }

    /// The tokenizer of an encoder that is on this machine; `None` where it is not, or cannot be read.
    pub fn measure(name: &str) -> Option<Box<dyn TextMeasure>> {
        match look(name) {
            Found::Missing { .. } => None,
            Found::Folder(_) | Found::Cached(_) => Some(Box::new(TextLimit::open(&locate(name).ok()?).ok()?)),
        }
    }
}

struct FoundModel {
    folder: ModelFolder,
    name: String,
    fingerprint: String,
    device: BackendKind,
}

impl FoundEncoder for FoundModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn measure(&self) -> Result<Box<dyn TextMeasure>> {
        Ok(Box::new(TextLimit::open(&self.folder)?))
    }

    fn open(&self) -> Result<Box<dyn TextEncoder>> {
        let device = EncodeDevice::open(self.device)?;
        // Vectors are computed once and used for ever, so they are computed in full precision everywhere.
        let embedder = Embedder::load(&self.folder, &device, Precision::F32)?;
        Ok(Box::new(OpenModel { embedder, device: device.description() }))
    }
}

impl TextMeasure for TextLimit {
    fn max_tokens(&self) -> usize {
        self.max_tokens()
    }

    fn cut(&self, texts: &[&str]) -> Result<Vec<bool>> {
        self.cut(texts)
    }
}

struct OpenModel {
    embedder: Embedder,
    device: String,
}

impl TextEncoder for OpenModel {
    fn encode(&self, texts: &[&str], done: &mut dyn FnMut(usize)) -> Result<Encoded> {
        let embedded = self.embedder.embed(texts, done)?;
        Ok(Encoded { dim: self.embedder.dim(), vectors: embedded.vectors, cut: embedded.cut })
    }

    fn device(&self) -> String {
        self.device.clone()
    }
}
