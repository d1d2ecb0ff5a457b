//! What is asked of a worker, and what it answers.

use super::{
    ProtocolError,
    bytes::{Reader, Writer},
    failure::{read_failure, write_failure},
    header::{HEADER_BYTES, Header, MAX_BULK_BYTES, MAX_META_BYTES, at_most},
    values::{
        read_fingerprint, read_found, read_frame, read_info, read_pictures, read_prompts,
        write_fingerprint, write_found, write_frame, write_info, write_prompts, write_size,
    },
};
use crate::{
    EmbedderFingerprint, Embeddings, FrameDetections, InferenceError, ProviderInfo, RgbImage,
    TextPrompt, VideoFrame,
};

type Result<T> = std::result::Result<T, ProtocolError>;

/// Something a worker is asked to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Request {
    /// The first message: how the models are made, in the caller's own format.
    Configure(Vec<u8>),
    /// [`warmup`](crate::InferenceProvider::warmup).
    Warmup,
    /// [`detect_text_prompts`](crate::InferenceProvider::detect_text_prompts).
    Detect(VideoFrame, Vec<TextPrompt>),
    /// [`start_tracking`](crate::InferenceProvider::start_tracking).
    Start(VideoFrame, Vec<TextPrompt>),
    /// [`track_next`](crate::InferenceProvider::track_next).
    Track(VideoFrame),
    /// [`finish_tracking`](crate::InferenceProvider::finish_tracking).
    Finish,
    /// [`shutdown`](crate::InferenceProvider::shutdown) of the provider, and the end of the worker.
    Shutdown,
    /// [`warmup`](crate::Embedder::warmup) of the embedder.
    WarmupEmbedder,
    /// [`fingerprint`](crate::Embedder::fingerprint).
    Fingerprint,
    /// [`embed`](crate::Embedder::embed).
    Embed(Vec<RgbImage>),
}

/// What a worker answers.
#[derive(Debug)]
#[non_exhaustive]
pub enum Response {
    /// It is done, and this is what the provider is now: the answer to `Configure` and `Warmup`.
    Info(ProviderInfo),
    /// It is done and there is nothing to tell.
    Done,
    /// What was found, frame by frame.
    Found(Vec<FrameDetections>),
    /// What the vectors of the embedder are tied to.
    Fingerprint(EmbedderFingerprint),
    /// A vector for each crop.
    Embeddings(Embeddings),
    /// The call failed in the model; the worker is well.
    Failed(InferenceError),
}

/// A message as bytes, with its pixels still where they were.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Header and meta.
    head: Vec<u8>,
    pictures: Vec<RgbImage>,
    numbers: Vec<u8>,
}

impl Encoded {
    /// The bytes, part by part, in the order of the wire.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        [self.head.as_slice()]
            .into_iter()
            .chain(self.pictures.iter().map(RgbImage::pixels))
            .chain([self.numbers.as_slice()])
            .filter(|part| !part.is_empty())
    }

    fn new(
        kind: u16,
        call: u32,
        meta: Writer,
        pictures: Vec<RgbImage>,
        numbers: Vec<u8>,
    ) -> Result<Self> {
        let mut head = meta.into_bytes();
        let bulk = pictures.iter().map(|p| p.pixels().len()).sum::<usize>() + numbers.len();
        let header = Header {
            kind,
            call,
            meta_bytes: at_most(
                "meta bytes",
                (head.len() - HEADER_BYTES) as u64,
                MAX_META_BYTES,
            )?,
            bulk_bytes: at_most("bulk bytes", bulk as u64, MAX_BULK_BYTES)?,
        };
        if let Some(first) = head.first_chunk_mut() {
            *first = header.encode();
        }
        Ok(Self {
            head,
            pictures,
            numbers,
        })
    }
}

const CONFIGURE: u16 = 1;
const WARMUP: u16 = 2;
const DETECT: u16 = 3;
const START: u16 = 4;
const TRACK: u16 = 5;
const FINISH: u16 = 6;
const SHUTDOWN: u16 = 7;
const WARMUP_EMBEDDER: u16 = 8;
const FINGERPRINT: u16 = 9;
const EMBED: u16 = 10;

const INFO: u16 = 101;
const DONE: u16 = 102;
const FOUND: u16 = 103;
const PRINT: u16 = 104;
const EMBEDDINGS: u16 = 105;
const FAILED: u16 = 106;

