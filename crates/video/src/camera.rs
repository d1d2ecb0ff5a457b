//! Cameras by index: which there are, which modes they offer, and which mode to take.
//!
//! Pictures come through ffmpeg (v4l2 on Linux, avfoundation on macOS), which also converts their
//! pixels, so that padded rows and odd pixel formats are its business.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use crate::{
    CameraInfo, CameraMode, FfmpegInfo, FfmpegLocation, Result, VideoError,
    ffmpeg::{Input, find_for, process, tool},
};

/// How long a camera may take to name its modes.
const LIST_STALL: Duration = Duration::from_secs(2);

/// A rate below this makes a camera useless for tracking, whatever its size.
const LOWEST_USEFUL_FPS: f64 = 10.0;

/// Larger pictures than this cost more than they bring.
const LARGEST_USEFUL: (u32, u32) = (1920, 1080);

/// Lists the cameras that are plugged in, by ascending index.
///
/// Each is opened for a moment through ffmpeg to learn its modes; without ffmpeg all are said not
/// to open.
pub fn list_cameras(ffmpeg: &FfmpegLocation) -> Vec<CameraInfo> {
    let ffmpeg = find_for(ffmpeg, "cameras").ok();
    Devices::system().list(ffmpeg.as_ref())
}

/// Orders modes best first: fast enough to track, then large up to 1920x1080, then raw before
/// compressed, then faster. Ties keep the camera's own order.
pub fn rank_modes(modes: &mut [CameraMode]) {
    modes.sort_by(|a, b| {
        let key = |mode: &CameraMode| {
            let fits = mode.width <= LARGEST_USEFUL.0 && mode.height <= LARGEST_USEFUL.1;
            let pixels = u64::from(mode.width) * u64::from(mode.height);
            (
                mode.max_fps.is_none_or(|fps| fps >= LOWEST_USEFUL_FPS),
                fits,
                // Of those too large the smallest is best.
                if fits {
                    pixels as i64
                } else {
                    -(pixels as i64)
                },
                !mode.compressed,
            )
        };
        let fps = |mode: &CameraMode| mode.max_fps.unwrap_or(0.0);
        key(b).cmp(&key(a)).then_with(|| fps(b).total_cmp(&fps(a)))
    });
}

/// How the system names its cameras.
#[derive(Clone, Debug)]
struct Devices {
    /// Holds one folder `videoN` for each device, with its name in a file.
    class: PathBuf,
    /// Holds the device files `videoN`.
    dev: PathBuf,
    avfoundation: bool,
}

impl Devices {
    fn system() -> Self {
        Self {
            class: "/sys/class/video4linux".into(),
            dev: "/dev".into(),
            avfoundation: cfg!(target_os = "macos"),
        }
    }

    fn list(&self, ffmpeg: Option<&FfmpegInfo>) -> Vec<CameraInfo> {
        let mut cameras = if self.avfoundation {
            Self::avfoundation_names(ffmpeg)
        } else {
            self.v4l2_names()
        };
        cameras.sort_by_key(|camera| camera.index);
        for camera in &mut cameras {
            if let Some(ffmpeg) = ffmpeg {
                camera.modes = self.modes(ffmpeg, camera.index);
                // avfoundation names its modes only when asked for a wrong one.
                camera.opens = self.avfoundation || !camera.modes.is_empty();
            }
        }
        cameras
    }

