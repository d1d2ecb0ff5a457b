//! Where the hub, the cache and the token are.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::token::TokenPlaces;

/// The hub that is meant when no address is given.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// Where the hub, the cache and the token are. Nothing here is looked up again later.
#[derive(Clone)]
pub struct HubOptions {
    /// Address of the hub, `https://HOST`. Plain `http` is taken too; a token is sent over it to
    /// this machine alone.
    pub endpoint: String,
    /// Folder of the cache, laid out as `huggingface_hub` does. It is made when it is missing.
    pub cache: Option<PathBuf>,
    /// Never open a socket.
    pub offline: bool,
    /// Where to look for a token once one is of use.
    pub tokens: TokenPlaces,
    /// Proxy for everything but the hosts in `no_proxy`, `http://[USER:PASSWORD@]HOST:PORT`.
    pub proxy: Option<String>,
    /// Hosts to connect to directly: `host`, `.domain` or `*`.
    pub no_proxy: Vec<String>,
    /// How long nothing may come before a connection is given up.
    pub stall: Duration,
    /// How often in a row a download may break off before it is given up.
    pub attempts: u32,
    /// Pause before the second attempt; it doubles with each further one.
    pub pause: Duration,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            endpoint: DEFAULT_ENDPOINT.into(),
            cache: None,
            offline: false,
            tokens: TokenPlaces::default(),
            proxy: None,
            no_proxy: Vec::new(),
            stall: Duration::from_mins(1),
            attempts: 4,
            pause: Duration::from_millis(500),
        }
    }
}

impl HubOptions {
    /// Options from the variables that `huggingface_hub` knows as well, which `look` looks up.
    ///
    /// * Home: `HF_HOME`, else `huggingface` in `XDG_CACHE_HOME`, else `~/.cache/huggingface`.
    /// * Cache: `HF_HUB_CACHE`, else `HUGGINGFACE_HUB_CACHE`, else `hub` in the home.
    /// * Token: `HF_TOKEN`, else `HUGGING_FACE_HUB_TOKEN`, else the file `HF_TOKEN_PATH` names,
    ///   else `token` in the home.
    /// * `HF_ENDPOINT`; `HF_HUB_OFFLINE`; `HTTPS_PROXY`, `ALL_PROXY`, `HTTP_PROXY` and `NO_PROXY`
    ///   in either case.
    ///
    /// An empty variable counts as one that is not set.
    pub fn from_variables(look: impl Fn(&str) -> Option<OsString>) -> Self {
        let look = |name: &str| look(name).filter(|value| !value.is_empty());
        let text = |name: &str| look(name).map(|v| v.to_string_lossy().into_owned());
        let user_home = look("HOME")
            .or_else(|| look("USERPROFILE"))
            .map(PathBuf::from);
        let path = |name: &str| look(name).map(|v| expanded(v.into(), user_home.as_deref()));
        let home = path("HF_HOME")
            .or_else(|| path("XDG_CACHE_HOME").map(|p| p.join("huggingface")))
            .or_else(|| {
                user_home
                    .as_ref()
                    .map(|p| p.join(".cache").join("huggingface"))
            });
        let cache = path("HF_HUB_CACHE")
            .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| home.as_ref().map(|p| p.join("hub")));
        let file = path("HF_TOKEN_PATH").or_else(|| home.as_ref().map(|p| p.join("token")));
        let either = |upper: &str| text(upper).or_else(|| text(&upper.to_lowercase()));
        Self {
            endpoint: text("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.into()),
            cache,
            offline: text("HF_HUB_OFFLINE").is_some_and(|v| is_yes(&v)),
            tokens: TokenPlaces {
                hf_token: text("HF_TOKEN"),
                hugging_face_hub_token: text("HUGGING_FACE_HUB_TOKEN"),
                file,
            },
            proxy: ["HTTPS_PROXY", "ALL_PROXY", "HTTP_PROXY"]
                .into_iter()
                .find_map(either),
            no_proxy: either("NO_PROXY")
                .map(|v| v.split(',').map(|h| h.trim().to_owned()).collect())
                .unwrap_or_default(),
            ..Self::default()
        }
    }
}

/// Credentials of a proxy are left out.
impl fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubOptions")
            .field("endpoint", &self.endpoint)
            .field("cache", &self.cache)
            .field("offline", &self.offline)
            .field("tokens", &self.tokens)
            .field("proxy", &self.proxy.as_ref().map(|_| "hidden"))
            .finish_non_exhaustive()
    }
}

fn is_yes(text: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&text.to_ascii_lowercase().as_str())
}

/// `~` as the user's own folder.
fn expanded(path: PathBuf, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> HubOptions {
        HubOptions::from_variables(|name| {
            let (_, value) = variables.iter().find(|(n, _)| *n == name)?;
            Some(value.into())
        })
    }

    #[test]
    fn the_cache_is_where_other_tools_keep_it_too() {
        let cache = |variables: &[(&str, &str)]| options(variables).cache;
        let home = ("HOME", "/home/ana");
        assert_eq!(cache(&[]), None);
        assert_eq!(
            cache(&[home]),
            Some("/home/ana/.cache/huggingface/hub".into())
        );
        let xdg = ("XDG_CACHE_HOME", "/x");
        assert_eq!(cache(&[home, xdg]), Some("/x/huggingface/hub".into()));
        let hf = ("HF_HOME", "~/hf");
        assert_eq!(cache(&[home, xdg, hf]), Some("/home/ana/hf/hub".into()));
        let old = ("HUGGINGFACE_HUB_CACHE", "/old");
        assert_eq!(cache(&[home, hf, old]), Some("/old".into()));
        let hub = ("HF_HUB_CACHE", "/hub");
        assert_eq!(cache(&[home, hf, old, hub]), Some("/hub".into()));
        assert_eq!(
            cache(&[("HF_HUB_CACHE", ""), hf, home]),
            Some("/home/ana/hf/hub".into())
        );
    }

    #[test]
    fn the_token_file_lies_in_the_home_unless_it_is_named() {
        let file = |variables: &[(&str, &str)]| options(variables).tokens.file;
        assert_eq!(file(&[("HF_HOME", "/h")]), Some("/h/token".into()));
        let named = ("HF_TOKEN_PATH", "/secrets/hf");
        assert_eq!(
            file(&[("HF_HOME", "/h"), named]),
            Some("/secrets/hf".into())
        );
    }

    #[test]
    fn offline_is_a_word_for_yes() {
        for (value, offline) in [
            ("1", true),
            ("TRUE", true),
            ("on", true),
            ("0", false),
            ("no", false),
        ] {
            assert_eq!(
                options(&[("HF_HUB_OFFLINE", value)]).offline,
                offline,
                "{value}"
            );
        }
    }

    #[test]
    fn neither_tokens_nor_credentials_of_a_proxy_are_printed() {
        let options = options(&[
            ("HF_TOKEN", "hf_secret"),
            ("https_proxy", "http://u:secret@p:1"),
        ]);
        assert_eq!(options.proxy.as_deref(), Some("http://u:secret@p:1"));
        assert!(!format!("{options:?}").contains("secret"));
    }
}
