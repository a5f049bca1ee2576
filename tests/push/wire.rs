//! Protocol buffers, read: written from the specification for these tests alone.

/// One field of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Field<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            other => panic!("{other:?} is no message"),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }

    pub fn number(&self) -> u64 {
        match self {
            Field::Number(number) | Field::Fixed(number) => *number,
            other => panic!("{other:?} is no number"),
        }
    }

    pub fn double(&self) -> f64 {
        match self {
            Field::Fixed(bits) => f64::from_bits(*bits),
            other => panic!("{other:?} is no double"),
        }
    }
}

/// All fields of a message, in their order.
pub fn fields(message: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    let mut at = 0;
    let number = |at: &mut usize| {
        let mut value = 0_u64;
        for place in 0.. {
            let byte = message[*at];
            *at += 1;
            value += u64::from(byte % 128) << (7 * place);
            if byte < 128 {
                break;
            }
        }
        value
    };
    while at < message.len() {
        let key = number(&mut at);
        let field = match key % 8 {
            0 => Field::Number(number(&mut at)),
            1 => {
                at += 8;
                Field::Fixed(u64::from_le_bytes(message[at - 8..at].try_into().unwrap()))
            }
            2 => {
                let length = number(&mut at) as usize;
                at += length;
                Field::Bytes(&message[at - length..at])
            }
            form => panic!("form {form}"),
        };
        fields.push((key / 8, field));
    }
    fields
}

/// The fields of this number.
pub fn all<'a>(message: &'a [u8], number: u64) -> Vec<Field<'a>> {
    let fields = fields(message).into_iter();
    fields
        .filter(|(own, _)| *own == number)
        .map(|(_, field)| field)
        .collect()
}

/// The only field of this number, if there is one.
pub fn one<'a>(message: &'a [u8], number: u64) -> Option<Field<'a>> {
    let mut all = all(message, number);
    assert!(all.len() <= 1, "{all:?}");
    all.pop()
}

/// Names and values.
pub type Labels = Vec<(String, String)>;

/// A series of a write request: labels and samples, times in milliseconds.
pub type Written = (Labels, Vec<(u64, f64)>);

/// Reads a write request.
pub fn write_request(body: &[u8]) -> Vec<Written> {
    let message = snap::raw::Decoder::new().decompress_vec(body).unwrap();
    let series = all(&message, 1).into_iter().map(|series| {
        let labels = all(series.bytes(), 1).into_iter().map(|label| {
            let text = |number| one(label.bytes(), number).unwrap().text();
            (text(1), text(2))
        });
        let samples = all(series.bytes(), 2).into_iter().map(|sample| {
            let at = one(sample.bytes(), 2).unwrap().number();
            (at, one(sample.bytes(), 1).unwrap().double())
        });
        (labels.collect(), samples.collect())
    });
    series.collect()
}
