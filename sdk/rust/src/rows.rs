//! Rows as bytes: which types go through ports and come as arguments.

/// Any bytes; a `String` is UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bytes(pub Vec<u8>);

/// Arrow record batches as the bytes of an IPC stream with one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrowBatch(pub Vec<u8>);

/// A value of a row. The drive has checked all bytes that are decoded here.
pub trait Column: Sized {
    const NAME: &'static str;
    fn encode(&self, bytes: &mut Vec<u8>);
    /// Takes the value from the front of `bytes`.
    fn decode(bytes: &mut &[u8]) -> Self;
}

/// What goes through a port: one value, a tuple of values, or an [`ArrowBatch`].
pub trait Row: Sized {
    /// Whether each value is a batch of its own.
    const IS_BATCH: bool = false;
    fn types() -> String;
    fn encode(&self, bytes: &mut Vec<u8>);
    fn decode(bytes: &mut &[u8]) -> Self;
}

fn split<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (front, rest) = bytes.split_at(length);
    *bytes = rest;
    front
}

macro_rules! rows_of_one {
    ($($of:ty),+) => {
        $(impl Row for $of {
            fn types() -> String {
                Self::NAME.to_owned()
            }
            fn encode(&self, bytes: &mut Vec<u8>) {
                Column::encode(self, bytes);
            }
            fn decode(bytes: &mut &[u8]) -> Self {
                Column::decode(bytes)
            }
        })+
    };
}

macro_rules! numbers {
    ($($of:ty => $name:literal),+) => {
        $(impl Column for $of {
            const NAME: &'static str = $name;
            fn encode(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
            fn decode(bytes: &mut &[u8]) -> Self {
                let mut value = [0; size_of::<Self>()];
                value.copy_from_slice(split(bytes, size_of::<Self>()));
                Self::from_le_bytes(value)
            }
        })+
        rows_of_one!($($of),+);
    };
}

numbers!(i8 => "i8", i16 => "i16", i32 => "i32", i64 => "i64", u8 => "u8", u16 => "u16", u32 => "u32", u64 => "u64",
    f32 => "f32", f64 => "f64");
rows_of_one!(bool, String, Bytes);

impl Column for bool {
    const NAME: &'static str = "bool";
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(*self));
    }
    fn decode(bytes: &mut &[u8]) -> Self {
        split(bytes, 1)[0] == 1
    }
}

fn encode_bytes(value: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
    bytes.extend_from_slice(value);
}

fn decode_bytes<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = <u32 as Column>::decode(bytes) as usize;
    split(bytes, length)
}

impl Column for String {
    const NAME: &'static str = "string";
    fn encode(&self, bytes: &mut Vec<u8>) {
        encode_bytes(self.as_bytes(), bytes);
    }
    fn decode(bytes: &mut &[u8]) -> Self {
        String::from_utf8_lossy(decode_bytes(bytes)).into_owned()
    }
}

impl Column for Bytes {
    const NAME: &'static str = "bytes";
    fn encode(&self, bytes: &mut Vec<u8>) {
        encode_bytes(&self.0, bytes);
    }
    fn decode(bytes: &mut &[u8]) -> Self {
        Self(decode_bytes(bytes).to_vec())
    }
}

impl Row for ArrowBatch {
    const IS_BATCH: bool = true;
    fn types() -> String {
        "arrow".to_owned()
    }
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.0);
    }
    fn decode(bytes: &mut &[u8]) -> Self {
        let length = bytes.len();
        Self(split(bytes, length).to_vec())
    }
}

macro_rules! tuples {
    ($(($($of:ident $at:tt),+))+) => {
        $(impl<$($of: Column),+> Row for ($($of,)+) {
            fn types() -> String {
                [$($of::NAME),+].join(",")
            }
            fn encode(&self, bytes: &mut Vec<u8>) {
                $(self.$at.encode(bytes);)+
            }
            fn decode(bytes: &mut &[u8]) -> Self {
                ($($of::decode(bytes),)+)
            }
        })+
    };
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_name_their_types() {
        type Mixed = (String, u32, Bytes, f64, bool);
        let row: Mixed = ("word".to_owned(), 7, Bytes(vec![0, 255]), -0.5, true);
        let mut bytes = Vec::new();
        row.encode(&mut bytes);
        row.encode(&mut bytes);
        let mut rest = bytes.as_slice();
        assert_eq!(Mixed::decode(&mut rest), row);
        assert_eq!(Mixed::decode(&mut rest), row);
        assert!(rest.is_empty(), "all bytes were taken");
        assert_eq!(Mixed::types(), "string,u32,bytes,f64,bool");
        assert_eq!(bytes[..8], [4, 0, 0, 0, b'w', b'o', b'r', b'd']);
    }
}
