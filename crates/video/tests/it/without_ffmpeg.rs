//! What is read when there is no ffmpeg on the machine.

use image::{DynamicImage, RgbaImage, codecs::gif::GifEncoder};
use shelfscan_video::{
    FfmpegLocation, PictureSet, ReadOptions, ReadStatus, Source, VideoError, open, probe,
};

fn options() -> ReadOptions {
    ReadOptions {
        ffmpeg: FfmpegLocation::Never,
        ..ReadOptions::default()
    }
}

#[test]
fn a_folder_a_glob_and_a_single_picture_are_read_in_counting_order() {
    let folder = tempfile::tempdir().unwrap();
    for i in [1u8, 2, 10, 11] {
        let picture = image::RgbImage::from_pixel(8, 6, image::Rgb([i, 0, 0]));
        picture
            .save(folder.path().join(format!("f{i}.png")))
            .unwrap();
    }
    let glob = folder.path().join("f1*.png").to_string_lossy().into_owned();
    for (source, wanted) in [
        (
            Source::Pictures(PictureSet::Folder(folder.path().into())),
            vec![1, 2, 10, 11],
        ),
        (Source::Pictures(PictureSet::Glob(glob)), vec![1, 10, 11]),
        (Source::File(folder.path().join("f2.png")), vec![2]),
    ] {
        let mut reader = open(&source, &options()).unwrap();
        let mut seen = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            assert_eq!(frame.source, source.id());
            assert_eq!(frame.index, seen.len() as u64);
            seen.push(frame.image.pixel(0, 0).unwrap()[0]);
        }
        assert_eq!(seen, wanted);
        assert_eq!(reader.summary().status, ReadStatus::Complete);
    }
}

#[test]
fn an_animation_is_found_by_its_content_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.mp4");
    let mut bytes = Vec::new();
    let frames = (0..3).map(|_| image::Frame::new(RgbaImage::new(9, 7)));
    GifEncoder::new(&mut bytes).encode_frames(frames).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let info = probe(&Source::File(path), &options()).unwrap();
    assert_eq!(
        (info.reader.as_str(), info.width, info.height),
        ("gif", 9, 7)
    );
}

#[test]
fn a_cut_jpeg_in_a_folder_is_left_out_and_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    DynamicImage::new_rgb8(64, 64).save(at("a.jpg")).unwrap();
    let bytes = std::fs::read(at("a.jpg")).unwrap();
    std::fs::write(at("b.jpg"), &bytes[..bytes.len() * 2 / 3]).unwrap();
    let source = Source::parse(folder.path().to_str().unwrap()).unwrap();
    let mut reader = open(&source, &options()).unwrap();
    assert!(reader.next_frame().unwrap().is_some());
    assert!(reader.next_frame().unwrap().is_none());
    let summary = reader.summary();
    assert!(matches!(summary.status, ReadStatus::Partial { .. }));
    assert_eq!((summary.delivered, summary.dropped), (1, 1));
    let alone = open(&Source::File(at("b.jpg")), &options()).err().unwrap();
    assert!(
        matches!(alone, VideoError::PictureDamaged { .. }),
        "{alone}"
    );
}

#[test]
fn what_needs_ffmpeg_says_so_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.mkv");
    std::fs::write(&path, [0x1a, 0x45, 0xdf, 0xa3, 0, 0]).unwrap();
    for source in [
        Source::File(path),
        Source::Camera(0),
        Source::Url("rtsp://host/x".into()),
    ] {
        let error = open(&source, &options()).err().unwrap();
        assert!(error.is_about_ffmpeg(), "{error}");
        assert!(error.to_string().contains("apt install ffmpeg"), "{error}");
    }
}
