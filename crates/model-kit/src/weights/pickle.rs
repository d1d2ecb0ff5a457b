//! The part of Python's pickle format that PyTorch checkpoints use.
//!
//! Opcodes build values in an arena; nothing is imported, called or printed. A class or function
//! that is not one of PyTorch's tensor builders stays an [`Value::Unknown`] with its name, so that
//! a file with an optimizer or a config object in it still gives its tensors. Work and memory are
//! linear in the length of the pickle.
//!
//! Source: the opcode list of Python's `pickletools`, and `torch/_utils.py` for the builders.

use super::SourceDtype;

/// Names are copied for every use, so a hostile pickle must not make them long.
const NAME_LIMIT: usize = 512;
/// Dimensions of a tensor, for the same reason.
const RANK_LIMIT: usize = 16;

/// Index of a value in the arena.
pub(super) type Id = usize;

/// A storage as the pickle names it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StorageRef {
    /// Name of the archive entry below `data/`.
    pub(super) key: String,
    pub(super) dtype: SourceDtype,
}

/// A tensor as the pickle describes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorRef {
    pub(super) storage: StorageRef,
    /// First element, counted in elements of the storage.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    /// Steps in elements.
    pub(super) stride: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    None,
    Bool,
    Int(i64),
    Float,
    Text(String),
    Bytes,
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A class or function by its full name.
    Global(String),
    Storage(StorageRef),
    Tensor(TensorRef),
    /// An object that is not rebuilt, by the name of what would have made it.
    Unknown(String),
}

/// What a pickle came to.
#[derive(Debug)]
pub(super) struct Pickled {
    pub(super) values: Vec<Value>,
    pub(super) root: Id,
}

/// Reads one pickle.
///
/// # Errors
/// A sentence that says what is wrong and at which byte.
pub(super) fn parse(bytes: &[u8]) -> Result<Pickled, String> {
    let mut machine = Machine {
        bytes,
        at: 0,
        values: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
    };
    let root = machine
        .run()
        .map_err(|reason| format!("{reason} at byte {} of its pickle", machine.at))?;
    Ok(Pickled {
        values: machine.values,
        root,
    })
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    /// By index, because picklers count up; the index is bounded by the pickle's length.
    memo: Vec<Option<Id>>,
}

