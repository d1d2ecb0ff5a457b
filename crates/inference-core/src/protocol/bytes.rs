//! Field by field into bytes and out of them.

use super::{ProtocolError, header::at_most};

/// Longest text: a path, a phrase, the end of a worker's standard error.
const MAX_TEXT_BYTES: u32 = 1 << 20;
/// Most items of a list.
const MAX_ITEMS: u32 = 1 << 20;

type Result<T> = std::result::Result<T, ProtocolError>;

/// Collects fields.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// A writer that leaves room for something to be put in front.
    pub(super) fn after(gap: usize) -> Self {
        Self {
            bytes: vec![0; gap],
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub(super) fn f32(&mut self, value: f32) {
        self.u32(value.to_bits());
    }

    pub(super) fn f64(&mut self, value: f64) {
        self.u64(value.to_bits());
    }

    pub(super) fn text(&mut self, text: &str) -> Result<()> {
        self.blob(text.as_bytes())
    }

    pub(super) fn blob(&mut self, bytes: &[u8]) -> Result<()> {
        let length = at_most("a text in bytes", bytes.len() as u64, MAX_TEXT_BYTES)?;
        self.u32(length);
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The number of items of a list, before them.
    pub(super) fn count(&mut self, items: usize) -> Result<()> {
        let count = at_most("a list in items", items as u64, MAX_ITEMS)?;
        self.u32(count);
        Ok(())
    }

    /// A value that may be missing.
    pub(super) fn option<T>(
        &mut self,
        value: Option<T>,
        write: impl FnOnce(&mut Self, T) -> Result<()>,
    ) -> Result<()> {
        self.u8(u8::from(value.is_some()));
        value.map_or(Ok(()), |value| write(self, value))
    }
}

/// Takes fields off the front. Each call names the field, for the error when it is not there.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        let (taken, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(ProtocolError::Damaged(field))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    pub(super) fn bool(&mut self, field: &'static str) -> Result<bool> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ProtocolError::Damaged(field)),
        }
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    pub(super) fn f32(&mut self, field: &'static str) -> Result<f32> {
        self.u32(field).map(f32::from_bits)
    }

    pub(super) fn f64(&mut self, field: &'static str) -> Result<f64> {
        self.u64(field).map(f64::from_bits)
    }

    pub(super) fn blob(&mut self, field: &'static str) -> Result<&'a [u8]> {
        let length = self.u32(field)?;
        at_most("a text in bytes", u64::from(length), MAX_TEXT_BYTES)?;
        let (taken, rest) = self
            .rest
            .split_at_checked(length as usize)
            .ok_or(ProtocolError::Damaged(field))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn text(&mut self, field: &'static str) -> Result<&'a str> {
        std::str::from_utf8(self.blob(field)?).map_err(|_| ProtocolError::Damaged(field))
    }

    /// The number of items of a list, each of at least `item_bytes` on the wire, so that no more is
    /// ever allocated than a small multiple of what arrived.
    pub(super) fn count(&mut self, field: &'static str, item_bytes: usize) -> Result<usize> {
        let count = self.u32(field)?;
        at_most("a list in items", u64::from(count), MAX_ITEMS)?;
        let count = count as usize;
        if count.saturating_mul(item_bytes) > self.rest.len() {
            return Err(ProtocolError::Damaged(field));
        }
        Ok(count)
    }

    pub(super) fn list<T>(
        &mut self,
        field: &'static str,
        item_bytes: usize,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.count(field, item_bytes)?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    pub(super) fn option<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        self.bool(field)?.then(|| read(self)).transpose()
    }

    /// Checks that every byte was a field.
    pub(super) fn end(self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(ProtocolError::Damaged("end"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_cannot_be_there_is_refused_before_anything_is_allocated() {
        let mut writer = Writer::default();
        writer.u32(1 << 20);
        let bytes = writer.into_bytes();
        let read = Reader::new(&bytes).list("boxes", 16, |r| r.u64("box"));
        assert_eq!(read, Err(ProtocolError::Damaged("boxes")));
        let bytes = u32::MAX.to_le_bytes();
        assert!(matches!(
            Reader::new(&bytes).count("boxes", 0),
            Err(ProtocolError::TooLarge { .. })
        ));
    }

    #[test]
    fn a_text_over_the_limit_is_not_written() {
        let text = "x".repeat((MAX_TEXT_BYTES + 1) as usize);
        assert!(Writer::default().text(&text).is_err());
    }
}
