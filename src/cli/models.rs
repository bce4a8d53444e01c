//! Where models are, in words, without asking the network.
//!
//! In: a model's name. Out: a sentence for `doctor`, and the command that gets a missing one.

#[cfg(feature = "encoders")]
use crate::encode::{Found, look};

/// Where a model is, or how to get it.
#[cfg(feature = "encoders")]
pub fn whereabouts(name: &str) -> String {
    match look(name) {
        Found::Folder(path) => format!("{name}: in the folder {}", path.display()),
        Found::Cached(path) => format!("{name}: in the hub's cache, {}", path.display()),
        Found::Missing { command } => format!("{name}: not on this machine; get it with `{command}`"),
    }
}

/// The command that gets a model; `None` where it is on this machine.
#[cfg(feature = "encoders")]
pub fn command(name: &str) -> Option<String> {
    match look(name) {
        Found::Folder(_) | Found::Cached(_) => None,
        Found::Missing { command } => Some(command),
    }
}

/// As in a build with encoders.
#[cfg(not(feature = "encoders"))]
pub fn whereabouts(name: &str) -> String {
    format!("{name}: this build has no encoders")
}

/// As in a build with encoders.
#[cfg(not(feature = "encoders"))]
pub fn command(_name: &str) -> Option<String> {
    None
}
