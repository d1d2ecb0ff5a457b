//! Phrases to token ids, as CLIP's tokenizer makes them.
//!
//! The merge rules come compiled in with `instant-clip-tokenizer`; a small model may bring its own
//! table. Before that the text is cleaned the way the reference cleans it (`clean`).

mod clean;
mod mojibake;

use std::{
    io::{BufRead, BufReader, Read},
    sync::Arc,
};

use flate2::bufread::MultiGzDecoder;

use instant_clip_tokenizer::{Token, Tokenizer as Bpe};

use crate::{Error, Result};

/// Characters of a phrase that are looked at. The context holds a few dozen tokens, and merging is
/// quadratic in the length of a word.
const LENGTH_LIMIT: usize = 1024;

/// Bytes of a table of merges, unpacked; CLIP's own has 1.3 MB.
const TABLE_LIMIT: u64 = 16 << 20;

/// The token ids of one phrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizedPhrase {
    ids: Vec<u32>,
    cut_at: Option<String>,
}

impl TokenizedPhrase {
    /// Start, tokens, end, then zeros up to the context length.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The first word that did not fit whole, when the phrase was too long.
    pub fn cut_at(&self) -> Option<&str> {
        self.cut_at.as_deref()
    }
}

/// CLIP's tokenizer with a fixed context length.
#[derive(Clone)]
pub struct Tokenizer {
    bpe: Arc<Bpe>,
    context: usize,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// CLIP's own vocabulary, 48,894 merges.
    ///
    /// # Errors
    /// [`Error::Config`] when the context has no room for a token.
    pub fn new(context: usize) -> Result<Self> {
        Self::over(Bpe::new(), context)
    }

    /// Another table of merges in CLIP's text format: a first line that is skipped, then one pair a
    /// line. It may be packed with gzip, as CLIP's own is published.
    ///
    /// # Errors
    /// [`Error::Config`] when the table is damaged, too long or too short.
    pub fn with_merges(mut table: impl BufRead, merges: usize, context: usize) -> Result<Self> {
        let packed = table.fill_buf().is_ok_and(|b| b.starts_with(&[0x1f, 0x8b]));
        if packed {
            let text = MultiGzDecoder::new(table).take(TABLE_LIMIT);
            return Self::with_text(BufReader::new(text), merges, context);
        }
        Self::with_text(table.take(TABLE_LIMIT), merges, context)
    }

    fn with_text(table: impl BufRead, merges: usize, context: usize) -> Result<Self> {
        let size = u16::try_from(merges.saturating_add(514))
            .map_err(|_| Error::Config(format!("a vocabulary of {merges} merges is too large")))?;
        let bpe = Bpe::with_vocabulary(table, size)
            .map_err(|e| Error::Config(format!("the table of merges is damaged: {e}")))?;
        // The start mark comes right behind the merges, so it tells how many were read.
        let read = usize::from(bpe.start_of_text().to_u16()) - 512;
        if read != merges {
            return Err(Error::Config(format!(
                "the table of merges has {read} rows where {merges} are expected"
            )));
        }
        Self::over(bpe, context)
    }

    fn over(bpe: Bpe, context: usize) -> Result<Self> {
        if context < 3 {
            return Err(Error::Config(format!("context_length is {context}")));
        }
        Ok(Self {
            bpe: Arc::new(bpe),
            context,
        })
    }

    /// Cleans and encodes a phrase. A phrase that is too long is cut, and the answer says where.
    pub fn encode(&self, phrase: &str) -> TokenizedPhrase {
        let text = clean::clean(phrase);
        let mut ids = vec![u32::from(self.bpe.start_of_text().to_u16())];
        let room = self.context - 1;
        let mut cut_at = None;
        let mut looked_at = 0;
        let mut tokens: Vec<Token> = Vec::new();
        // No token spans a blank, so words are encoded one by one until the context is full.
        for word in text.split(' ').filter(|w| !w.is_empty()) {
            let short: String = word.chars().take(LENGTH_LIMIT - looked_at).collect();
            looked_at += short.chars().count();
            tokens.clear();
            self.bpe.encode(&short, &mut tokens);
            let left = room - ids.len();
            ids.extend(tokens.iter().take(left).map(|t| u32::from(t.to_u16())));
            if tokens.len() > left || short.len() < word.len() {
                cut_at = Some(word.chars().take(64).collect());
                break;
            }
        }
        ids.push(u32::from(self.bpe.end_of_text().to_u16()));
        ids.resize(self.context, 0);
        TokenizedPhrase { ids, cut_at }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_phrase_of_the_context_length_is_not_cut_and_one_more_word_is_named() {
        let tokenizer = Tokenizer::new(32).unwrap();
        let fits = vec!["dog"; 30].join(" ");
        assert_eq!(tokenizer.encode(&fits).cut_at(), None);
        let long = format!("{fits} zebra crossing");
        let cut = tokenizer.encode(&long);
        assert_eq!(cut.cut_at(), Some("zebra"));
        assert_eq!(cut.ids(), tokenizer.encode(&fits).ids());
    }

    #[test]
    fn a_table_of_merges_of_another_length_is_refused() {
        let table = b"#version\ni n\nt h\n";
        assert!(Tokenizer::with_merges(&table[..], 2, 16).is_ok());
        assert!(Tokenizer::with_merges(&table[..], 3, 16).is_err());
        assert!(Tokenizer::with_merges(&b"#v\nxx"[..], 1, 16).is_err());
    }

    proptest! {
        #[test]
        fn any_text_gives_a_full_context(text in ".{0,200}") {
            let tokenizer = Tokenizer::with_merges(&b"#v\ni n\n"[..], 1, 16).unwrap();
            let encoded = tokenizer.encode(&text);
            prop_assert_eq!(encoded.ids().len(), 16);
            prop_assert!(encoded.ids().iter().all(|id| *id < 515));
        }
    }
}
