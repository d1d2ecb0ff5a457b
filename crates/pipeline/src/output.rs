//! The files written when a source is done: tracks, facings, counts.

use std::path::Path;

use shelfscan_gallery::Channel;

use crate::{
    Count, Facing, Identity, IdentityStatus, PipelineError, Result, TrackSummary,
    journal::{names, to_line, write_whole},
};

/// Columns of `facings.csv`, in order.
const FACING_COLUMNS: [&str; 27] = [
    "facing_id",
    "label",
    "status",
    "sku",
    "channel",
    "score",
    "margin",
    "votes",
    "crops",
    "region",
    "first_frame",
    "last_frame",
    "first_secs",
    "last_secs",
    "frames",
    "x0",
    "y0",
    "x1",
    "y1",
    "tracks",
    "best_crop",
    "nearest_1",
    "nearest_1_score",
    "nearest_2",
    "nearest_2_score",
    "nearest_3",
    "nearest_3_score",
];

/// Writes `tracks.jsonl`, `facings.csv` and `counts.csv` of a source, each whole.
pub(crate) fn write_results(
    dir: &Path,
    tracks: &[TrackSummary],
    facings: &[Facing],
    counts: &[Count],
) -> Result<()> {
    let mut lines = Vec::new();
    for track in tracks {
        lines.extend(to_line(track)?);
    }
    write_whole(&dir.join(names::TRACKS), &lines)?;
    write_csv(
        &dir.join(names::FACINGS),
        &FACING_COLUMNS,
        facings.iter().map(facing_row),
    )?;
    write_csv(
        &dir.join(names::COUNTS),
        &["label", "region", "status", "sku", "facings"],
        counts.iter().map(|c| {
            vec![
                c.label.to_string(),
                text(c.region.as_deref()),
                status_name(c.status).to_owned(),
                text(c.sku.as_deref()),
                c.facings.to_string(),
            ]
        }),
    )
}

fn write_csv(path: &Path, header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Result<()> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |e: csv::Error| PipelineError::Io {
        action: "writing",
        path: path.to_owned(),
        source: std::io::Error::other(e),
    };
    writer.write_record(header).map_err(failed)?;
    for row in rows {
        writer.write_record(&row).map_err(failed)?;
    }
    let bytes = writer.into_inner().map_err(|e| PipelineError::Io {
        action: "writing",
        path: path.to_owned(),
        source: std::io::Error::other(e.to_string()),
    })?;
    write_whole(path, &bytes)
}

fn facing_row(f: &Facing) -> Vec<String> {
    let Identity {
        status,
        sku,
        channel,
        score,
        margin,
        votes,
        crops,
        nearest,
    } = &f.identity;
    let tracks: Vec<String> = f.tracks.iter().map(ToString::to_string).collect();
    let mut row = vec![
        f.facing_id.to_string(),
        f.label.to_string(),
        status_name(*status).to_owned(),
        text(sku.as_deref()),
        channel.map_or("", channel_name).to_owned(),
        number(*score),
        number(*margin),
        votes.to_string(),
        crops.to_string(),
        text(f.region.as_deref()),
        f.first_frame.to_string(),
        f.last_frame.to_string(),
        f.first_secs.to_string(),
        f.last_secs.to_string(),
        f.frames.to_string(),
        f.mean_box.x0.to_string(),
        f.mean_box.y0.to_string(),
        f.mean_box.x1.to_string(),
        f.mean_box.y1.to_string(),
        tracks.join(" "),
        text(f.best_crop.as_ref().and_then(|c| c.path.as_deref())),
    ];
    for i in 0..3 {
        let candidate = nearest.get(i);
        row.push(text(candidate.map(|c| &*c.sku)));
        row.push(number(candidate.map(|c| c.score)));
    }
    row
}

fn text(value: Option<&str>) -> String {
    value.unwrap_or_default().to_owned()
}

fn number(value: Option<f32>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

/// Name of a status, as in JSON.
pub(crate) fn status_name(status: IdentityStatus) -> &'static str {
    match status {
        IdentityStatus::Identified => "identified",
        IdentityStatus::Unknown => "unknown",
        IdentityStatus::NotAsked => "not_asked",
    }
}

fn channel_name(channel: Channel) -> &'static str {
    match channel {
        Channel::Packaging => "packaging",
        Channel::Tag => "tag",
        _ => "other",
    }
}