impl Machine<'_> {
    fn run(&mut self) -> Result<Id, String> {
        loop {
            let op = self.byte()?;
            match op {
                0x80 => {
                    let version = self.byte()?;
                    if version > 5 {
                        return Err(format!("protocol {version} is not known"));
                    }
                }
                0x95 => {
                    // A frame's length is a hint for buffered readers.
                    self.take(8)?;
                }
                b'.' => return self.pop(),
                b'(' => self.marks.push(self.stack.len()),
                b'0' => {
                    self.pop()?;
                }
                b'1' => {
                    self.pop_mark()?;
                }
                b'2' => {
                    let top = *self.stack.last().ok_or("an empty stack")?;
                    self.stack.push(top);
                }
                b'N' => self.push(Value::None),
                0x88 | 0x89 => self.push(Value::Bool),
                b'K' => {
                    let v = self.byte()?;
                    self.push(Value::Int(i64::from(v)));
                }
                b'M' => {
                    let v = u16::from_le_bytes(self.array()?);
                    self.push(Value::Int(i64::from(v)));
                }
                b'J' => {
                    let v = i32::from_le_bytes(self.array()?);
                    self.push(Value::Int(i64::from(v)));
                }
                0x8a => self.long1()?,
                b'G' => {
                    self.take(8)?;
                    self.push(Value::Float);
                }
                b'X' => {
                    let n = u32::from_le_bytes(self.array()?) as usize;
                    self.text(n)?;
                }
                0x8c => {
                    let n = usize::from(self.byte()?);
                    self.text(n)?;
                }
                0x8d => {
                    let n = self.long_length()?;
                    self.text(n)?;
                }
                b'U' | b'C' => {
                    let n = usize::from(self.byte()?);
                    self.blob(n)?;
                }
                b'T' | b'B' => {
                    let n = u32::from_le_bytes(self.array()?) as usize;
                    self.blob(n)?;
                }
                0x8e | 0x96 => {
                    let n = self.long_length()?;
                    self.blob(n)?;
                }
                b')' => self.push(Value::Tuple(Vec::new())),
                0x85..=0x87 => {
                    let n = usize::from(op - 0x84);
                    let at = self.stack.len().checked_sub(n).ok_or("an empty stack")?;
                    let items = self.stack.split_off(at);
                    self.push(Value::Tuple(items));
                }
                b't' => {
                    let items = self.pop_mark()?;
                    self.push(Value::Tuple(items));
                }
                b']' | 0x8f => self.push(Value::List(Vec::new())),
                b'l' | 0x91 => {
                    let items = self.pop_mark()?;
                    self.push(Value::List(items));
                }
                b'a' => {
                    let item = self.pop()?;
                    self.extend_list(vec![item])?;
                }
                b'e' | 0x90 => {
                    let items = self.pop_mark()?;
                    self.extend_list(items)?;
                }
                b'}' => self.push(Value::Dict(Vec::new())),
                b'd' => {
                    let items = self.pop_mark()?;
                    self.push(Value::Dict(Vec::new()));
                    self.extend_dict(&items)?;
                }
                b's' => {
                    let value = self.pop()?;
                    let key = self.pop()?;
                    self.extend_dict(&[key, value])?;
                }
                b'u' => {
                    let items = self.pop_mark()?;
                    self.extend_dict(&items)?;
                }
                b'c' => {
                    let (module, name) = (self.line()?, self.line()?);
                    self.push(global(format!("{module}.{name}"))?);
                }
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    match (&self.values[module], &self.values[name]) {
                        (Value::Text(m), Value::Text(n)) => {
                            let full = format!("{m}.{n}");
                            self.push(global(full)?);
                        }
                        _ => return Err("a class without a name".into()),
                    }
                }
                b'q' => {
                    let slot = usize::from(self.byte()?);
                    self.remember(slot)?;
                }
                b'r' => {
                    let slot = u32::from_le_bytes(self.array()?) as usize;
                    self.remember(slot)?;
                }
                0x94 => self.remember(self.memo.len())?,
                b'h' => {
                    let slot = usize::from(self.byte()?);
                    self.recall(slot)?;
                }
                b'j' => {
                    let slot = u32::from_le_bytes(self.array()?) as usize;
                    self.recall(slot)?;
                }
                b'Q' => {
                    let id = self.pop()?;
                    let storage = self.storage(id);
                    self.push(storage);
                }
                b'R' | 0x81 => {
                    let (args, callee) = (self.pop()?, self.pop()?);
                    let made = self.call(callee, args);
                    self.push(made);
                }
                0x92 => {
                    let (_keywords, args, callee) = (self.pop()?, self.pop()?, self.pop()?);
                    let made = self.call(callee, args);
                    self.push(made);
                }
                b'b' => {
                    // State of an object: attributes such as hooks, never tensor data.
                    self.pop()?;
                    if self.stack.is_empty() {
                        return Err("an empty stack".into());
                    }
                }
                _ => return Err(format!("opcode {op:#04x}, which checkpoints do not use,")),
            }
        }
    }

    fn push(&mut self, value: Value) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    fn pop(&mut self) -> Result<Id, String> {
        // Items below an open mark belong to the group under construction.
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err("an empty stack".into());
        }
        self.stack.pop().ok_or_else(|| "an empty stack".into())
    }

    fn pop_mark(&mut self) -> Result<Vec<Id>, String> {
        let at = self.marks.pop().ok_or("a group without a start")?;
        if at > self.stack.len() {
            return Err("a group that was emptied".into());
        }
        Ok(self.stack.split_off(at))
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, n: usize) -> Result<&[u8], String> {
        let end = self.at.checked_add(n).filter(|e| *e <= self.bytes.len());
        let end = end.ok_or("the end of the data too early")?;
        let out = &self.bytes[self.at..end];
        self.at = end;
        Ok(out)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn long_length(&mut self) -> Result<usize, String> {
        usize::try_from(u64::from_le_bytes(self.array()?))
            .map_err(|_| "a length beyond the address space".into())
    }

    fn long1(&mut self) -> Result<(), String> {
        let n = usize::from(self.byte()?);
        let digits = self.take(n)?;
        let negative = digits.last().is_some_and(|b| b & 0x80 != 0);
        // Longer integers are seeds and hashes, which no tensor needs.
        let value = if n <= 8 {
            let mut wide = if negative { [0xff; 8] } else { [0; 8] };
            wide[..n].copy_from_slice(digits);
            Value::Int(i64::from_le_bytes(wide))
        } else {
            Value::Unknown("a long integer".into())
        };
        self.push(value);
        Ok(())
    }

    fn text(&mut self, n: usize) -> Result<(), String> {
        let text = String::from_utf8_lossy(self.take(n)?).into_owned();
        self.push(Value::Text(text));
        Ok(())
    }

    fn blob(&mut self, n: usize) -> Result<(), String> {
        self.take(n)?;
        self.push(Value::Bytes);
        Ok(())
    }

    fn line(&mut self) -> Result<String, String> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| *b == b'\n');
        let end = end.ok_or("the end of the data too early")?;
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        self.at += end + 1;
        Ok(line)
    }

    fn remember(&mut self, slot: usize) -> Result<(), String> {
        let top = *self.stack.last().ok_or("an empty stack")?;
        if slot > self.bytes.len() {
            return Err(format!("memo slot {slot}"));
        }
        if slot >= self.memo.len() {
            self.memo.resize(slot + 1, None);
        }
        self.memo[slot] = Some(top);
        Ok(())
    }

    fn recall(&mut self, slot: usize) -> Result<(), String> {
        let id = self.memo.get(slot).copied().flatten();
        self.stack
            .push(id.ok_or_else(|| format!("memo slot {slot}"))?);
        Ok(())
    }

    fn extend_list(&mut self, items: Vec<Id>) -> Result<(), String> {
        let list = *self.stack.last().ok_or("an empty stack")?;
        if let Value::List(all) = &mut self.values[list] {
            all.extend(items);
        }
        Ok(())
    }

    fn extend_dict(&mut self, items: &[Id]) -> Result<(), String> {
        let dict = *self.stack.last().ok_or("an empty stack")?;
        if !items.len().is_multiple_of(2) {
            return Err("a key without a value".into());
        }
        // Items set on an object that is not rebuilt are dropped with it.
        if let Value::Dict(all) = &mut self.values[dict] {
            all.extend(items.as_chunks::<2>().0.iter().map(|[k, v]| (*k, *v)));
        }
        Ok(())
    }

    fn tuple(&self, id: Id) -> &[Id] {
        match self.values.get(id) {
            Some(Value::Tuple(items)) => items,
            _ => &[],
        }
    }

    /// `('storage', class, key, device, element count)`.
    fn storage(&self, id: Id) -> Value {
        if let [_, class, key, ..] = self.tuple(id)
            && let (Value::Global(class), Value::Text(key)) =
                (&self.values[*class], &self.values[*key])
            && key.len() <= NAME_LIMIT
        {
            return match storage_dtype(class) {
                Some(dtype) => Value::Storage(StorageRef {
                    key: key.clone(),
                    dtype,
                }),
                None => Value::Unknown(class.clone()),
            };
        }
        Value::Unknown("a persistent object".into())
    }

    fn call(&self, callee: Id, args: Id) -> Value {
        let Value::Global(name) = &self.values[callee] else {
            return Value::Unknown("a call of a value".into());
        };
        match name.as_str() {
            "collections.OrderedDict" | "builtins.dict" | "__builtin__.dict" => {
                Value::Dict(Vec::new())
            }
            "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor" => self
                .tensor(self.tuple(args))
                .map_or_else(|| Value::Unknown(name.clone()), Value::Tensor),
            "torch._utils._rebuild_parameter"
            | "torch._utils._rebuild_parameter_with_state"
            | "torch.nn.parameter.Parameter" => match self.tuple(args).first() {
                Some(id) if matches!(self.values[*id], Value::Tensor(_)) => {
                    self.values[*id].clone()
                }
                _ => Value::Unknown(name.clone()),
            },
            _ => Value::Unknown(name.clone()),
        }
    }

    fn tensor(&self, args: &[Id]) -> Option<TensorRef> {
        let [storage, offset, shape, stride, ..] = args else {
            return None;
        };
        let Value::Storage(storage) = &self.values[*storage] else {
            return None;
        };
        Some(TensorRef {
            storage: storage.clone(),
            offset: self.count(*offset)?,
            shape: self.counts(*shape)?,
            stride: self.counts(*stride)?,
        })
    }

    fn count(&self, id: Id) -> Option<usize> {
        match self.values[id] {
            Value::Int(v) => usize::try_from(v).ok(),
            _ => None,
        }
    }

    fn counts(&self, id: Id) -> Option<Vec<usize>> {
        let items = self.tuple(id);
        if items.len() > RANK_LIMIT {
            return None;
        }
        items.iter().map(|i| self.count(*i)).collect()
    }
}

