//! Talks to the hub: one request, its redirects, and what a refusal means.

use std::{fmt, io, sync::Arc, time::Duration};

use ureq::{
    Agent, Body, Proxy,
    http::{Response, StatusCode},
    tls::{Certificate, RootCerts, TlsConfig},
};

use crate::{
    Error, HubFile, HubOptions, Result,
    token::{Token, TokenSource},
};

/// Redirects that are followed for one request.
const MAX_HOPS: usize = 6;
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(20);
/// Longest part of the hub's words that is passed on.
const SAID_CHARS: usize = 200;

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// About the file, answered by the hub itself and not by where the bytes lie.
    About,
    /// For its bytes from this one on.
    BytesFrom(u64),
}

/// The hub at one address, for whoever the token belongs to.
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<(Token, TokenSource)>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Opens no connection.
    pub(crate) fn new(options: &HubOptions) -> Result<Self> {
        let endpoint = checked_endpoint(&options.endpoint)?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("shelfscan/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(options.stall))
            .timeout_per_read(Some(options.stall))
            .proxy(proxy(options)?);
        if endpoint.starts_with("https:") {
            config = config.tls_config(tls(&endpoint)?);
        }
        Ok(Self {
            agent: config.build().new_agent(),
            endpoint,
            token: options.tokens.find()?,
        })
    }

    pub(crate) fn anonymous(&self) -> bool {
        self.token.is_none()
    }

    /// Address of a file at a revision.
    pub(crate) fn address(&self, file: &HubFile, revision: &str) -> String {
        let repo = file.repo();
        let (revision, name) = (encoded(revision, false), encoded(file.file(), true));
        format!("{}/{repo}/resolve/{revision}/{name}", self.endpoint)
    }

    /// The answer after redirects, whatever its status.
    ///
    /// A redirect to another host is followed without the token, and not at all for
    /// [`Ask::About`]: what the hub knows about the file is in its own answer, and in that of the
    /// redirect when it tells all.
    ///
    /// # Errors
    /// [`ureq::Error`] when no answer came.
    pub(crate) fn send(&self, address: &str, ask: Ask) -> Result<Response<Body>, ureq::Error> {
        let mut address = address.to_owned();
        for _ in 0..MAX_HOPS {
            let mut request = match ask {
                Ask::About => self.agent.head(&address),
                Ask::BytesFrom(from) => self
                    .agent
                    .get(&address)
                    .header("Range", format!("bytes={from}-")),
            };
            if let Some((token, _)) = self
                .token
                .as_ref()
                .filter(|_| self.may_know_token(&address))
            {
                request = request.header("Authorization", token.header());
            }
            let response = request.call()?;
            let Some(next) = redirect(&response, &address) else {
                return Ok(response);
            };
            let told_all = || {
                let has = |name: &str| response.headers().contains_key(name);
                has("x-repo-commit") && has("x-linked-etag") && has("x-linked-size")
            };
            if ask == Ask::About && (told_all() || origin(&next) != origin(&address)) {
                return Ok(response);
            }
            if address.starts_with("https:") && !next.starts_with("https:") {
                return Err(ureq::Error::RequireHttpsOnly(
                    "a redirect leaves https".into(),
                ));
            }
            address = next;
        }
        Err(ureq::Error::TooManyRedirects)
    }

    /// The token is for the hub alone, and never goes over an open line to another machine.
    fn may_know_token(&self, address: &str) -> bool {
        origin(address) == origin(&self.endpoint)
            && (address.starts_with("https:") || is_this_machine(address))
    }

    /// What an answer without the file means.
    pub(crate) fn refusal(&self, response: &Response<Body>, file: &HubFile) -> Error {
        let status = response.status();
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            Some(value.to_str().ok()?.to_owned())
        };
        let code = header("x-error-code").unwrap_or_default();
        let said = self.said(header("x-error-message"), status);
        let repo = file.repo().to_owned();
        let page = format!("{}/{repo}", self.endpoint);
        let tokens_page = format!("{}/settings/tokens", self.endpoint);
        let from = self.token.as_ref().map(|(_, from)| from.clone());
        let not_seen = |page| Error::RepoNotFound {
            repo: repo.clone(),
            anonymous: self.anonymous(),
            page,
        };
        match (status.as_u16(), code.as_str(), from) {
            (_, "RevisionNotFound", _) => Error::RevisionNotFound {
                page: format!("{page}/commits/main"),
                revision: file.revision().into(),
                repo,
            },
            (_, "EntryNotFound", _) => Error::FileNotFound {
                page: format!("{page}/tree/{}", file.revision()),
                file: file.file().into(),
                revision: file.revision().into(),
                repo,
            },
            // To a stranger the hub says this about private repositories as well, and with 401.
            (401, "RepoNotFound", None) | (404, ..) => not_seen(page),
            (401 | 403, _, None) => Error::NoToken {
                repo,
                page,
                tokens_page,
            },
            (401, "RepoNotFound", Some(_)) if !said.contains("credentials") => not_seen(page),
            (401, _, Some(from)) => Error::BadToken { from, reason: said },
            (403, "GatedRepo", Some(from)) => Error::NotAccepted {
                repo,
                from,
                said,
                page,
            },
            (403, _, Some(from)) => Error::Forbidden {
                repo,
                from,
                said,
                tokens_page,
            },
            (429, ..) => Error::RateLimited {
                retry_after_secs: header("retry-after").and_then(|v| v.trim().parse().ok()),
                anonymous: self.anonymous(),
            },
            (status, ..) if status >= 400 => Error::Server {
                status,
                said,
                endpoint: self.endpoint.clone(),
            },
            (status, ..) => self.no_hub(format!("its answer is {status}")),
        }
    }

    pub(crate) fn no_hub(&self, reason: impl Into<String>) -> Error {
        Error::NoHub {
            endpoint: self.endpoint.clone(),
            reason: reason.into(),
        }
    }

    pub(crate) fn unreachable(&self, error: &ureq::Error) -> Error {
        Error::Unreachable {
            endpoint: self.endpoint.clone(),
            reason: in_words(error),
        }
    }

    /// The hub's words on one line, without the token, should it repeat it.
    fn said(&self, message: Option<String>, status: StatusCode) -> String {
        let known = status.canonical_reason().unwrap_or("no reason given");
        let text = message.filter(|m| !m.trim().is_empty());
        let text = text.unwrap_or_else(|| known.to_owned());
        let text = match &self.token {
            Some((token, _)) => token.strike(&text),
            None => text,
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let line = words.join(" ");
        line.chars()
            .filter(|c| !c.is_control())
            .take(SAID_CHARS)
            .collect()
    }
}

