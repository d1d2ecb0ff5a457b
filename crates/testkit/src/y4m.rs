//! Clips that are read without ffmpeg.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use shelfscan_inference_core::RgbImage;

/// Writes frames of one size as Y4M, 4:4:4 in full range, 30 a second. A clip without a frame is
/// 16x16.
///
/// # Errors
/// The disk refuses.
pub fn write_y4m(path: &Path, images: &[RgbImage]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let (w, h) = images.first().map_or((16, 16), |i| (i.width(), i.height()));
    writeln!(
        file,
        "YUV4MPEG2 W{w} H{h} F30:1 Ip A1:1 C444 XCOLORRANGE=FULL"
    )?;
    for image in images {
        file.write_all(b"FRAME\n")?;
        let mut planes = [const { Vec::new() }; 3];
        for pixel in image.pixels().chunks_exact(3) {
            let [r, g, b] = [pixel[0], pixel[1], pixel[2]].map(f32::from);
            let y = 0.299 * r + 0.587 * g + 0.114 * b;
            planes[0].push(y.round() as u8);
            planes[1].push((128.0 + (b - y) * 0.564).round() as u8);
            planes[2].push((128.0 + (r - y) * 0.713).round() as u8);
        }
        for plane in planes {
            file.write_all(&plane)?;
        }
    }
    file.flush()
}