fn global(name: String) -> Result<Value, String> {
    if name.len() > NAME_LIMIT {
        return Err(format!("a class name of {} bytes", name.len()));
    }
    Ok(Value::Global(name))
}

fn storage_dtype(class: &str) -> Option<SourceDtype> {
    let name = class.rsplit('.').next()?;
    Some(match name {
        "FloatStorage" => SourceDtype::F32,
        "HalfStorage" => SourceDtype::F16,
        "BFloat16Storage" => SourceDtype::BF16,
        "DoubleStorage" => SourceDtype::F64,
        "ComplexFloatStorage" => SourceDtype::C64,
        "LongStorage" => SourceDtype::I64,
        "IntStorage" => SourceDtype::I32,
        "ShortStorage" => SourceDtype::I16,
        "CharStorage" => SourceDtype::I8,
        "ByteStorage" => SourceDtype::U8,
        "BoolStorage" => SourceDtype::Bool,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_foreign_object_is_named_and_never_run() {
        // os.system("x") as any pickle would write it.
        let bytes = b"\x80\x02cos\nsystem\nX\x01\0\0\0x\x85R.";
        let out = parse(bytes).unwrap();
        assert!(matches!(&out.values[out.root], Value::Unknown(n) if n == "os.system"));
    }

    #[test]
    fn a_short_pickle_is_an_error_that_says_where() {
        let error = parse(b"\x80\x02}q").unwrap_err();
        assert!(error.contains("byte 4"), "{error}");
        assert!(parse(b"").is_err());
        assert!(parse(b"\x80\x02r\xff\xff\xff\xff.").is_err());
    }

    #[test]
    fn popping_through_an_open_group_is_an_error() {
        assert!(parse(b"\x80\x02N(0.").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            drop(parse(&bytes));
        }

        #[test]
        fn arbitrary_opcodes_never_panic(
            ops in proptest::collection::vec(
                proptest::sample::select(&b"(0122NK])}}tlaesudqhQRRbb.\x81\x85\x86\x87\x8f\x90\x91\x93\x94"[..]),
                0..300,
            ),
        ) {
            let mut bytes = b"\x80\x04}\x94]\x94)\x94K\x01\x94X\x01\0\0\0a\x94".to_vec();
            bytes.extend(ops);
            drop(parse(&bytes));
        }
    }
}