impl Request {
    /// Name of the contract's call, as errors give it.
    pub fn call_name(&self) -> &'static str {
        match self {
            Self::Configure(_) => "configure",
            Self::Warmup | Self::WarmupEmbedder => "warmup",
            Self::Detect(..) => "detect_text_prompts",
            Self::Start(..) => "start_tracking",
            Self::Track(_) => "track_next",
            Self::Finish => "finish_tracking",
            Self::Shutdown => "shutdown",
            Self::Fingerprint => "fingerprint",
            Self::Embed(_) => "embed",
        }
    }

    /// The request as bytes; pixels are shared, not copied.
    ///
    /// # Errors
    /// [`ProtocolError::TooLarge`] when a text, a list or the pixels are over their limit.
    pub fn encode(self, call: u32) -> Result<Encoded> {
        let mut w = Writer::after(HEADER_BYTES);
        let mut pictures = Vec::new();
        let kind = match self {
            Self::Configure(bytes) => {
                w.blob(&bytes)?;
                CONFIGURE
            }
            Self::Warmup => WARMUP,
            Self::Detect(frame, prompts) => {
                write_frame(&mut w, &frame)?;
                write_prompts(&mut w, &prompts)?;
                pictures.push(frame.image);
                DETECT
            }
            Self::Start(frame, prompts) => {
                write_frame(&mut w, &frame)?;
                write_prompts(&mut w, &prompts)?;
                pictures.push(frame.image);
                START
            }
            Self::Track(frame) => {
                write_frame(&mut w, &frame)?;
                pictures.push(frame.image);
                TRACK
            }
            Self::Finish => FINISH,
            Self::Shutdown => SHUTDOWN,
            Self::WarmupEmbedder => WARMUP_EMBEDDER,
            Self::Fingerprint => FINGERPRINT,
            Self::Embed(crops) => {
                w.count(crops.len())?;
                for crop in &crops {
                    write_size(&mut w, crop);
                }
                pictures = crops;
                EMBED
            }
        };
        Encoded::new(kind, call, w, pictures, Vec::new())
    }

    /// Reads what followed `header`; a frame keeps `bulk` as its pixels.
    ///
    /// # Errors
    /// The bytes are no request.
    pub fn decode(header: &Header, meta: &[u8], bulk: Vec<u8>) -> Result<Self> {
        let mut r = Reader::new(meta);
        let mut bulk = Some(bulk);
        let mut pixels = || bulk.take().unwrap_or_default();
        let request = match header.kind {
            CONFIGURE => Self::Configure(r.blob("configuration")?.to_vec()),
            WARMUP => Self::Warmup,
            DETECT => Self::Detect(read_frame(&mut r, pixels())?, read_prompts(&mut r)?),
            START => Self::Start(read_frame(&mut r, pixels())?, read_prompts(&mut r)?),
            TRACK => Self::Track(read_frame(&mut r, pixels())?),
            FINISH => Self::Finish,
            SHUTDOWN => Self::Shutdown,
            WARMUP_EMBEDDER => Self::WarmupEmbedder,
            FINGERPRINT => Self::Fingerprint,
            EMBED => Self::Embed(read_pictures(&mut r, &pixels())?),
            kind => return Err(ProtocolError::UnexpectedKind(kind)),
        };
        r.end()?;
        no_bulk_left(bulk.as_deref())?;
        Ok(request)
    }
}

impl Response {
    /// The response as bytes.
    ///
    /// # Errors
    /// [`ProtocolError::TooLarge`] when a text or a list is over its limit.
    pub fn encode(&self, call: u32) -> Result<Encoded> {
        let mut w = Writer::after(HEADER_BYTES);
        let mut numbers = Vec::new();
        let kind = match self {
            Self::Info(info) => {
                write_info(&mut w, info)?;
                INFO
            }
            Self::Done => DONE,
            Self::Found(frames) => {
                write_found(&mut w, frames)?;
                FOUND
            }
            Self::Fingerprint(print) => {
                write_fingerprint(&mut w, print)?;
                PRINT
            }
            Self::Embeddings(vectors) => {
                w.u64(vectors.dimension() as u64);
                numbers = vectors
                    .values()
                    .iter()
                    .flat_map(|v| v.to_le_bytes())
                    .collect();
                EMBEDDINGS
            }
            Self::Failed(error) => {
                write_failure(&mut w, error)?;
                FAILED
            }
        };
        Encoded::new(kind, call, w, Vec::new(), numbers)
    }

