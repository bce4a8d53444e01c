//! The one error type: what went wrong, where, and what would cure it.
//!
//! In: a message that names file, line or key and value. Out: text for standard error and an exit code
//! (1 the work failed, 2 the request was wrong). Wording: one sentence, no full stop at the end, then a hint.

use std::fmt;
use std::path::Path;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whose fault it is, which decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request was wrong (arguments, configuration, input files): exit code 2.
    Request,
    /// The request was fine and the work failed (disk full, endpoint gone): exit code 1.
    Work,
}

/// An error a person can act on.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// The request was wrong; `message` names file, line or key and the value found.
    pub fn request(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Request, message: message.into(), hint: None, source: None }
    }

    /// The work failed although the request was fine.
    pub fn work(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Work, message: message.into(), hint: None, source: None }
    }

    /// An operating-system error while doing `action` (for example "read") on `path`.
    ///
    /// A place that is missing, taken, of the wrong sort, forbidden or not UTF-8 is a wrong request; anything else is failed work.
    pub fn io(action: &str, path: &Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match source.kind() {
            Io::NotFound
            | Io::AlreadyExists
            | Io::IsADirectory
            | Io::NotADirectory
            | Io::PermissionDenied
            | Io::InvalidData
            | Io::ReadOnlyFilesystem => ErrorKind::Request,
            _ => ErrorKind::Work,
        };
        Self {
            kind,
            message: format!("cannot {action} {}", path.display()),
            hint: None,
            source: Some(Box::new(source)),
        }
    }

    /// Adds what would cure it, printed as `hint: …`.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the error underneath.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The cure, if one is known.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// 2 when the request was wrong, 1 when the work failed.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::Request => 2,
            ErrorKind::Work => 1,
        }
    }

    /// The whole text for standard error: message, causes, hint.
    pub fn report(&self) -> String {
        let mut text = format!("error: {}", self.message);
        let mut cause = std::error::Error::source(self);
        while let Some(inner) = cause {
            text.push_str(&format!("\n  caused by: {inner}"));
            cause = inner.source();
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\nhint: {hint}"));
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn std::error::Error + 'static))
    }
}
