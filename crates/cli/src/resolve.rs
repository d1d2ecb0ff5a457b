//! From what was typed and configured to the options of the libraries.

use shelfscan_gallery::{CropPolicy, EnrollOptions, Pictures};
use shelfscan_pipeline::{DiffTolerances, ScanOptions};
use shelfscan_video::{FfmpegLocation, ReadOptions};

use crate::{
    args::{DiffSettings, EnrollSettings, Prefer, ReaderSettings, ScanSettings},
    exit::Usage,
};

/// Word that stands for doing without ffmpeg.
const NEVER: &str = "never";

/// Flags over configuration. Of `every` and `fps`, which exclude each other, the one that was
/// typed also sets aside the other one of the file.
pub(crate) fn scan_settings(typed: ScanSettings, mut file: ScanSettings) -> ScanSettings {
    if typed.fps.is_some() {
        file.every = None;
    }
    if typed.every.is_some() {
        file.fps = None;
    }
    typed.prefer(file)
}

/// The options of a scan; whatever was not given keeps the library's default.
pub(crate) fn scan_options(
    settings: &ScanSettings,
    reader: &ReaderSettings,
) -> anyhow::Result<ScanOptions> {
    let mut options = ScanOptions::default();
    if let Some(picture) = settings.prompt.iter().find(|p| p.is_picture()) {
        let error = Usage::new(format!(
            "a prompt is a phrase, and `{}` looks like a picture",
            picture.0.phrase
        ));
        return Err(error
            .hint("to ask which product it is, enrol pictures with `shelfscan enroll` and scan with --gallery; to find it, describe it in words")
            .into());
    }
    if !settings.prompt.is_empty() {
        options.prompts = settings.prompt.iter().map(|p| p.0.clone()).collect();
    }
    options.regions = settings.region.iter().map(|r| r.0.clone()).collect();
    set(&mut options.min_score, settings.min_score);
    set(&mut options.max_detections, settings.max_detections);

    let read = &mut options.read;
    *read = read_options(reader);
    set(&mut read.every, settings.every);
    read.fps = settings.fps;
    read.start_secs = settings.start;
    read.end_secs = settings.end;
    read.max_frames = settings.max_frames;
    set(&mut read.keyframes_only, settings.keyframes_only);
    set(&mut read.pictures_per_sec, settings.pictures_per_sec);

    let associate = &mut options.associate;
    set(&mut associate.confirm_hits, settings.confirm_hits);
    set(
        &mut associate.tentative_gap_frames,
        settings.tentative_gap_frames,
    );
    set(&mut associate.max_gap_frames, settings.max_gap_frames);
    set(&mut associate.high_score, settings.high_score);
    set(&mut associate.new_track_score, settings.new_track_score);
    set(&mut associate.match_iou, settings.match_iou);
    set(&mut associate.low_match_iou, settings.low_match_iou);
    set(&mut associate.duplicate_iou, settings.duplicate_iou);
    set(&mut associate.max_live_tracks, settings.max_live_tracks);
    set(
        &mut associate.camera.max_key_frames,
        settings.max_key_frames,
    );
    set(
        &mut associate.motion_compensation,
        settings.no_motion_compensation.map(|no| !no),
    );

    let facings = &mut options.associate.facings;
    set(&mut facings.max_shift, settings.facing_shift);
    set(&mut facings.max_growth, settings.facing_growth);
    set(&mut facings.max_travel, settings.facing_travel);
    set(&mut facings.max_tracks, settings.facing_tracks);

    let identity = &mut options.identity;
    set(&mut identity.crops_per_track, settings.crops_per_track);
    set(&mut identity.batch, settings.identity_batch);
    set(&mut identity.max_wait_frames, settings.identity_wait_frames);
    set(&mut identity.min_side_px, settings.min_crop_px);
    set(&mut identity.workers, settings.threads);

    let outputs = &mut options.outputs;
    set(&mut outputs.annotate, settings.annotate.map(Into::into));
    set(&mut outputs.masks, settings.no_masks.map(|no| !no));
    set(&mut outputs.crops, settings.no_crops.map(|no| !no));
    Ok(options)
}

/// How sources are read.
pub(crate) fn read_options(reader: &ReaderSettings) -> ReadOptions {
    let ffmpeg = match reader.ffmpeg.as_ref().filter(|f| !f.as_os_str().is_empty()) {
        None => FfmpegLocation::SearchPath,
        Some(path) if path.as_os_str() == NEVER => FfmpegLocation::Never,
        Some(path) => FfmpegLocation::Path(path.clone()),
    };
    let mut read = ReadOptions {
        ffmpeg,
        ..ReadOptions::default()
    };
    set(&mut read.limits.stall_secs, reader.stall_secs);
    set(&mut read.limits.max_pixels, reader.max_pixels);
    read
}

/// How to enrol.
pub(crate) fn enroll_options(settings: EnrollSettings) -> anyhow::Result<EnrollOptions> {
    let mut options = EnrollOptions {
        metadata: settings.metadata,
        ..EnrollOptions::default()
    };
    if let Some(policy) = settings.crop_policy {
        options.crop_policy = Some(policy.parse::<CropPolicy>()?);
    }
    if settings.reference == Some(true) {
        options.pictures = Pictures::Reference;
    }
    set(&mut options.false_accept_rate, settings.false_accept_rate);
    set(&mut options.batch, settings.batch);
    set(&mut options.max_views, settings.max_views);
    Ok(options)
}