    /// Reads what followed `header`.
    ///
    /// # Errors
    /// The bytes are no response.
    pub fn decode(header: &Header, meta: &[u8], bulk: &[u8]) -> Result<Self> {
        let mut r = Reader::new(meta);
        let mut left = Some(bulk);
        let response = match header.kind {
            INFO => Self::Info(read_info(&mut r)?),
            DONE => Self::Done,
            FOUND => Self::Found(read_found(&mut r)?),
            PRINT => Self::Fingerprint(read_fingerprint(&mut r)?),
            EMBEDDINGS => {
                let damaged = ProtocolError::Damaged("vectors");
                let (numbers, rest) = left.take().unwrap_or_default().as_chunks::<4>();
                let values = numbers.iter().map(|n| f32::from_le_bytes(*n)).collect();
                let vectors = usize::try_from(r.u64("dimension")?)
                    .ok()
                    .filter(|_| rest.is_empty())
                    .and_then(|dimension| Embeddings::new(dimension, values).ok());
                Self::Embeddings(vectors.ok_or(damaged)?)
            }
            FAILED => Self::Failed(read_failure(&mut r)?),
            kind => return Err(ProtocolError::UnexpectedKind(kind)),
        };
        r.end()?;
        no_bulk_left(left)?;
        Ok(response)
    }
}