    fn v4l2_names(&self) -> Vec<CameraInfo> {
        let Ok(entries) = std::fs::read_dir(&self.class) else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let index = path.file_name()?.to_str()?.strip_prefix("video")?;
                let name = std::fs::read_to_string(path.join("name")).unwrap_or_default();
                Some(CameraInfo {
                    index: index.parse().ok()?,
                    name: name.trim().to_owned(),
                    opens: false,
                    modes: Vec::new(),
                })
            })
            .collect()
    }

    fn avfoundation_names(ffmpeg: Option<&FfmpegInfo>) -> Vec<CameraInfo> {
        let Some(ffmpeg) = ffmpeg else {
            return Vec::new();
        };
        let mut command = tool(&ffmpeg.path);
        command.args(["-hide_banner", "-nostdin", "-f", "avfoundation"]);
        command.args(["-list_devices", "true", "-i", ""]);
        let messages = process::run(&mut command, LIST_STALL, |_| {})
            .map(|finished| finished.messages)
            .unwrap_or_default();
        parse_avfoundation_devices(&messages)
    }

    fn modes(&self, ffmpeg: &FfmpegInfo, index: u32) -> Vec<CameraMode> {
        if self.avfoundation {
            return Vec::new();
        }
        let mut command = tool(&ffmpeg.path);
        command
            .args([
                "-hide_banner",
                "-nostdin",
                "-f",
                "v4l2",
                "-list_formats",
                "all",
                "-i",
            ])
            .arg(self.device(index));
        let mut modes = process::run(&mut command, LIST_STALL, |_| {})
            .map(|finished| parse_v4l2_formats(&finished.messages))
            .unwrap_or_default();
        rank_modes(&mut modes);
        modes
    }

    fn device(&self, index: u32) -> PathBuf {
        self.dev.join(format!("video{index}"))
    }

    /// The decoder's input for a camera.
    fn input(&self, ffmpeg: &FfmpegInfo, index: u32) -> Result<Input> {
        let cameras = self.list(Some(ffmpeg));
        let wrong = |reason: &str| VideoError::Camera {
            index,
            reason: reason.into(),
            openable: cameras
                .iter()
                .filter(|c| c.opens)
                .map(|c| c.index)
                .collect(),
        };
        let camera = cameras
            .iter()
            .find(|camera| camera.index == index)
            .ok_or_else(|| wrong("there is no such camera"))?;
        if !camera.opens {
            return Err(wrong("it gives no pictures; another program may hold it"));
        }
        if self.avfoundation {
            return Ok(Input {
                before: ["-f", "avfoundation", "-framerate", "30"]
                    .map(OsString::from)
                    .to_vec(),
                address: format!("{index}:none").into(),
            });
        }
        let mut before: Vec<OsString> = vec!["-f".into(), "v4l2".into()];
        if let Some(mode) = camera.modes.first() {
            before.extend(["-input_format".into(), OsString::from(&mode.format)]);
            let size = format!("{}x{}", mode.width, mode.height);
            before.extend(["-video_size".into(), size.into()]);
        }
        Ok(Input {
            before,
            address: self.device(index).into(),
        })
    }
}

/// The decoder's input for the camera `index` of this machine.
///
/// # Errors
/// [`VideoError::Camera`] with the indices that do open.
pub(crate) fn camera_input(ffmpeg: &FfmpegInfo, index: u32) -> Result<Input> {
    Devices::system().input(ffmpeg, index)
}

