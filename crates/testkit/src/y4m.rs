//! Clips that are read without ffmpeg.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use shelfscan_inference_core::RgbImage;
use shelfscan_synth::{y4m_frame, y4m_head};

/// Writes frames of one size as Y4M, 30 a second. A clip without a frame is 16x16.
///
/// # Errors
/// The disk refuses.
pub fn write_y4m(path: &Path, images: &[RgbImage]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let size = images.first().map_or((16, 16), |i| (i.width(), i.height()));
    file.write_all(y4m_head(size, (30, 1)).as_bytes())?;
    for image in images {
        file.write_all(&y4m_frame(image))?;
    }
    file.flush()
}
