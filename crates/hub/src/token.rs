//! The token that opens gated repositories, and where it was found.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// A token. It is sent to the hub and shown nowhere, also not by `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes a token without the blanks and line ends around it; `None` when nothing is left.
    ///
    /// # Errors
    /// A token with other characters than visible ASCII, which no request could carry.
    pub(crate) fn new(text: &str) -> Result<Option<Self>, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() > 4096 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("it holds blanks or other characters that no token has");
        }
        Ok(Some(Self(text.into())))
    }

    /// Value of the `Authorization` header.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// The text without this token, for words that come from the other side.
    pub(crate) fn strike(&self, text: &str) -> String {
        text.replace(&self.0, "[token]")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// Where a token was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// An environment variable.
    Variable(&'static str),
    /// A file, such as the one that `hf auth login` writes.
    File(PathBuf),
}

impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The places a token may come from. The first that holds one counts: `HF_TOKEN`,
/// `HUGGING_FACE_HUB_TOKEN`, the file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TokenPlaces {
    /// Value of `HF_TOKEN`.
    pub hf_token: Option<String>,
    /// Value of `HUGGING_FACE_HUB_TOKEN`.
    pub hugging_face_hub_token: Option<String>,
    /// The file that `HF_TOKEN_PATH` names, else `token` in the folder `HF_HOME` names.
    pub file: Option<PathBuf>,
}

impl TokenPlaces {
    /// The token that counts and its place; `None` when no place holds one.
    ///
    /// # Errors
    /// [`Error::BadToken`] for something that is no token, [`Error::Io`] for a file that is there
    /// and cannot be read.
    pub fn find(&self) -> Result<Option<(Token, TokenSource)>> {
        let variables = [
            ("HF_TOKEN", &self.hf_token),
            ("HUGGING_FACE_HUB_TOKEN", &self.hugging_face_hub_token),
        ];
        for (name, value) in variables {
            let text = value.as_deref().unwrap_or_default();
            if let Some(found) = taken(text, TokenSource::Variable(name))? {
                return Ok(Some(found));
            }
        }
        let Some(path) = &self.file else {
            return Ok(None);
        };
        match read_small(path) {
            Ok(text) => taken(&text, TokenSource::File(path.clone())),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(source) => Err(Error::Io {
                path: path.clone(),
                source,
            }),
        }
    }
}

impl fmt::Debug for TokenPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = |value: &Option<String>| value.as_ref().map(|_| "hidden");
        f.debug_struct("TokenPlaces")
            .field("hf_token", &set(&self.hf_token))
            .field("hugging_face_hub_token", &set(&self.hugging_face_hub_token))
            .field("file", &self.file)
            .finish()
    }
}

fn taken(text: &str, source: TokenSource) -> Result<Option<(Token, TokenSource)>> {
    match Token::new(text) {
        Ok(token) => Ok(token.map(|token| (token, source))),
        Err(reason) => Err(Error::BadToken {
            from: source,
            reason: reason.into(),
        }),
    }
}

/// The text of a file that holds a token and little else.
fn read_small(path: &Path) -> io::Result<String> {
    use io::Read;

    let mut bytes = Vec::new();
    fs::File::open(path)?.take(65536).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_that_holds_a_token_counts_and_line_ends_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let mut places = TokenPlaces {
            hf_token: Some(" \n".into()),
            hugging_face_hub_token: None,
            file: Some(file.clone()),
        };
        assert_eq!(places.find().unwrap(), None);
        fs::write(&file, "hf_file\r\n").unwrap();
        let (token, source) = places.find().unwrap().unwrap();
        assert_eq!(token.header(), "Bearer hf_file");
        assert_eq!(source, TokenSource::File(file));
        places.hugging_face_hub_token = Some("hf_old".into());
        assert_eq!(
            places.find().unwrap().unwrap().1.to_string(),
            "HUGGING_FACE_HUB_TOKEN"
        );
        places.hf_token = Some("hf_new\n".into());
        let (token, source) = places.find().unwrap().unwrap();
        assert_eq!(token.header(), "Bearer hf_new");
        assert_eq!(source.to_string(), "HF_TOKEN");
    }

    #[test]
    fn a_missing_file_or_folder_means_no_token() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("no/such/token");
        let places = TokenPlaces {
            file: Some(file),
            ..TokenPlaces::default()
        };
        assert_eq!(places.find().unwrap(), None);
    }

    #[test]
    fn what_no_request_can_carry_is_refused_without_being_shown() {
        let places = TokenPlaces {
            hf_token: Some("hf_secret\r\nX-Evil: 1".into()),
            ..TokenPlaces::default()
        };
        let error = places.find().unwrap_err();
        assert!(matches!(error, Error::BadToken { .. }));
        assert!(!format!("{error} {error:?}").contains("secret"));
    }

    #[test]
    fn no_way_of_printing_shows_a_token() {
        let places = TokenPlaces {
            hf_token: Some("hf_secret".into()),
            hugging_face_hub_token: Some("hf_secret".into()),
            file: None,
        };
        let found = places.find().unwrap();
        assert!(!format!("{places:?} {found:?} {found:#?}").contains("secret"));
        let (token, _) = found.unwrap();
        assert_eq!(token.strike("who sent hf_secret?"), "who sent [token]?");
    }
}
