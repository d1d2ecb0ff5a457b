//! The plan of a video: what is detected, followed, born, replaced and removed in each frame.
