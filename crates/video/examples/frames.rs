//! Lists the frames of a source: `cargo run -p shelfscan-video --example frames -- clip.mp4 [every]`.
#![allow(clippy::print_stdout)]

use shelfscan_video::{ReadOptions, Source, open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let source = Source::parse(&args.next().unwrap_or_default())?;
    let options = ReadOptions {
        every: args.next().map_or(Ok(1), |text| text.parse())?,
        ..ReadOptions::default()
    };
    let mut reader = open(&source, &options)?;
    println!("{:?}", reader.info());
    while let Some(frame) = reader.next_frame()? {
        let about = if frame.time.estimated { "about " } else { "" };
        println!(
            "{:6}  {about}{:.6} s  {:?}",
            frame.index, frame.time.secs, frame.image
        );
    }
    let summary = reader.summary();
    println!(
        "{} of {} frames, {}",
        summary.delivered, summary.decoded, summary.status
    );
    for notice in summary.notices {
        println!("{}: {}", notice.code, notice.message);
    }
    Ok(())
}