/// How far two runs may be apart.
pub(crate) fn tolerances(settings: &DiffSettings) -> anyhow::Result<DiffTolerances> {
    let mut tolerances = DiffTolerances::default();
    set(&mut tolerances.box_px, settings.box_px);
    set(&mut tolerances.score, settings.score);
    set(&mut tolerances.count, settings.count);
    set(&mut tolerances.identity, settings.identity);
    set(&mut tolerances.min_iou, settings.min_iou);
    set(&mut tolerances.listed, settings.list);
    let usable = |v: f32| v >= 0.0;
    if !usable(tolerances.box_px) || !usable(tolerances.score) {
        return Err(Usage::new("--box-px and --score have to be 0 or more").into());
    }
    if !(tolerances.min_iou > 0.0 && tolerances.min_iou <= 1.0) {
        return Err(Usage::new("--min-iou has to be above 0 and at most 1").into());
    }
    Ok(tolerances)
}

fn set<T>(slot: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *slot = value;
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn what_is_not_given_keeps_the_default_of_the_library() {
        let options = scan_options(&ScanSettings::default(), &ReaderSettings::default()).unwrap();
        assert_eq!(options, ScanOptions::default());
        assert_eq!(
            tolerances(&DiffSettings::default()).unwrap(),
            DiffTolerances::default()
        );
    }

    #[test]
    fn a_typed_rate_sets_the_stride_of_the_file_aside() {
        let file = ScanSettings {
            every: Some(5),
            min_score: Some(0.2),
            ..ScanSettings::default()
        };
        let typed = ScanSettings {
            fps: Some(2.0),
            ..ScanSettings::default()
        };
        let both = scan_settings(typed, file);
        assert_eq!(
            (both.every, both.fps, both.min_score),
            (None, Some(2.0), Some(0.2))
        );
    }

    #[test]
    fn the_defaults_in_the_help_are_those_of_the_library() {
        let scan = ScanOptions::default();
        let (a, i, r) = (&scan.associate, &scan.identity, &scan.read);
        let e = EnrollOptions::default();
        let d = DiffTolerances::default();
        let expected = [
            ("scan", "prompt", scan.prompts[0].phrase.to_string()),
            ("scan", "max_detections", scan.max_detections.to_string()),
            ("scan", "every", r.every.to_string()),
            ("scan", "pictures_per_sec", r.pictures_per_sec.to_string()),
            ("scan", "stall_secs", r.limits.stall_secs.to_string()),
            ("scan", "max_pixels", r.limits.max_pixels.to_string()),
            ("scan", "confirm_hits", a.confirm_hits.to_string()),
            (
                "scan",
                "tentative_gap_frames",
                a.tentative_gap_frames.to_string(),
            ),
            ("scan", "max_gap_frames", a.max_gap_frames.to_string()),
            ("scan", "high_score", a.high_score.to_string()),
            ("scan", "new_track_score", a.new_track_score.to_string()),
            ("scan", "match_iou", a.match_iou.to_string()),
            ("scan", "low_match_iou", a.low_match_iou.to_string()),
            ("scan", "duplicate_iou", a.duplicate_iou.to_string()),
            ("scan", "max_live_tracks", a.max_live_tracks.to_string()),
            (
                "scan",
                "max_key_frames",
                a.camera.max_key_frames.to_string(),
            ),
            (
                "scan",
                "facing_shift",
                scan.associate.facings.max_shift.to_string(),
            ),
            (
                "scan",
                "facing_growth",
                scan.associate.facings.max_growth.to_string(),
            ),
            (
                "scan",
                "facing_travel",
                scan.associate.facings.max_travel.to_string(),
            ),
            (
                "scan",
                "facing_tracks",
                scan.associate.facings.max_tracks.to_string(),
            ),
            ("scan", "crops_per_track", i.crops_per_track.to_string()),
            ("scan", "identity_batch", i.batch.to_string()),
            (
                "scan",
                "identity_wait_frames",
                i.max_wait_frames.to_string(),
            ),
            ("scan", "min_crop_px", i.min_side_px.to_string()),
            (
                "scan",
                "progress_secs",
                crate::progress::DEFAULT_EVERY_SECS.to_string(),
            ),
            (
                "enroll",
                "false_accept_rate",
                e.false_accept_rate.to_string(),
            ),
            ("enroll", "batch", e.batch.to_string()),
            ("enroll", "max_views", e.max_views.to_string()),
            ("diff", "box_px", d.box_px.to_string()),
            ("diff", "score", d.score.to_string()),
            ("diff", "count", d.count.to_string()),
            ("diff", "identity", d.identity.to_string()),
            ("diff", "min_iou", d.min_iou.to_string()),
            ("diff", "list", d.listed.to_string()),
        ];
        let cli = Cli::command();
        for (command, id, default) in expected {
            let help = cli
                .find_subcommand(command)
                .and_then(|c| c.get_arguments().find(|a| a.get_id() == id))
                .and_then(|a| a.get_help())
                .unwrap_or_else(|| panic!("{command} has no {id}"))
                .to_string();
            assert!(
                help.ends_with(&format!("[default: {default}]")),
                "{id}: {help}"
            );
        }
    }
}