/// Why no answer came. Addresses are left out, as those of a redirect are keys in themselves.
pub(crate) fn in_words(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => "no answer in time".into(),
        ureq::Error::HostNotFound => "its name is not known here".into(),
        ureq::Error::ConnectionFailed => "no connection".into(),
        ureq::Error::Io(e) => {
            let inner = e.get_ref().and_then(|e| e.downcast_ref());
            inner.map_or_else(|| system_words(e), untrusted)
        }
        ureq::Error::Rustls(e) => untrusted(e),
        ureq::Error::ConnectProxyFailed(_) => "the proxy refuses".into(),
        ureq::Error::TooManyRedirects => "too many redirects".into(),
        ureq::Error::RequireHttpsOnly(_) => "a redirect leaves https".into(),
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => "no usable address".into(),
        _ => "the answer breaks off".into(),
    }
}

/// The kind of an error, or its own first line where the kind has no name, as with a host that is
/// not found.
fn system_words(error: &io::Error) -> String {
    // The library gives such a kind to every code it does not know, but no name to match on.
    let nameless = io::Error::from_raw_os_error(i32::MAX).kind();
    let kind = error.kind();
    let text = error.to_string();
    match text.lines().next().map(str::trim) {
        Some(line)
            if [nameless, io::ErrorKind::Other].contains(&kind)
                && !line.is_empty()
                && !line.contains("://") =>
        {
            let plain = line.chars().filter(|c| !c.is_control());
            plain.take(SAID_CHARS).collect()
        }
        _ => kind.to_string(),
    }
}