/// Reads the list that v4l2 prints, a line for each pixel format with its sizes. Formats that
/// ffmpeg has no name for are left out.
fn parse_v4l2_formats(messages: &str) -> Vec<CameraMode> {
    let mut modes = Vec::new();
    for line in messages.lines() {
        let Some((_, text)) = line.split_once("] ") else {
            continue;
        };
        let mut parts = text.splitn(4, ':').map(str::trim);
        let (Some(kind), Some(format), Some(_), Some(sizes)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let compressed = match kind {
            "Compressed" => true,
            "Raw" => false,
            _ => continue,
        };
        if format.is_empty() || format == "Unsupported" {
            continue;
        }
        for size in sizes.split_ascii_whitespace() {
            if let Some((width, height)) = size.split_once('x')
                && let (Ok(width), Ok(height)) = (width.parse(), height.parse())
            {
                modes.push(CameraMode {
                    format: format.into(),
                    compressed,
                    width,
                    height,
                    max_fps: None,
                });
            }
        }
    }
    modes
}

/// Reads the list of avfoundation, up to where the microphones begin.
fn parse_avfoundation_devices(messages: &str) -> Vec<CameraInfo> {
    messages
        .lines()
        .skip_while(|line| !line.contains("video devices:"))
        .take_while(|line| !line.contains("audio devices:"))
        .filter_map(|line| {
            let (_, text) = line.split_once("] [")?;
            let (index, name) = text.split_once("] ")?;
            Some(CameraInfo {
                index: index.parse().ok()?,
                name: name.trim().to_owned(),
                opens: false,
                modes: Vec::new(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    #[cfg(unix)]
    use shelfscan_testkit::program::write_program;

    use super::*;

    fn mode(format: &str, width: u32, height: u32, max_fps: Option<f64>) -> CameraMode {
        CameraMode {
            format: format.into(),
            compressed: format == "mjpeg",
            width,
            height,
            max_fps,
        }
    }

    #[test]
    fn a_slow_large_mode_loses_against_a_fast_smaller_one() {
        let mut modes = vec![
            mode("yuyv422", 2304, 1536, Some(2.0)),
            mode("yuyv422", 640, 480, Some(30.0)),
            mode("mjpeg", 1920, 1080, Some(30.0)),
            mode("yuyv422", 1920, 1080, Some(5.0)),
        ];
        rank_modes(&mut modes);
        assert_eq!((modes[0].width, &*modes[0].format), (1920, "mjpeg"));
        assert_eq!(modes[1].width, 640);
    }

    #[test]
    fn of_equal_sizes_the_uncompressed_and_then_the_faster_wins() {
        let mut modes = vec![
            mode("mjpeg", 640, 480, Some(60.0)),
            mode("yuyv422", 640, 480, Some(15.0)),
            mode("nv12", 640, 480, Some(30.0)),
            mode("nv12", 3840, 2160, None),
        ];
        rank_modes(&mut modes);
        let order: Vec<&str> = modes.iter().map(|m| m.format.as_str()).collect();
        assert_eq!(order, ["nv12", "yuyv422", "mjpeg", "nv12"]);
    }

    #[test]
    fn formats_without_a_name_are_left_out_and_never_panic() {
        let text = "\
[video4linux2,v4l2 @ 0x1] Raw       :     yuyv422 :           YUYV 4:2:2 : 640x480 1280x720
[video4linux2,v4l2 @ 0x1] Compressed:       mjpeg :          Motion-JPEG : 1920x1080
[video4linux2,v4l2 @ 0x1] Raw       : Unsupported :  Vendor format XYZ1 : 640x480
[video4linux2,v4l2 @ 0x1] Raw       :        nv12 :  NV12 : {32-4096, 2}x{32-4096, 2}
/dev/video0: Immediate exit requested";
        let modes = parse_v4l2_formats(text);
        assert_eq!(modes.len(), 3);
        assert_eq!(
            (modes[2].format.as_str(), modes[2].compressed),
            ("mjpeg", true)
        );
        assert!(parse_v4l2_formats("").is_empty());
    }

    #[test]
    fn the_list_of_a_mac_ends_where_the_microphones_begin() {
        let text = "\
[AVFoundation indev @ 0x1] AVFoundation video devices:
[AVFoundation indev @ 0x1] [0] FaceTime HD Camera
[AVFoundation indev @ 0x1] [1] Capture screen 0
[AVFoundation indev @ 0x1] AVFoundation audio devices:
[AVFoundation indev @ 0x1] [0] Microphone";
        let cameras = parse_avfoundation_devices(text);
        assert_eq!(cameras.len(), 2);
        assert_eq!(
            (cameras[1].index, &*cameras[1].name),
            (1, "Capture screen 0")
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_wrong_index_names_the_cameras_that_open() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for index in [0, 2, 3] {
            let folder = at("class").join(format!("video{index}"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("name"), format!("cam {index}\n")).unwrap();
        }
        // Stands in for ffmpeg: cameras 0 and 2 name a mode, 3 is busy.
        let script = "#!/bin/sh\nfor last; do :; done\ncase \"$last\" in\n*video0|*video2) echo '[v @ 0x1] Raw : yuyv422 : YUYV : 640x480 1280x720' >&2;;\n*) echo 'Device or resource busy' >&2;;\nesac\nexit 1\n";
        let program = at("tool");
        write_program(&program, script).unwrap();
        let ffmpeg = FfmpegInfo {
            path: program,
            version: "7.0".into(),
            ffprobe: None,
        };
        let devices = Devices {
            class: at("class"),
            dev: at("dev"),
            avfoundation: false,
        };
        let names: Vec<_> = devices
            .list(Some(&ffmpeg))
            .iter()
            .map(|c| (c.name.clone(), c.opens))
            .collect();
        assert_eq!(
            names,
            [
                ("cam 0".into(), true),
                ("cam 2".into(), true),
                ("cam 3".into(), false)
            ]
        );
        for (index, reason) in [(9, "no such camera"), (3, "another program")] {
            let text = devices.input(&ffmpeg, index).unwrap_err().to_string();
            assert!(
                text.contains(reason) && text.ends_with("those that open: 0, 2"),
                "{text}"
            );
        }
        let input = devices.input(&ffmpeg, 2).unwrap();
        assert_eq!(
            input.before,
            [
                "-f",
                "v4l2",
                "-input_format",
                "yuyv422",
                "-video_size",
                "1280x720"
            ]
        );
        assert!(std::path::Path::new(&input.address).ends_with("dev/video2"));
    }

    proptest! {
        #[test]
        fn any_list_is_read_without_a_panic(text in "(\\[v @ 0x1\\] )?(Raw|Compressed)?[ :a-z0-9x{},-]{0,60}(\n.*)?") {
            parse_v4l2_formats(&text);
            parse_avfoundation_devices(&text);
        }
    }
}
