//! [`ModelEncoders`] in a build without encoders: none is ever found, and one sentence says how to build them.

use super::encoder::{Encoders, FoundEncoder, ModelEncoders};
use crate::dataset::texts::TextMeasure;
use crate::{Error, Result};

impl Encoders for ModelEncoders {
    fn find(&self, _: &str) -> Result<Box<dyn FoundEncoder>> {
        Err(Error::request("this build has no encoders")
            .with_hint("build with the default features, or add --features encoders"))
    }

    fn on_machine(&self, _: &str) -> Option<Box<dyn FoundEncoder>> {
        None
    }
}

impl ModelEncoders {
    /// Never.
    pub fn measure(_: &str) -> Option<Box<dyn TextMeasure>> {
        None
    }
}