fn untrusted(error: &rustls::Error) -> String {
    format!("the connection cannot be trusted, {error}")
}

/// Where a redirect leads, as a whole address.
fn redirect(response: &Response<Body>, from: &str) -> Option<String> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let to = response.headers().get("location")?.to_str().ok()?;
    if to.starts_with("https://") || to.starts_with("http://") {
        Some(to.to_owned())
    } else if to.starts_with('/') && !to.starts_with("//") {
        Some(format!("{}{to}", origin(from)))
    } else {
        None
    }
}

/// Scheme, host and port.
fn origin(address: &str) -> &str {
    let start = address.find("://").map_or(0, |at| at + 3);
    let rest = address.get(start..).unwrap_or_default();
    let end = rest
        .find(['/', '?', '#'])
        .map_or(address.len(), |at| start + at);
    address.get(..end).unwrap_or(address)
}

fn is_this_machine(address: &str) -> bool {
    let host = origin(address);
    let host = host.split_once("://").map_or(host, |(_, host)| host);
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    matches!(name, "localhost" | "127.0.0.1" | "::1")
}

/// The address without a slash at its end.
fn checked_endpoint(endpoint: &str) -> Result<String> {
    let plain = endpoint.trim().trim_end_matches('/');
    let host = plain
        .strip_prefix("https://")
        .or_else(|| plain.strip_prefix("http://"));
    let wrong = |endpoint: &str, reason| Error::Endpoint {
        endpoint: endpoint.into(),
        reason,
    };
    let Some(host) = host.filter(|h| !h.is_empty()) else {
        return Err(wrong(plain, "it has no https:// and host"));
    };
    if let Some((_, host)) = host.rsplit_once('@') {
        return Err(wrong(
            host,
            "it holds a name or password, which belongs into a token",
        ));
    }
    if host.contains(['?', '#']) || !host.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(wrong(plain, "it holds characters that an address has not"));
    }
    Ok(plain.to_owned())
}

/// Percent-encodes everything but letters, digits, `-._~`, and `/` when folders may stay.
fn encoded(text: &str, folders: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~')
            || (folders && byte == b'/');
        if plain {
            out.push(char::from(byte));
        } else {
            let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble)]);
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    out
}

fn proxy(options: &HubOptions) -> Result<Option<Proxy>> {
    let Some(address) = &options.proxy else {
        return Ok(None);
    };
    // The address may hold a password, so it is not repeated.
    let wrong = |_| Error::Unreachable {
        endpoint: options.endpoint.clone(),
        reason: "the proxy's address is no http://HOST:PORT".into(),
    };
    let plain = Proxy::new(address).map_err(wrong)?;
    let mut builder = Proxy::builder(plain.protocol())
        .host(plain.host())
        .port(plain.port());
    if let Some(name) = plain.username() {
        builder = builder.username(name);
    }
    if let Some(password) = plain.password() {
        builder = builder.password(password);
    }
    for host in &options.no_proxy {
        builder = builder.no_proxy(host);
    }
    builder.build().map(Some).map_err(wrong)
}

