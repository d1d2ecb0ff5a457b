//! Draws sample annotations into a picture: `cargo run -p shelfscan-video --example annotate --
//! shelf.jpg out.png`.

use std::path::Path;

use shelfscan_inference_core::{BoxXyxy, Mask, TrackId};
use shelfscan_video::{Annotation, Limits, annotate, load_picture};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let input = args.next().ok_or("give a picture and an output")?;
    let output = args.next().ok_or("give an output")?;
    let picture = load_picture(Path::new(&input), &Limits::default())?;
    let (width, height) = (picture.width() as f32, picture.height() as f32);
    let annotations: Vec<Annotation> = (0..5u8)
        .map(|i| {
            let x = width * (0.05 + 0.18 * f32::from(i));
            let y = height * (0.02 + 0.15 * f32::from(i));
            let bbox = BoxXyxy::from_xywh(x, y, width * 0.15, height * 0.3);
            Annotation {
                bbox,
                label: format!("cola 0.5l {:.2}", 0.99 - 0.1 * f32::from(i)),
                track_id: Some(TrackId(u64::from(i) + 1)),
                color: None,
                mask: (i % 2 == 0)
                    .then(|| Mask::from_box(picture.width(), picture.height(), &bbox)),
            }
        })
        .collect();
    let drawn = annotate(&picture, &annotations);
    image::save_buffer(
        output,
        drawn.pixels(),
        drawn.width(),
        drawn.height(),
        image::ExtendedColorType::Rgb8,
    )?;
    Ok(())
}
