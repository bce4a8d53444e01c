//! Where text leaves the program: data to standard output, everything else to standard error.
//!
//! In: text. Out: bytes on one of the two streams. A reader that closes the pipe early (`livingrag … | head`) has what it
//! wanted: what is left is dropped, and the command ends as if it had been read.

use std::io::{self, BufWriter, StdoutLock, Write};

use crate::{Error, Result};

/// Buffered standard output, or any other writer in tests.
pub struct Data<W: Write> {
    /// `None` once the reader has gone.
    writer: Option<BufWriter<W>>,
}

impl Data<StdoutLock<'static>> {
    /// Standard output, locked until dropped.
    pub fn stdout() -> Self {
        Self::to(io::stdout().lock())
    }
}

impl<W: Write> Data<W> {
    fn to(writer: W) -> Self {
        Self { writer: Some(BufWriter::new(writer)) }
    }

    /// Writes `text` and a newline.
    ///
    /// # Errors
    /// The stream cannot be written (a full disk), other than by a reader that went away.
    pub fn line(&mut self, text: &str) -> Result<()> {
        self.with(|w| w.write_all(text.as_bytes()).and_then(|()| w.write_all(b"\n")))
    }

    /// Whether the reader has gone, so that more work for it is in vain.
    pub fn closed(&self) -> bool {
        self.writer.is_none()
    }

    /// Writes out what is buffered. Must be called: a failure at drop would be lost.
    ///
    /// # Errors
    /// As [`Data::line`].
    pub fn finish(mut self) -> Result<()> {
        self.with(Write::flush)
    }

    fn with(&mut self, write: impl FnOnce(&mut BufWriter<W>) -> io::Result<()>) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        match write(writer) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                if let Some(writer) = self.writer.take() {
                    // Taken apart, so that dropping it does not try to write again.
                    let _ = writer.into_parts();
                }
                Ok(())
            }
            Err(e) => Err(Error::work("cannot write to standard output").with_source(e)),
        }
    }
}

/// Prints `text` and a newline to standard output.
///
/// # Errors
/// As [`Data::line`].
pub fn data(text: &str) -> Result<()> {
    let mut out = Data::stdout();
    out.line(text)?;
    out.finish()
}

/// A remark on standard error, unless `quiet`. Nobody can be told that standard error is gone, so that is ignored.
pub fn note(quiet: bool, text: &str) {
    if !quiet {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}

/// A warning on standard error, also when quiet: it says that a result may not be what it seems.
pub fn warning(text: &str) {
    let _ = writeln!(io::stderr().lock(), "warning: {text}");
}

/// The error that ends the command, with causes and hint.
pub fn error(error: &Error) {
    let _ = writeln!(io::stderr().lock(), "{}", error.report());
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    /// Fails every write with one kind of error.
    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_arrive_in_order() {
        let mut bytes = Vec::new();
        let mut out = Data::to(&mut bytes);
        out.line("a").unwrap();
        out.line("b").unwrap();
        out.finish().unwrap();
        assert_eq!(bytes, b"a\nb\n");
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let mut out = Data::to(Failing(io::ErrorKind::BrokenPipe));
        for _ in 0..3 {
            // Longer than the buffer, so that each line is written through.
            out.line(&"x".repeat(20_000)).unwrap();
        }
        assert!(out.closed());
        out.finish().unwrap();
    }

    #[test]
    fn a_full_disk_is_failed_work() {
        let mut out = Data::to(Failing(io::ErrorKind::StorageFull));
        out.line("x").unwrap();
        assert_eq!(out.finish().unwrap_err().exit_code(), 1);
    }
}