/// The roots the system trusts, so that a company's own root counts too.
fn tls(endpoint: &str) -> Result<TlsConfig> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!("a root certificate was left out: {error}");
    }
    if found.certs.is_empty() {
        return Err(Error::Unreachable {
            endpoint: endpoint.into(),
            reason: "this system has no root certificates; install ca-certificates".into(),
        });
    }
    let roots = found
        .certs
        .iter()
        .map(|c| Certificate::from_der(c).to_owned());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_a_host_and_no_password() {
        for good in [
            "https://huggingface.co",
            "http://127.0.0.1:9000/",
            "https://mirror.example/hf",
        ] {
            assert_eq!(checked_endpoint(good).unwrap(), good.trim_end_matches('/'));
        }
        for bad in [
            "",
            "huggingface.co",
            "ftp://x",
            "https://",
            "https://a b",
            "https://a/?x=1",
        ] {
            assert!(
                matches!(checked_endpoint(bad), Err(Error::Endpoint { .. })),
                "{bad}"
            );
        }
        let error = checked_endpoint("https://ana:secret@mirror.example").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }

    #[test]
    fn a_token_goes_to_the_hub_alone_and_over_no_open_line() {
        let client = |endpoint: &str| {
            Client::new(&HubOptions {
                endpoint: endpoint.into(),
                ..HubOptions::default()
            })
            .unwrap()
        };
        let local = client("http://127.0.0.1:9000");
        assert!(local.may_know_token("http://127.0.0.1:9000/a/b"));
        assert!(!local.may_know_token("http://127.0.0.1:9001/a/b"));
        assert!(!local.may_know_token("http://127.0.0.1:9000.evil.example/a"));
        let open = client("http://mirror.example");
        assert!(!open.may_know_token("http://mirror.example/a/b"));
    }

    #[test]
    fn a_host_that_is_not_found_is_told_in_the_systems_words() {
        use std::net::ToSocketAddrs;
        // No name has so long a part, so that no server is asked.
        let failed = ("x".repeat(300).as_str(), 443).to_socket_addrs();
        let text = in_words(&ureq::Error::Io(failed.unwrap_err()));
        assert!(text.starts_with("failed to lookup address"), "{text}");
        assert!(!text.contains("uncategorized"), "{text}");
    }

    #[test]
    fn a_reason_is_one_line_without_an_address() {
        let words = |error: io::Error| in_words(&ureq::Error::Io(error));
        assert_eq!(words(io::Error::other("no way in\nsee below")), "no way in");
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "10.0.0.1 says no");
        assert_eq!(words(refused), "connection refused");
        for hidden in ["at https://cdn.example/x?key=secret", " \n", ""] {
            assert_eq!(words(io::Error::other(hidden)), "other error");
        }
        let long = io::Error::other("a".repeat(SAID_CHARS * 10));
        assert_eq!(words(long).len(), SAID_CHARS);
    }

    #[test]
    fn an_origin_ends_where_the_path_begins() {
        assert_eq!(origin("https://a.b:8/c/d?e#f"), "https://a.b:8");
        assert_eq!(origin("https://a.b?x"), "https://a.b");
        assert_eq!(origin("https://a.b"), "https://a.b");
    }

    #[test]
    fn revisions_and_files_are_encoded_as_the_hub_expects() {
        assert_eq!(encoded("refs/pr/1", false), "refs%2Fpr%2F1");
        assert_eq!(encoded("a b/\u{e9}#1.pt", true), "a%20b/%C3%A9%231.pt");
    }

    #[test]
    fn a_proxy_that_is_none_is_refused_without_its_password() {
        let options = HubOptions {
            proxy: Some("gopher://ana:secret@x".into()),
            ..HubOptions::default()
        };
        let error = proxy(&options).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        let options = HubOptions {
            proxy: Some("http://ana:secret@proxy.example:3128".into()),
            no_proxy: vec![".example".into(), "localhost".into()],
            ..HubOptions::default()
        };
        let proxy = proxy(&options).unwrap().unwrap();
        assert_eq!((proxy.host(), proxy.port()), ("proxy.example", 3128));
        assert!(proxy.is_no_proxy(&"http://localhost/x".parse().unwrap()));
        assert!(!proxy.is_no_proxy(&"https://huggingface.co/x".parse().unwrap()));
    }
}
