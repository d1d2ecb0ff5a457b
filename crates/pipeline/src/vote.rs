//! What a track is, by the answers to its crops.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use shelfscan_gallery::{Answer, Candidate, Channel};

/// How many of the nearest SKUs an answer lists.
const NEAREST: usize = 3;

/// Whether a SKU was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentityStatus {
    /// A SKU won the vote.
    Identified,
    /// No SKU is close enough: an answer, not a failure.
    Unknown,
    /// Nothing was asked, because there is no gallery or no usable crop.
    NotAsked,
}

/// What a track or a facing is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// Whether a SKU was found.
    pub status: IdentityStatus,
    /// The SKU that won.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<Arc<str>>,
    /// Which evidence spoke.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    /// Best cosine: of the winner's crops, or of all crops when unknown; -1 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f32>,
    /// Margin of that crop to the next SKU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin: Option<f32>,
    /// Crops that named the winner, or that named none when unknown.
    pub votes: u32,
    /// Crops that were asked about.
    pub crops: u32,
    /// The nearest SKUs over all crops, best first, at most three.
    pub nearest: Vec<Candidate>,
}

impl Identity {
    /// The answer when nothing was asked.
    pub fn not_asked() -> Self {
        Self {
            status: IdentityStatus::NotAsked,
            sku: None,
            channel: None,
            score: None,
            margin: None,
            votes: 0,
            crops: 0,
            nearest: Vec::new(),
        }
    }
}

/// Joins the answers to the crops of one track or facing.
///
/// A readable tag overrules packaging. Otherwise a SKU wins when at least half of the crops name it
/// and no other SKU is named as often; one confident crop among several that say *unknown* is not
/// enough. Ties are unknown, never the first in line.
pub fn vote(answers: &[Answer]) -> Identity {
    if answers.is_empty() {
        return Identity::not_asked();
    }
    let from_tags: Vec<&Answer> = answers
        .iter()
        .filter(|a| a.channel == Some(Channel::Tag))
        .collect();
    let voters: Vec<&Answer> = if from_tags.is_empty() {
        answers.iter().collect()
    } else {
        from_tags
    };
    let mut counts: BTreeMap<&Arc<str>, u32> = BTreeMap::new();
    for sku in voters.iter().filter_map(|a| a.sku.as_ref()) {
        *counts.entry(sku).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    let mut leaders = counts.iter().filter(|(_, n)| **n == most);
    let winner = match (leaders.next(), leaders.next()) {
        (Some((sku, _)), None) if most as usize * 2 >= voters.len() => Some((*sku).clone()),
        _ => None,
    };
    let best = voters
        .iter()
        .filter(|a| winner.is_none() || a.sku == winner)
        .max_by(|a, b| a.score.total_cmp(&b.score));
    Identity {
        status: if winner.is_some() {
            IdentityStatus::Identified
        } else {
            IdentityStatus::Unknown
        },
        votes: match &winner {
            Some(_) => most,
            None => answers.iter().filter(|a| a.sku.is_none()).count() as u32,
        },
        channel: best.and_then(|a| a.channel).filter(|_| winner.is_some()),
        sku: winner,
        score: best.map(|a| a.score),
        margin: best.map(|a| a.margin),
        crops: answers.len() as u32,
        nearest: nearest(answers),
    }
}

/// The best view of each SKU over all crops, best first.
fn nearest(answers: &[Answer]) -> Vec<Candidate> {
    let mut best: BTreeMap<Arc<str>, &Candidate> = BTreeMap::new();
    for candidate in answers.iter().flat_map(|a| &a.nearest) {
        let entry = best.entry(candidate.sku.clone()).or_insert(candidate);
        if candidate.score > entry.score {
            *entry = candidate;
        }
    }
    let mut all: Vec<Candidate> = best.into_values().cloned().collect();
    // Stable over the names' order, so equal scores never swap.
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    all.truncate(NEAREST);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(sku: Option<&str>, score: f32, channel: Channel) -> Answer {
        Answer {
            sku: sku.map(Into::into),
            channel: sku.map(|_| channel),
            score,
            margin: 0.1,
            nearest: vec![Candidate {
                sku: sku.unwrap_or("stranger's neighbour").into(),
                score,
                view: "view.jpg".into(),
            }],
        }
    }

    fn pack(sku: Option<&str>, score: f32) -> Answer {
        says(sku, score, Channel::Packaging)
    }

    #[test]
    fn the_sku_most_crops_name_wins_and_brings_its_best_score() {
        let identity = vote(&[
            pack(Some("cola"), 0.8),
            pack(Some("cola"), 0.9),
            pack(Some("tea"), 0.95),
        ]);
        assert_eq!(identity.sku.as_deref(), Some("cola"));
        assert_eq!((identity.votes, identity.crops), (2, 3));
        assert_eq!(identity.score, Some(0.9));
        assert_eq!(identity.nearest.len(), 2);
    }

    #[test]
    fn one_confident_crop_among_unknown_ones_stays_unknown() {
        let identity = vote(&[pack(Some("cola"), 0.9), pack(None, 0.3), pack(None, 0.2)]);
        assert_eq!(identity.status, IdentityStatus::Unknown);
        assert_eq!(identity.sku, None);
        assert_eq!(identity.votes, 2);
        assert_eq!(&*identity.nearest[0].sku, "cola");
    }

    #[test]
    fn a_tie_is_unknown() {
        let identity = vote(&[pack(Some("cola"), 0.9), pack(Some("tea"), 0.8)]);
        assert_eq!(identity.status, IdentityStatus::Unknown);
    }

    #[test]
    fn a_tag_that_was_read_overrules_any_number_of_packs() {
        let identity = vote(&[
            pack(Some("cola"), 0.9),
            pack(Some("cola"), 0.9),
            says(Some("tea"), 1.0, Channel::Tag),
        ]);
        assert_eq!(identity.sku.as_deref(), Some("tea"));
        assert_eq!(identity.channel, Some(Channel::Tag));
    }

    #[test]
    fn no_crop_is_not_the_same_as_unknown() {
        assert_eq!(vote(&[]).status, IdentityStatus::NotAsked);
    }

    #[test]
    fn the_order_of_the_crops_does_not_matter() {
        let mut answers = vec![
            pack(Some("cola"), 0.8),
            pack(None, 0.7),
            pack(Some("tea"), 0.6),
            pack(Some("cola"), 0.8),
        ];
        let first = vote(&answers);
        answers.reverse();
        assert_eq!(vote(&answers), first);
    }
}
