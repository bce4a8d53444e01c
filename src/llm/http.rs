//! One POST over HTTP.
//!
//! In: an address, a body, the key. Out: status, the headers that matter and the body, or what broke. Redirects are not
//! followed: the key stays with the host it was meant for. What the library says passes through the key's redaction. The roots of
//! trust are Mozilla's, built in, or those of `SSL_CERT_FILE`; proxies come from the usual variables.

use std::path::Path;
use std::time::Duration;

use ureq::http::HeaderValue;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::chat::FailureKind;
use super::secret::Secret;
use super::transport::{HttpReply, Transport};
use crate::{Error, Result};

/// Largest body that is read.
const MOST_BYTES: u64 = 64 << 20;

/// A connection pool.
#[derive(Debug)]
pub(super) struct Http {
    agent: ureq::Agent,
    key: Option<(HeaderValue, Secret)>,
}

impl Http {
    /// `timeout` is for a whole call, from connecting to the last byte.
    pub fn new(timeout: Duration, connections: u32, key: Option<Secret>) -> Result<Self> {
        let connections = connections as usize;
        let mut tls = TlsConfig::builder();
        if let Some(path) = std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) {
            tls = tls.root_certs(certificates(Path::new(&path))?);
        }
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(timeout))
            .max_idle_connections(connections)
            .max_idle_connections_per_host(connections)
            .tls_config(tls.build())
            .user_agent(concat!("livingrag/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let key = key
            .map(|key| {
                let mut header = HeaderValue::from_str(&key.bearer())
                    .map_err(|_| Error::request("the API key cannot stand in an HTTP header"))?;
                header.set_sensitive(true);
                Ok::<_, Error>((header, key))
            })
            .transpose()?;
        Ok(Self { agent, key })
    }

    fn exchange(&self, url: &str, body: &str) -> std::result::Result<HttpReply, ureq::Error> {
        let mut request = self.agent.post(url).header(CONTENT_TYPE, "application/json");
        if is_loopback(url) {
            // A proxy of the environment is for the world outside.
            request = request.config().proxy(None).build();
        }
        if let Some((header, _)) = &self.key {
            request = request.header(AUTHORIZATION, header);
        }
        let mut response = request.send(body)?;
        let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let (retry_after, retry_after_ms) = (header("retry-after"), header("retry-after-ms"));
        let bytes = response.body_mut().with_config().limit(MOST_BYTES).read_to_vec()?;
        let body = String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        let body = match &self.key {
            Some((_, key)) => key.redact_body(body),
            None => body,
        };
        Ok(HttpReply { status: response.status().as_u16(), retry_after, retry_after_ms, body })
    }
}

impl Transport for Http {
    fn post(&self, url: &str, body: &str) -> std::result::Result<HttpReply, (FailureKind, String)> {
        self.exchange(url, body).map_err(|error| {
            let kind = match error {
                ureq::Error::Timeout(_) => FailureKind::Timeout,
                ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::BodyExceedsLimit(_) => {
                    FailureKind::Refused
                }
                _ => FailureKind::Connection,
            };
            (kind, self.redact(&error.to_string()))
        })
    }

    fn redact(&self, text: &str) -> String {
        self.key.as_ref().map_or_else(|| text.to_owned(), |(_, key)| key.redact(text))
    }

    fn holds_key(&self, text: &str) -> bool {
        self.key.as_ref().is_some_and(|(_, key)| key.is_in(text))
    }
}

/// The roots of trust in a PEM file, for endpoints behind an authority of one's own.
fn certificates(path: &Path) -> Result<RootCerts> {
    let pem = std::fs::read(path).map_err(|e| Error::io("read the certificates of SSL_CERT_FILE,", path, e))?;
    let roots: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if roots.is_empty() {
        return Err(Error::request(format!("SSL_CERT_FILE names {}, which holds no certificate", path.display()))
            .with_hint("name a PEM file, or unset the variable to use the built-in roots"));
    }
    Ok(RootCerts::new_with_certs(&roots))
}

/// Whether the address is this machine.
fn is_loopback(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    ["127.", "localhost:", "localhost/", "[::1]"].iter().any(|start| host.starts_with(start))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = certificates(file.path()).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(&file.path().display().to_string()), "{error}");
    }

    #[test]
    fn loopback_addresses() {
        for url in ["http://127.0.0.1:80/v1", "http://localhost:1/v1", "http://localhost/v1", "http://[::1]:8/v1"] {
            assert!(is_loopback(url), "{url}");
        }
        for url in ["http://10.0.0.1/v1", "https://localhost.example.org/v1", "https://api.example.org/127."] {
            assert!(!is_loopback(url), "{url}");
        }
    }
}
