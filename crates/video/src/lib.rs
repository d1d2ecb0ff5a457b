//! Frames from video files, cameras and picture folders; annotated video out.