/// Bulk that belongs to nothing would be lost without a word.
fn no_bulk_left(bulk: Option<&[u8]>) -> Result<()> {
    match bulk {
        Some([_, ..]) => Err(ProtocolError::Damaged("bulk")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{BoxXyxy, Detection, FrameTime, Mask, ModelFingerprint, Notice, SourceId, TrackId};

    fn wire(message: &Encoded) -> Vec<u8> {
        message.parts().flatten().copied().collect()
    }

    fn cut(bytes: &[u8]) -> (Header, &[u8], &[u8]) {
        let (header, rest) = bytes.split_first_chunk().unwrap();
        let header = Header::decode(header).unwrap();
        let (meta, bulk) = rest.split_at(header.meta_bytes as usize);
        assert_eq!(bulk.len(), header.bulk_bytes as usize);
        (header, meta, bulk)
    }

    fn frame(width: u32, height: u32) -> VideoFrame {
        let pixels = (0..width * height * 3).map(|i| i as u8).collect();
        VideoFrame {
            image: RgbImage::new(width, height, pixels).unwrap(),
            index: 7,
            time: FrameTime::estimated(0.25),
            source: SourceId::new("a/clip \u{fc}.mp4"),
        }
    }

    fn requests() -> Vec<Request> {
        let prompts = vec![
            TextPrompt::new("product").unwrap(),
            TextPrompt::labelled("price tag", "label").unwrap(),
        ];
        vec![
            Request::Configure(b"{}".to_vec()),
            Request::Warmup,
            Request::Detect(frame(5, 3), prompts.clone()),
            Request::Start(frame(2, 4), prompts),
            Request::Track(frame(1, 1)),
            Request::Finish,
            Request::Shutdown,
            Request::WarmupEmbedder,
            Request::Fingerprint,
            Request::Embed(vec![frame(2, 2).image, frame(3, 1).image]),
            Request::Embed(Vec::new()),
        ]
    }

    fn responses() -> Vec<Response> {
        let detection = |score, mask: bool| Detection {
            label: "product".into(),
            prompt: "pack".into(),
            score,
            bbox: BoxXyxy::new(0.1, 2.0, 3.5, 4.0),
            mask: mask.then(|| Mask::from_box(9, 8, &BoxXyxy::new(0.0, 2.0, 3.0, 4.0))),
            track_id: mask.then_some(TrackId(u64::MAX)),
        };
        vec![
            Response::Info(ProviderInfo {
                name: "cpu".into(),
                device: "cpu".into(),
                assigns_track_ids: true,
                tracking_delay_frames: 3,
                models: vec![ModelFingerprint {
                    model: "sam3.1".into(),
                    weights_hash: "00ff".into(),
                    preprocessing: "stretch".into(),
                }],
            }),
            Response::Done,
            Response::Found(vec![
                FrameDetections {
                    frame_index: 7,
                    detections: vec![detection(0.1 + 0.2, true), detection(f32::MIN, false)],
                    notices: vec![Notice::new("query_cap_hit", "all queries were taken")],
                },
                FrameDetections::default(),
            ]),
            Response::Fingerprint(EmbedderFingerprint {
                model: "dinov2-small".into(),
                weights_hash: "ab".into(),
                preprocessing: "224".into(),
                dimension: 384,
            }),
            Response::Embeddings(Embeddings::new(2, vec![0.1, -0.2, f32::MAX, 0.0]).unwrap()),
            Response::Failed(InferenceError::InvalidInput("no prompt".into())),
        ]
    }

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        for request in requests() {
            let sent = wire(&request.clone().encode(9).unwrap());
            let (header, meta, bulk) = cut(&sent);
            assert_eq!(header.call, 9);
            let got = Request::decode(&header, meta, bulk.to_vec()).unwrap();
            assert_eq!(format!("{got:?}"), format!("{request:?}"));
            assert_eq!(wire(&got.encode(9).unwrap()), sent);
        }
    }

    #[test]
    fn a_response_arrives_with_every_bit() {
        for response in responses() {
            let sent = wire(&response.encode(9).unwrap());
            let (header, meta, bulk) = cut(&sent);
            let got = Response::decode(&header, meta, bulk).unwrap();
            assert_eq!(format!("{got:?}"), format!("{response:?}"));
            assert_eq!(wire(&got.encode(9).unwrap()), sent);
        }
    }

    #[test]
    fn pixels_are_neither_copied_to_be_sent_nor_to_be_received() {
        let frame = frame(64, 48);
        let message = Request::Track(frame.clone()).encode(1).unwrap();
        let last = message.parts().last().unwrap();
        assert_eq!(last.as_ptr(), frame.image.pixels().as_ptr());
        let bytes = wire(&message);
        let (header, meta, bulk) = cut(&bytes);
        let bulk = bulk.to_vec();
        let at = bulk.as_ptr();
        match Request::decode(&header, meta, bulk).unwrap() {
            Request::Track(frame) => assert_eq!(frame.image.pixels().as_ptr(), at),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_of_the_wrong_direction_and_one_with_a_rest_are_refused() {
        let sent = wire(&Response::Done.encode(1).unwrap());
        let (header, ..) = cut(&sent);
        assert!(matches!(
            Request::decode(&header, &[], Vec::new()),
            Err(ProtocolError::UnexpectedKind(DONE))
        ));
        assert!(Response::decode(&header, &[0], &[]).is_err());
        assert!(Response::decode(&header, &[], &[0]).is_err());
    }

    /// All messages, whole.
    fn samples() -> Vec<Vec<u8>> {
        let requests = requests().into_iter().map(|r| r.encode(1).unwrap());
        let responses = responses().into_iter().map(|r| r.encode(1).unwrap());
        requests.chain(responses).map(|m| wire(&m)).collect()
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(kind: u16, meta: Vec<u8>, bulk: Vec<u8>, head: [u8; HEADER_BYTES]) {
            drop(Header::decode(&head));
            for kind in [kind, kind % 12, 100 + kind % 8] {
                let header = Header { kind, call: 0, meta_bytes: 0, bulk_bytes: 0 };
                drop(Request::decode(&header, &meta, bulk.clone()));
                drop(Response::decode(&header, &meta, &bulk));
            }
        }

        #[test]
        fn a_damaged_message_never_panics_and_holds_no_more_than_arrived(
            which: prop::sample::Index, at: prop::sample::Index, to: u8, keep: prop::sample::Index,
        ) {
            let samples = samples();
            let mut bytes = samples[which.index(samples.len())].clone();
            let body = HEADER_BYTES + at.index(bytes.len());
            if let Some(byte) = bytes.get_mut(body) {
                *byte = to;
            }
            let (header, meta, bulk) = cut(&bytes);
            let meta = &meta[..meta.len() - keep.index(meta.len() + 1).min(1)];
            if let Ok(Request::Embed(crops)) = Request::decode(&header, meta, bulk.to_vec()) {
                let held: usize = crops.iter().map(|c| c.pixels().len()).sum();
                prop_assert!(held <= bulk.len());
            }
            drop(Response::decode(&header, meta, bulk));
        }
    }
}
